"""The verb group, and what fit says of the folders it made."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import labelwise as lw
from labelwise.support.errors import LabelwiseWarning

COLOURS = {"owl": (220, 40, 40), "wren": (40, 220, 40), "tit": (40, 40, 220)}
EACH = 12


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Images of three kinds without labels; files in two folders have the same names."""
    root, draw = tmp_path / "my photos", np.random.default_rng(0)
    for kind, colour in COLOURS.items():
        for i in range(EACH):
            home = root / f"day {i % 2}"
            home.mkdir(parents=True, exist_ok=True)
            pixels = np.clip(draw.normal(colour, 25, (48, 48, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(home / f"{kind} {i // 2}.png")
    return root


def kinds(folder: Path) -> set[str]:
    return {file.name.split()[0] for file in folder.iterdir()}


def test_look_alikes_are_copied_into_folders_that_fit_reads(run: Any, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "groups"
    code, text, _ = run("group", photos, "--out", out, "--count", 3)
    assert code == 0
    folders = sorted(each for each in out.iterdir() if each.is_dir())
    assert [folder.name for folder in folders] == ["group 1", "group 2", "group 3"]
    assert sorted(len(list(folder.iterdir())) for folder in folders) == [EACH] * 3
    assert all(len(kinds(folder)) == 1 for folder in folders)
    names = [file.name for folder in folders for file in folder.iterdir()]
    assert len(set(names)) == len(names), "folders can be joined"
    assert "data:image/jpeg" in (out / "index.html").read_text()
    assert len(list(photos.rglob("*.png"))) == 3 * EACH, "the images stay where they are"
    for folder in folders:
        folder.rename(out / kinds(folder).pop())
    code, text, _ = run("fit", out, "--out", tmp_path / "m.lw")
    assert code == 0
    assert "This is not accuracy: the labels come from labelwise group" in " ".join(text.split())
    assert "Estimated accuracy" not in text
    assert lw.load(tmp_path / "m.lw").origin.summary["labels_by"] == "groups"


def test_groups_that_a_person_renamed_are_not_replaced(run: Any, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "groups"
    assert run("group", photos, "--out", out)[0] == 0
    assert run("group", photos, "--out", out, "--count", 2)[0] == 0, "untouched groups are made again"
    assert len([each for each in out.iterdir() if each.is_dir()]) == 2
    (out / "group 1").rename(out / "owl")
    code, _, errors = run("group", photos, "--out", out)
    assert code == 2
    assert "renamed or changed (group 1)" in " ".join(errors.split())
    assert (out / "owl").is_dir()
    assert run("group", photos, "--out", photos)[0] == 2, "a folder of somebody else is refused"


def test_links_and_json(run: Any, photos: Path, tmp_path: Path) -> None:
    code, text, _ = run("group", photos, "--out", tmp_path / "groups", "--link", "--count", 3, "--json")
    assert code == 0
    document = json.loads(text)
    assert [one["images"] for one in document["groups"]] == [EACH] * 3
    assert all(file.is_symlink() for file in (tmp_path / "groups" / "group 1").iterdir())


@pytest.mark.parametrize("verb", [("fit", "--out", "m.lw"), ("data", "check"), ("data", "encode", "--out", "f.npz")])
def test_verbs_that_need_labels_name_the_way(run: Any, photos: Path, tmp_path: Path, verb: tuple[str, ...]) -> None:
    words = [tmp_path / word if word.startswith(("m.", "f.")) else word for word in verb]
    code, _, errors = run(*words, photos / "day 0")
    assert code == 1
    assert "labelwise group" in " ".join(errors.split())


def test_python_groups_arrays_and_files(photos: Path) -> None:
    groups = lw.group(photos, 3)
    assert [len(group) for group in groups] == [EACH] * 3
    assert all(len({Path(file).name.split()[0] for file in group}) == 1 for group in groups)
    arrays = np.stack([np.asarray(Image.open(file)) for file in sorted(photos.rglob("*.png"))])
    assert [len(group) for group in lw.group(arrays, 3)] == [EACH] * 3


def test_unreadable_images_are_left_out_with_a_warning(photos: Path) -> None:
    (photos / "torn.png").write_bytes(b"no image")
    with pytest.warns(LabelwiseWarning, match="torn.png"):
        groups = lw.group(photos, 3)
    assert sum(map(len, groups)) == 3 * EACH
