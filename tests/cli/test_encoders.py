"""The verbs about encoders, and fit with one: downloaded, from a file, joined; a saved classifier refers to it or holds it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import labelwise as lw
from labelwise.encoders.registry import library
from labelwise.support.errors import StoreError
from tests.encoders.hub_reader import HUB, read_in_python
from tests.encoders.samples import save_tiny, tiny_graph
from tests.encoders.shelf import tiny_library
from tests.methods.words.samples import colours, read_colours


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tiny_library(tmp_path / "a shelf", monkeypatch) as folder:
        yield folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    for label, channel in (("red", 0), ("green", 1), ("blue", 2)):
        folder = tmp_path / "my photos" / label
        folder.mkdir(parents=True)
        for i in range(6):
            image = random.integers(0, 90, (20, 20, 3), np.uint8)
            image[..., channel] += 150
            Image.fromarray(image).save(folder / f"{i}.png")
    return tmp_path / "my photos"


def saved(folder: Path) -> Any:
    return json.loads((folder / "classifier.json").read_text())["encoder"]


def fitted(run: Any, photos: Path, encoder: str, *words: object) -> Path:
    out = photos.parent / "colours.lw"
    code, _, err = run("fit", photos, "--out", out, "--encoder", encoder, "--overwrite", *words)
    assert code == 0, err
    return out


def test_the_list_says_what_is_at_hand(run: Any, shelf: Path) -> None:
    for words in ((), ("list",)):
        code, out, _ = run("encoders", *words)
        assert code == 0
        assert "Get one: labelwise encoders get tiny" in out
    assert run("encoders", "get", "tiny")[0] == 0
    document = json.loads(run("encoders", "--json")[1])
    about = {each["name"]: each for each in document["encoders"]}["tiny"]
    assert (about["at_hand"], about["licence"], about["accuracy"]) == (True, "MIT", 99)
    assert "Removed tiny." in run("encoders", "remove", "tiny")[1]
    assert run("encoders", "get", "tinny")[0] == 2


def test_a_classifier_refers_to_a_downloaded_encoder_by_digest(run: Any, shelf: Path, photos: Path) -> None:
    code, _, err = run("fit", photos, "--out", photos.parent / "a.lw", "--encoder", "tiny")
    assert code == 1
    assert "Get it with: labelwise encoders get tiny" in err
    run("encoders", "get", "tiny")
    out = fitted(run, photos, "tiny")
    assert saved(out)["kind"] == "shared"
    assert not (out / "encoder.onnx").exists()
    assert saved(out)["id"] == lw.load(out).encoder.id
    assert set(lw.load(out).predict(photos / "red")) == {"red"}
    card = library()["tiny"].file.with_suffix(".json")
    card.write_text(card.read_text().replace("0.2", "0.25"))
    with pytest.raises(StoreError, match="made with a different version of the encoder tiny"):
        lw.load(out)
    run("encoders", "remove", "tiny")
    with pytest.raises(StoreError, match="Get it with: labelwise encoders get tiny"):
        lw.load(out)


def test_the_best_at_hand_is_chosen_and_said(run: Any, shelf: Path, photos: Path) -> None:
    assert run("encoders", "get", "tiny")[0] == 0
    code, _, err = run("fit", photos, "--out", photos.parent / "b.lw")
    assert code == 0
    assert "Encoder tiny: pretrained" in err
    assert saved(photos.parent / "b.lw")["name"] == "tiny"


@pytest.mark.parametrize("kind", ["file", "folder", "joined"])
def test_an_encoder_of_ones_own_goes_with_the_classifier(
    run: Any, photos: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "my encoder"
    own.mkdir()
    file = save_tiny(own).rename(own / "encoder.onnx")
    (own / "tiny.json").rename(own / "encoder.json")
    other = save_tiny(tmp_path, tiny_graph(seed=1), name="other")
    word = {"file": str(file), "folder": str(own), "joined": f"{own}+{other}"}[kind]
    classifier = lw.load(fitted(run, photos, word))
    wanted = classifier.predict_proba(photos / "red")
    for each in (file, other):
        each.unlink()
    moved = (photos.parent / "colours.lw").rename(tmp_path / "elsewhere.lw")
    assert np.array_equal(lw.load(moved).predict_proba(photos / "red"), wanted)
    assert set(lw.load(moved).predict(photos / "blue")) == {"blue"}


@pytest.mark.parametrize("method", ["softmax", "indicator", "prototype"])
def test_methods_that_train_take_its_features(run: Any, photos: Path, tmp_path: Path, method: str) -> None:
    file = save_tiny(tmp_path)
    out = fitted(run, photos, str(file), "--method", method, "--set", "epochs=30", "--device", "cpu")
    classifier = lw.load(out)
    assert (classifier.kind, classifier.encoder.name) == (method, "tiny")
    assert np.mean(classifier.predict(photos / "green") == "green") > 0.8


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tune"], "is not trained"),
        (["--set", "encoder.code_size=3"], "Leave out"),
        (["--set", "view.size=9"], "sees images of 8 pixels"),
    ],
)
def test_settings_that_an_onnx_file_cannot_have_are_refused(
    run: Any, photos: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    code, _, err = run("fit", photos, "--out", tmp_path / "c.lw", "--encoder", save_tiny(tmp_path), *words)
    assert code == 2
    assert said in err


def test_python_and_packs_take_the_same(photos: Path, tmp_path: Path) -> None:
    file, paths = str(save_tiny(tmp_path)), sorted(photos.rglob("*.png"))
    images = np.stack([np.asarray(Image.open(each)) for each in paths])
    names = [each.parent.name for each in paths]
    by_path, by_array = (lw.fit((given, names), encoder=file) for given in (paths, images))
    assert by_array.shape == by_path.shape == (3, 8, 8)
    assert np.allclose(by_array.predict_proba(images), by_path.predict_proba(paths), atol=1e-4)


def test_trying_says_which_is_best_and_how_to_use_it(run: Any, photos: Path, tmp_path: Path) -> None:
    name = str(save_tiny(tmp_path))
    code, out, err = run("encoders", "try", photos, name, "--images", "12")
    assert code == 0, err
    assert "Best: " in out
    document = json.loads(run("--json", "encoders", "try", photos, name)[1])
    assert document["best"] == document["trials"][0]["name"] == name
    assert document["trials"][0]["accuracy"] > 0.8


def test_names_alone_make_a_classifier_in_the_shell(
    run: Any, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_colours(monkeypatch)
    out, words = tmp_path / "words.lw", colours(tmp_path)
    names = tmp_path / "my names.txt"
    names.write_text("scarlet\nemerald\nazure\n")
    command = ["fit", photos, "--names", names, "--method", "words", "--set", f"vocabulary={words}", "--out", out]
    code, printed, err = run(*command)
    assert code == 0, err
    assert "No image had a label" in printed
    assert "scarlet (nearest: Red" in err
    answers = json.loads(run("--json", "ask", out, photos / "red" / "0.png", "--text", "something red")[1])
    assert answers
    assert lw.load(out).labels.names == ("scarlet", "emerald", "azure")


def test_any_word_is_asked_taught_and_searched_in_the_shell(
    run: Any, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_in_python(monkeypatch)
    out, more, photo = tmp_path / "words.lw", tmp_path / "more.lw", photos / "red" / "0.png"
    code, _, err = run("fit", photos, "--names", "red,green", "--encoder", HUB / "clip", "--out", out)
    assert code == 0, err
    assert json.loads(run("--json", "ask", out, photo, "--text", "blue at night")[1])["text"] == "blue at night"
    assert run("teach", out, "night", "--text", "the night", "--out", more)[0] == 0
    assert lw.load(more).labels.names == ("red", "green", "night")
    (query,) = json.loads(run("--json", "retrieve", out, "--gallery", photos, "--text", "blue", "--top", 3)[1])[
        "queries"
    ]
    wanted = lw.load(out).retrieve_by_text("blue", photos, k=3)
    assert [Path(each["file"]).name for each in query["matches"]] == [Path(each.file).name for each in wanted]
    code, _, err = run("retrieve", out, photo, "--gallery", photos, "--text", "blue")
    assert code == 2
    assert "leave out images" in err


def test_several_networks_are_not_one_file(run: Any, photos: Path, tmp_path: Path) -> None:
    one = save_tiny(tmp_path)
    (tmp_path / "other").mkdir()
    out = fitted(run, photos, f"{one}+{save_tiny(tmp_path / 'other', tiny_graph(seed=1), name='other')}")
    code, _, err = run("export", out, "--out", tmp_path / "both.onnx")
    assert code == 1
    assert "tiny+other joins several networks" in err
