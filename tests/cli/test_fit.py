"""The verb fit."""

import json
from pathlib import Path
from typing import Any

import pytest

from labelwise.cli.verbs import NEEDS
from labelwise.methods import METHODS
from tests.forks import Fork, shell

QUICK = ["--set", "encoder.width=8", "--set", "augment.flip=false", "--set", "optimizer.lr=0.05", "--set", "batch=16"]


@pytest.fixture(scope="module")
def folder(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What fit leaves behind, in a process of its own."""
    path = tmp_path_factory.mktemp("fitted")
    words = [
        "fit",
        pictures,
        "--out",
        path / "blobs.lw",
        "--size",
        8,
        "--set",
        "epochs=3",
        "--device",
        "cpu",
        "--encoder",
        "none",
    ]
    fitting = Fork(shell(*words, *QUICK), path)
    assert fitting.wait(120) == 0, fitting.said()
    return path


def test_fit_wrote_one_folder_and_listed_what_it_skipped(folder: Path) -> None:
    assert sorted(p.name for p in folder.iterdir()) == ["blobs.lw"]
    log = [json.loads(line) for line in (folder / "blobs.lw" / "log.jsonl").read_text().splitlines()]
    assert "broken.jpg" in log[0]["skipped"]
    assert "not an image" in log[0]["reason"]
    assert [entry["epoch"] for entry in log[1:]] == list(range(3))


def test_help_lists_every_method() -> None:
    names = NEEDS["fit"].removeprefix("Methods: ").removesuffix(".").split(", ")
    assert sorted(names) == sorted(METHODS), "written by hand: reading METHODS imports torch"


def test_fit_strict_refuses_unreadable_pictures(run: Any, pictures: Path, tmp_path: Path) -> None:
    code, out, err = run("fit", pictures, "--out", tmp_path / "m", "--size", 8, "--strict")
    assert (code, out) == (1, "")
    assert "broken.jpg" in err


def test_fit_keeps_what_is_there(run: Any, pictures: Path, model: Path) -> None:
    code, _, err = run("fit", pictures, "--out", model, "--size", 8)
    assert code == 2
    assert "--overwrite" in err


def test_unknown_setting_names_the_nearest(run: Any, pictures: Path, tmp_path: Path) -> None:
    code, out, err = run("fit", pictures, "--out", tmp_path / "m", "--set", "negatvies=3")
    assert (code, out) == (2, "")
    assert 'Did you mean "negatives"?' in err
    assert run("fit", pictures, "--out", tmp_path / "m", "--method", "indicater")[0] == 2


def test_settings_are_listed(run: Any) -> None:
    code, out, _ = run("settings", "indicator")
    assert code == 0
    assert "optimizer.lr" in out
    assert json.loads(run("settings", "simclr", "--json")[1])["queue"]["default"] == "4096"
    assert run("settings", "indicater")[0] == 2
