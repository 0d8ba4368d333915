"""The verb evaluate."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import labelwise as lw
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.pairs import evaluate_pairs
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


def test_evaluate_adds_pairs_where_a_similarity_was_learnt(run: Any, root: Path) -> None:
    lw.save(trained("prototype"), root / "p.lw")
    code, out, _ = run("evaluate", root / "p.lw", root / "pictures")
    assert code == 0
    assert "pairs of 40 pictures: do they show the same label" in out
    assert {"similarity", "cosine", "sum", "(EER)", "(R@16)"} <= set(out.split())
    found = json.loads(run("evaluate", root / "p.lw", root / "pictures", "--json")[1])
    split = lw.data.folder(root / "pictures", size=8).split("test")
    expected = evaluate_pairs(Evaluation.of(trained("prototype"), split))
    assert found["pairs"]["verification"]["sum"]["eer"] == pytest.approx(expected.verification["sum"].eer)
    assert found["pairs"]["retrieval"]["cosine"]["recall"]["1"] == expected.retrieval["cosine"].recall[1]
    assert "pairs" not in json.loads(run("evaluate", root / "m.lw", root / "pictures", "--json")[1])


def test_evaluate_on_labels_that_are_all_new(run: Any, root: Path) -> None:
    data = blobs(4, per_label=60)
    names = tuple(f"thing {i}" for i in range(4))
    write_folders(root / "others", replace(data, labels=replace(data.labels, names=names)))
    code, out, err = run("evaluate", root / "m.lw", root / "others")
    assert code == 0
    assert "knows none of these labels" in err
    assert "4 labels, 5 pictures of each" in out
    assert " +- " in out
    assert "Estimate(" not in out
    assert "pairs of 80 pictures" in out
    found = json.loads(run("evaluate", root / "m.lw", root / "others", "--json")[1])
    assert [(each["ways"], each["shots"]) for each in found["episodes"]] == [(4, 1), (4, 5)]
    assert found["episodes"][1]["accuracy"]["taught"]["mean"] > 0.8
    assert list(found["pairs"]["verification"]) == ["cosine", "whitened"]
