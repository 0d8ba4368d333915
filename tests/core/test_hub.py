"""Classifiers on a model hub, against a small hub on this machine; and without the package, where nothing needs it."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import labelwise as lw
from labelwise.core import hub as module
from labelwise.core.hub import saved_folder, without_token
from labelwise.reporting.model_card import CardWords, model_card
from labelwise.support.errors import StoreError, UnsupportedError, UsageError
from tests.cli.conftest import run as run
from tests.core.hub_server import TOKEN, Hub, serving

FOLDERS = Path(__file__).parents[1] / "golden" / "folders"
MODEL = FOLDERS / "discriminant.lw"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with serving() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def scores(classifier: lw.Classifier) -> Any:
    width = classifier.shape[0]
    return classifier.scores(np.random.default_rng(0).normal(size=(5, width)).astype(np.float32)).raw


def test_a_classifier_comes_back_from_the_hub_with_equal_answers(hub: Hub) -> None:
    classifier = lw.load(MODEL)
    address = classifier.push_to_hub("ann/birds", card=CardWords(licence="apache-2.0"))
    assert np.array_equal(scores(lw.load(address)), scores(classifier))
    assert np.array_equal(scores(lw.load("hf://ann/birds")), scores(classifier))
    commit = hub.files("ann/birds")
    assert commit is not None
    assert address == f"hf://ann/birds@{commit[0]}"
    assert set(commit[1]) >= {"README.md", "classifier.json", "weights.safetensors"}
    assert hub.large, "weights are sent as large files"


def test_a_revision_stays_what_it_was(hub: Hub) -> None:
    first = lw.load(MODEL).push_to_hub("ann/birds")
    second = lw.load(MODEL).forget(lw.load(MODEL).labels.names[0]).push_to_hub("hf://ann/birds")
    assert len(lw.load(first).labels) == len(lw.load(second).labels) + 1 == len(lw.load("hf://ann/birds").labels) + 1


def test_what_was_fetched_is_kept(hub: Hub) -> None:
    address = lw.load(MODEL).push_to_hub("ann/birds")
    lw.load(address)
    hub.requests.clear()
    lw.load(address)
    assert not [one for one in hub.requests if one[0] == "GET" and "/resolve/" in one[1]]


def test_a_changed_file_is_refused(hub: Hub) -> None:
    lw.load(MODEL).push_to_hub("ann/birds")
    id, files = hub.commits["ann/birds"][-1]
    weights = bytearray(files["weights.safetensors"])
    weights[-1] ^= 1
    hub.commits["ann/birds"].append(("1" * 40, {**files, "weights.safetensors": bytes(weights)}))
    with pytest.raises(StoreError, match="checksum"):
        lw.load("hf://ann/birds")
    assert lw.load(f"hf://ann/birds@{id}")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("hf://ann/none", "no such repository"),
        ("hf://ann/birds@v9", "no such revision"),
        ("hf://ann/empty", "holds no classifier"),
    ],
)
def test_what_is_missing_is_said_in_words(hub: Hub, address: str, words: str) -> None:
    lw.load(MODEL).push_to_hub("ann/birds")
    hub.commits["ann/empty"] = [("2" * 40, {"README.md": b"x"})]
    with pytest.raises(StoreError, match=words):
        lw.load(address)


def test_no_token_is_in_an_error(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrongwrongwrong")
    with pytest.raises(StoreError) as caught:
        lw.load(MODEL).push_to_hub("ann/birds", token="another secret")
    assert "secret" not in str(caught.value)
    assert "hf_wrong" not in str(caught.value)
    assert "refuses" in str(caught.value)
    assert without_token("Bearer hf_wrongwrongwrong, x", None) == without_token("Bearer x, x", "x").replace(
        "***, ***", "***, x"
    )


def test_an_unreachable_hub_is_said_in_words(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(StoreError, match="cannot be"):
        lw.load("hf://ann/birds")


def test_the_shell_publishes_and_classifies(hub: Hub, run: Any, tmp_path: Path) -> None:
    model = FOLDERS / "softmax.lw"
    code, out, err = run("publish", model, "ann/shapes", "--private", "--licence", "cc0-1.0", "--json")
    assert code == 0, err
    assert "ann/shapes" in hub.private
    photo = FOLDERS.parent / "data" / "green-cross.png"
    photo = photo if photo.is_file() else next((FOLDERS.parent / "data").rglob("*.png"))
    answers = [
        json.loads(run("classify", place, photo, "--json")[1])["predictions"]
        for place in (model, json.loads(out)["address"])
    ]
    assert answers[0] == answers[1]


def test_the_card_says_what_the_classifier_knows(run: Any) -> None:
    code, out, _ = run("publish", MODEL, "--use", "Sort | shapes", "--json")
    assert code == 0
    card = json.loads(out)["card"]
    assert card.startswith('---\nlibrary_name: "labelwise"\n')
    head = dict(line.split(": ", 1) for line in card.split("---\n")[1].splitlines())
    assert json.loads(head["model-index"])[0]["results"][0]["metrics"][0]["value"] == 1.0
    assert "license" not in head
    for words in ("91.6", "leave-one-out on 42 images", r"Sort \| shapes", "Not stated.", "hf://user/discriminant"):
        assert words in card
    assert all(name in card for name in lw.load(MODEL).labels.names)


@pytest.mark.parametrize("name", sorted(each.name for each in FOLDERS.glob("*.lw")))
def test_every_classifier_has_a_card(name: str) -> None:
    card = model_card(lw.load(FOLDERS / name), "ann/x", CardWords(licence="mit"))
    assert 'license: "mit"' in card
    assert "None" not in card


@pytest.mark.parametrize("address", ["hf://ann", "hf://ann/../x", "hf://ann/birds@", "hf:///", "hf://ann/b c"])
def test_an_address_that_is_none_is_an_error(address: str) -> None:
    with pytest.raises(UsageError, match="hf://user/name"):
        saved_folder(address)


def test_without_the_package_only_the_hub_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert saved_folder(tmp_path) == tmp_path
    assert lw.load(MODEL)
    for call in (lambda: lw.load("hf://ann/birds"), lambda: lw.load(MODEL).push_to_hub("ann/birds")):
        with pytest.raises(UnsupportedError, match=r'pip install "labelwise\[hub\]"'):
            call()
    with pytest.raises(UsageError, match="user/name"):
        module.check_repository("birds")


def test_folders_of_a_repository_are_not_fetched(hub: Hub) -> None:
    lw.load(MODEL).push_to_hub("ann/birds")
    id, files = hub.commits["ann/birds"][-1]
    hub.commits["ann/birds"].append((id, {**files, **{f"more/{i}.json": b"{}" for i in range(3)}}))
    lw.load("hf://ann/birds")
    assert not [path for _, path in hub.requests if "/more/" in path]
    with pytest.raises(UsageError, match="not the address"):
        lw.load("hf://ann/birds@..")
