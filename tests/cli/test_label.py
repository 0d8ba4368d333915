"""The verb label, without its page: import and export of a project, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.server.labelling.photos import COLOURS, draw_photos, truth


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos, some of them in folders of their labels, too."""
    place = tmp_path_factory.mktemp("label")
    folder = draw_photos(place / "all photos", 5)
    for file in list(folder.glob("* [01].png")):
        home = place / "known" / truth(str(file))
        home.mkdir(parents=True, exist_ok=True)
        (home / file.name).symlink_to(file)
    return folder


def test_labels_go_in_and_out(run: Any, photos: Path, tmp_path: Path) -> None:
    known = ("--import", photos.parent / "known", "--out", tmp_path / "p")
    code, out, err = run("label", photos, *known, "--export", "csv", "--json")
    assert code == 0
    assert "6 labels imported" in err
    assert json.loads(out)["images"] >= 6
    code, out, _ = run("label", "--out", tmp_path / "p", "--export", "folders")
    assert code == 0
    assert sorted(one.name for one in (tmp_path / "p" / "export" / "folders").iterdir()) == sorted(COLOURS)
    code, out, _ = run("label", "--out", tmp_path / "p", "--export", "csv", "--min-probability", "0", "--json")
    assert code == 0
    assert json.loads(out)["images"] == 15, "every guess"


def test_refusals_say_what_to_do(run: Any, photos: Path, tmp_path: Path) -> None:
    code, _, err = run("label", "--out", tmp_path / "none")
    assert code == 2
    assert "Give a folder of photos" in err
    (tmp_path / "names.txt").write_bytes(b"\xff\xfe\x00")
    code, _, err = run("label", photos, "--names", tmp_path / "names.txt", "--out", tmp_path / "p")
    assert code == 1
    assert "Write one name per line" in " ".join(err.split())
    code, _, err = run("label", photos, "--out", tmp_path / "p", "--export", "csv")
    assert code == 2
    assert "No image has a label" in err
    code, _, err = run("label", photos, "--out", tmp_path / "p", "--min-probability", "0.5")
    assert code == 2
    assert "Give --export, too" in " ".join(err.split())
