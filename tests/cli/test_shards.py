"""Every verb takes shards as it takes a folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.images.samples import png
from tests.images.tar_shards import write_tar

SMALL = ("--method", "softmax", "--encoder", "none", "--size", "8", "--set", "epochs=2", "--device", "cpu")


def call(run: Any, *words: object) -> dict[str, Any]:
    code, out, err = run(*words)
    assert code == 0, err
    document: dict[str, Any] = json.loads(out)
    return document


def test_from_a_folder_to_shards_and_through_all_verbs(run: Any, pictures: Path, tmp_path: Path) -> None:
    shards, model = tmp_path / "my shards", tmp_path / "m.lw"
    written = call(run, "data", "shard", pictures, "--out", shards, "--megabytes", "0.05", "--json")
    assert written["images"] == 120
    assert written["shards"] > 3
    about = call(run, "data", "check", shards, "--size", "8", "--json")
    assert about["images"] == {"train": 40, "val": 40, "test": 40}
    assert call(run, "fit", shards, "--out", model, *SMALL, "--json")["training"]["images"] == 40
    measured = call(run, "evaluate", model, shards, "--json")
    same = call(run, "evaluate", model, pictures, "--json")
    assert measured["images"] == 40
    assert measured["accuracy"] == same["accuracy"]
    found = call(run, "classify", model, shards / "test-000000.tar", "--json")["predictions"]
    assert {one["file"].split("/")[-2] for one in found} == {"test-000000.tar"}
    (alone,) = call(run, "classify", model, found[1]["file"], "--json")["predictions"]
    assert (alone["file"], alone["label"]) == (found[1]["file"], found[1]["label"])
    code, _, err = run("classify", model, shards, "--sort-into", tmp_path / "sorted")
    assert code
    assert "cannot read shards" in err
    code, _, err = run("data", "encode", shards, "--encoder", model, "--out", tmp_path / "e.npz")
    assert code == 0, err


def test_a_bad_picture_is_named_by_fit_and_classify(run: Any, tmp_path: Path) -> None:
    members: dict[str, bytes] = {}
    for i in range(40):
        members |= {f"{i}.png": png(5 * i), f"{i}.cls": b"dark" if i < 20 else b"light"}
    file = write_tar(tmp_path / "train-0.tar", members | {"7.png": png(7)[:-9], "8.png": b"nothing"})
    code, _, err = run("fit", file, "--out", tmp_path / "m.lw", *SMALL)
    assert code == 0, err
    checked = " ".join("".join(run("data", "check", file)[1:]).split())
    assert "train-0.tar/8.png: it is not an image" in checked
    document = call(run, "classify", tmp_path / "m.lw", file, "--json")
    assert len(document["predictions"]) + len(document["skipped"]) == 40
    assert any(one["file"].endswith("/8.png") for one in document["skipped"])


@pytest.mark.parametrize("words", [("data", "shard", "digits"), ("data", "shard", "digits", "--megabytes", "0")])
def test_refusals_leave_nothing(run: Any, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "s").mkdir()
    code, _, err = run(*words, "--out", tmp_path / "s")
    assert code, err
    assert not list((tmp_path / "s").iterdir())
