"""The verb evaluate."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import labelwise as lw
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.protocols import measure_verification
from tests.cli.folders import write_folders
from tests.conftest import blobs
from tests.contract.subjects import trained


def test_evaluate_and_leak_warning(run: Any, model: Path, pictures: Path) -> None:
    code, out, err = run("evaluate", model, pictures, "--json")
    figures = json.loads(out)
    assert code == 0
    assert figures["accuracy"] > 0.8
    assert figures["leaked"] == 0
    assert "Warning" not in err
    code, out, err = run("evaluate", model, pictures, "--split", "train")
    assert code == 0
    assert "Warning: 100.0 % of these images were used to train" in " ".join(err.split())
    assert run("evaluate", model, pictures, "--unknown", "digits", "--json")[0] == 0


def test_labels_confusions_and_the_interval_are_always_shown(run: Any, model: Path, pictures: Path) -> None:
    code, out, _ = run("evaluate", model, pictures)
    assert code == 0
    found = json.loads(run("evaluate", model, pictures, "--json")[1])
    low, high = found["interval"]
    assert f"({100 * low:.1f} % to {100 * high:.1f} %)" in " ".join(out.split())
    assert f"always answering {found['baseline']['label']} (baseline)" in out
    assert {"recall", "precision"} <= set(out.split())
    assert "1 blob 0" in out
    for one in found["labels"]:
        assert f"{100 * one['recall']:.1f} %" in out
    assert sum(one["count"] for one in found["confusion"]) == found["images"]
    assert not {"(EER)", "(minDCF)", "(MAP@R)"} & set(out.split())


def test_pairs_are_measured_only_when_asked_for(run: Any, root: Path) -> None:
    lw.save(trained("prototype"), root / "p.lw")
    code, out, _ = run(
        "evaluate", root / "p.lw", root / "pictures", "--protocol", "verification", "--protocol", "retrieval"
    )
    assert code == 0
    assert "pairs of 40 images: the same label?" in out
    assert {"similarity", "cosine", "sum", "(EER)", "(R@16)"} <= set(out.split())
    found = json.loads(run("evaluate", root / "p.lw", root / "pictures", "--protocol", "verification", "--json")[1])
    split = lw.data.folder(root / "pictures", size=8).split("test")
    expected = measure_verification(Evaluation.of(trained("prototype"), split))
    assert found["verification"]["sum"]["eer"] == pytest.approx(expected["sum"].eer)
    assert "retrieval" not in found
    assert "verification" not in json.loads(run("evaluate", root / "p.lw", root / "pictures", "--json")[1])
    code, _, err = run("evaluate", root / "p.lw", root / "pictures", "--protocol", "pairs")
    assert code != 0
    assert 'No protocol "pairs"' in err


def test_evaluate_on_labels_that_are_all_new(run: Any, root: Path) -> None:
    data = blobs(4, per_label=60)
    names = tuple(f"thing {i}" for i in range(4))
    write_folders(root / "others", replace(data, labels=replace(data.labels, names=names)))
    code, out, err = run("evaluate", root / "m.lw", root / "others")
    assert code == 0
    assert "knows none of these labels" in err
    assert "4 labels, 5 images of each" in out
    assert " +- " in out
    assert "Estimate(" not in out
    assert "pairs of 80 images" in out
    found = json.loads(run("evaluate", root / "m.lw", root / "others", "--json")[1])
    assert [(each["settings"]["ways"], each["settings"]["shots"]) for each in found["episodes"]] == [(4, 1), (4, 5)]
    assert found["episodes"][1]["accuracy"]["taught"]["mean"] > 0.8
    assert list(found["verification"]) == ["cosine", "whitened"]
    assert "accuracy" not in found
