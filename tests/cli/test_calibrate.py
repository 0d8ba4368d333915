"""The verb calibrate."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import labelwise as lw
from tests.cli.folders import write_folders
from tests.conftest import blobs

DATA = blobs(per_label=20, seed=5)


def test_calibrate(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    code, out, _ = run("calibrate", model, pictures, "--out", tmp_path / "c.lw", "--known-rate", "0.8")
    assert code == 0
    assert "calibration error" in " ".join(out.split())
    kept = [
        json.loads(run("evaluate", m, pictures, "--split", "val", "--json")[1])["kept"]
        for m in (model, tmp_path / "c.lw")
    ]
    assert kept[1] == pytest.approx(0.8, abs=0.03)
    assert kept[0] > kept[1]


def test_calibrate_fits_the_threshold(run: Any, root: Path, tmp_path: Path) -> None:
    a, b, *_ = sorted((root / "pictures" / "test" / "blob 1").iterdir())
    code, out, err = run("verify", root / "bare.lw", a, b)
    assert (code, out) == (2, "")
    assert "labelwise calibrate" in " ".join(err.split())
    for words, rule in (((), "eer"), (("--false-accepts", "0.1"), 0.1)):
        path = tmp_path / f"{rule}.lw"
        assert run("calibrate", root / "bare.lw", root / "pictures", "--out", path, *words)[0] == 0
        assert json.loads(run("verify", path, a, b, "--json")[1])["rule"]["rule"] == rule
    path = tmp_path / "white.lw"
    assert run("calibrate", root / "bare.lw", root / "pictures", "--out", path, "--by", "whitened")[0] == 0
    assert json.loads(run("verify", path, a, b, "--json")[1])["rule"]["by"] == "whitened"


def test_thresholds_are_chosen_and_kept(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    """A threshold needs no images; one of a precision is chosen on them, and ``evaluate`` measures with both."""
    code, out, err = run("calibrate", model, "--out", tmp_path / "t.lw", "--threshold", "blob 1=0.999")
    assert code == 0, err
    assert '"blob 1" is answered at 99.9 % or more' in " ".join(out.split())
    test = [json.loads(run("evaluate", m, pictures, "--json")[1]) for m in (model, tmp_path / "t.lw")]
    plain, strict = (next(one for one in each["labels"] if one["label"] == "blob 1") for each in test)
    assert strict["recall"] <= plain["recall"]
    words = ("--threshold", "blob 0=0.4", "--precision", "blob 2=0.8", "--json")
    code, out, err = run("calibrate", tmp_path / "t.lw", pictures, "--out", tmp_path / "p.lw", *words)
    assert code == 0, err
    chosen = json.loads(out)["thresholds"]
    assert (chosen["blob 1"], chosen["blob 0"]) == (0.999, 0.4)
    assert 0 < chosen["blob 2"] < 1
    assert lw.load(tmp_path / "p.lw").thresholds == chosen
    for wrong in (("--threshold", "0.4"), ("--threshold", "no blob=0.4"), ("--precision", "blob 0=0.5")):
        assert run("calibrate", model, "--out", tmp_path / "x.lw", *wrong)[0] == 2
    assert not (tmp_path / "x.lw").exists()


def test_pictures_of_ones_own_are_all_used(run: Any, model: Path, tmp_path: Path) -> None:
    """A folder that names no splits is not cut, but for images that the classifier was trained on; what counts is said."""
    new = write_folders(tmp_path, DATA) / "test"
    code, out, err = run("calibrate", model, new, "--out", tmp_path / "c.lw")
    assert code == 0, err
    assert f"{len(DATA.split('test'))} images of test, without splits" in " ".join(out.split())
    assert lw.load(tmp_path / "c.lw").origin.summary["calibration"]["images"] == len(DATA.split("test"))
    code, out, err = run("calibrate", tmp_path / "c.lw", new, "--out", tmp_path / "d.lw", "--split", "all")
    assert code == 0, err
    assert "were also used to train or calibrate" in " ".join(out.split())


def test_a_list_of_labels_is_kept_and_the_old_classifier_stays(run: Any, model: Path, tmp_path: Path) -> None:
    (tmp_path / "my place.txt").write_text("blob 1\nblob 0\n")
    code, _, err = run(
        "calibrate", model, "--out", tmp_path / "here.lw", "--prior", tmp_path / "my place.txt", "--json"
    )
    assert code == 0, err
    assert "2 of 4 labels may occur" in err
    assert lw.load(tmp_path / "here.lw").labels.names == ("blob 0", "blob 1")
    assert len(lw.load(model).labels) == 4
    (tmp_path / "shares.csv").write_text("label,share\nblob 0,0.9\nblob 2,0.1\n")
    images = DATA.splits["test"].images
    assert run("calibrate", model, "--out", tmp_path / "often.lw", "--prior", tmp_path / "shares.csv")[0] == 0
    assert np.array_equal(
        lw.load(tmp_path / "often.lw").predict_proba(images),
        lw.load(model).restrict(tmp_path / "shares.csv").predict_proba(images),
    )
