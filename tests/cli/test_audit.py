"""The verb audit, the pages of images to look at, and fit --corrections."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import labelwise as lw
from labelwise.cli.audit import APPLIED
from labelwise.images.corrections import correct, read_corrections
from labelwise.support.errors import DataError

COLOURS = {"owl": (200, 60, 60), "wren": (60, 200, 60), "tit": (60, 60, 200)}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of three labels, three of each held out in test."""
    root, draw = tmp_path_factory.mktemp("clean"), np.random.default_rng(0)
    for label, colour in COLOURS.items():
        for i in range(15):
            home = root / ("test" if i > 11 else "train") / label
            home.mkdir(parents=True, exist_ok=True)
            pixels = np.clip(draw.normal(colour, 25, (48, 48, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(home / f"{label} {i:02}.png")
    return root


@pytest.fixture
def photos(clean: Path, tmp_path: Path) -> Path:
    """The same with two wrong labels, one of them held out, a copy under another label, and a copy that was saved again."""
    root = tmp_path / "photos"
    shutil.copytree(clean, root)
    (root / "train" / "owl" / "owl 03.png").rename(root / "train" / "wren" / "owl 03.png")
    (root / "test" / "tit" / "tit 12.png").rename(root / "test" / "owl" / "tit 12.png")
    shutil.copy(root / "train" / "tit" / "tit 00.png", root / "train" / "wren" / "again.png")
    with Image.open(root / "train" / "owl" / "owl 00.png") as image:
        image.point(lambda value: value * 0.9).save(root / "train" / "owl" / "owl 00 dark.png")
    return root


def test_wrong_labels_and_duplicates_are_found_and_no_file_is_touched(run: Any, photos: Path, tmp_path: Path) -> None:
    before = {file: file.read_bytes() for file in photos.rglob("*.*")}
    page, table, fixed = (tmp_path / name for name in ("s.html", "s.csv", "fixed.csv"))
    code, out, _ = run("audit", photos, "--out", page, "--csv", table, "--apply", fixed)
    assert code == 0
    assert {file: file.read_bytes() for file in photos.rglob("*.*")} == before
    rows = list(csv.DictReader(table.read_text().splitlines()))
    doubtful = {Path(row["file"]).name: row["suggested"] for row in rows if row["reason"] == "label"}
    assert doubtful == {"owl 03.png": "owl", "tit 12.png": "tit", "again.png": "tit"}
    twins = {(Path(row["file"]).name, Path(row["other"]).name, row["reason"]) for row in rows if row["other"]}
    assert ("again.png", "tit 00.png", "copy") in twins or ("tit 00.png", "again.png", "copy") in twins
    assert any(
        reason == "lookalike" and {one, other} == {"owl 00.png", "owl 00 dark.png"} for one, other, reason in twins
    )
    assert "Doubtful labels: 3. Duplicates: 2, 1 of them under another label." in " ".join(out.split())
    assert page.read_text().count("<figure data-file=") == len(rows)
    corrected = lw.data.load(fixed)
    names = {
        Path(f).name: corrected.labels.names[t]
        for s in corrected.splits.values()
        for f, t in zip(s.files, s.targets, strict=True)
    }
    before_fix = {Path(row["file"]).name: row for row in rows if row["reason"] == "label"}
    for name, row in before_fix.items():
        assert names[name] == (row["suggested"] if float(row["probability"]) >= APPLIED else row["label"])
    assert names["owl 03.png"] == "owl", "the most probable one is applied"
    assert names["owl 01.png"] == "owl"
    assert (len(corrected.split("test")), len(names)) == (9, 47)


def test_python_finds_the_same(photos: Path, clean: Path, run: Any) -> None:
    document = json.loads(run("audit", photos, "--json")[1])
    found = lw.suspects(photos)
    assert [one["file"] for one in document["suspects"]] == [one.file for one in found]
    assert [Path(one.file).name for one in found if one.doubtful][:2] != []
    assert [one for one in lw.suspects(clean) if one.reason == "label"] == []


def test_corrections_change_labels_and_add_images(
    run: Any, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (48, 48), "yellow").save("=new.png")
    table = tmp_path / "corrections.csv"
    table.write_text('"image","label"\r\n"photos/train/wren/owl 03.png","OWL"\r\n"\'=new.png","canary"\r\n')
    before = lw.data.load(photos)
    after, changed, added = correct(before, read_corrections(table))
    assert (changed, added, after.labels.names) == (1, 1, (*before.labels.names, "canary"))
    train = after.split("train")
    assert len(train) == len(before.split("train")) + 1
    place = [Path(file).name for file in train.files].index("owl 03.png")
    assert after.labels.names[train.targets[place]] == "owl"
    code, _, err = run("fit", "photos", "--corrections", table, "--out", "m.lw")
    assert code == 0, err
    assert "Corrections: 1 labels changed, 1 images added." in err
    assert "canary" in lw.load("m.lw").labels.names
    table.write_text("image,label\nnowhere.png,owl\n")
    with pytest.raises(DataError, match=r'Row 2 .*there is no image "nowhere\.png"'):
        read_corrections(table)
    table.write_text("image,name\nnowhere.png,owl\n")
    with pytest.raises(DataError, match='needs one column "label"'):
        read_corrections(table)
    table.write_text("picture,label\nowl.png,owl\n")
    with pytest.raises(DataError, match='needs one column "image"'):
        read_corrections(table)
    table.write_text("image,label\n=new.png,unknown\n")
    with pytest.raises(DataError, match=r'Row 2 .*"unknown" is reserved for answers'):
        read_corrections(table)


def test_corrections_of_the_page_are_applied_and_nothing_else(run: Any, photos: Path, tmp_path: Path) -> None:
    table, fixed = tmp_path / "corrections.csv", tmp_path / "fixed.csv"
    table.write_text(f'"image","label"\r\n"{photos}/train/wren/owl 03.png","owl"\r\n')
    code, out, _ = run("audit", photos, "--corrections", table, "--apply", fixed, "--json")
    assert code == 0
    assert json.loads(out)["changed"] == 1
    whole = {Path(row["path"]).name: row["label"] for row in csv.DictReader(fixed.read_text().splitlines())}
    assert whole["owl 03.png"] == "owl"
    assert whole["tit 12.png"] == "owl", "nobody corrected it"
    code, _, err = run("audit", photos, "--corrections", table)
    assert code == 2
    assert "--apply" in err


def test_an_odd_image_and_an_ambiguous_one_are_listed(clean: Path, tmp_path: Path) -> None:
    root = tmp_path / "photos"
    shutil.copytree(clean, root)
    stripes = np.zeros((48, 48, 3), np.uint8)
    stripes[::4] = 255
    Image.fromarray(stripes).save(root / "train" / "owl" / "odd.png")
    found = {Path(one.file).name: one for one in lw.suspects(root) if one.reason in ("odd", "label")}
    assert "odd.png" in found
    assert not found["odd.png"].doubtful or found["odd.png"].reason == "label"
    for suspect in found.values():
        assert (suspect.certainty is None) == (suspect.reason == "odd"), "it would be that of its own label"
