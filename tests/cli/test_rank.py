"""The command line where labels have an order: rank, and what evaluate adds."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import labelwise as lw
from tests.cli.folders import write_folders
from tests.conftest import blobs, quick

ORDER = ("blob 2", "blob 0", "blob 3", "blob 1")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of graded pictures as a user has it, with the order of labels in a file."""
    root, data = tmp_path_factory.mktemp("graded"), blobs(per_label=30)
    write_folders(root, data)
    rows = [f"{label},{place}" for place, label in enumerate(ORDER, 1)]
    (root / "labels.csv").write_text("\n".join(["label,order", *rows]) + "\n")
    return root


@pytest.fixture(scope="module")
def model(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "graded.lw"
    lw.save(lw.fit(lw.data.load(pictures, size=8), quick("softmax", 30), lw.Run(device="cpu")), path)
    return path


@pytest.fixture(scope="module")
def bare(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same classifier without an order."""
    path = tmp_path_factory.mktemp("models") / "bare.lw"
    classifier = lw.load(model)
    lw.save(replace(classifier, labels=replace(classifier.labels, order=None)), path)
    return path


def test_rank_sorts_by_the_order_of_the_data(run: Any, model: Path, pictures: Path) -> None:
    code, out, _ = run("rank", model, pictures / "test", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["levels"] == list(ORDER)
    ranks = [one["rank"] for one in found["images"]]
    assert ranks == sorted(ranks)
    right = [one["median"] == Path(one["file"]).parent.name for one in found["images"]]
    assert sum(right) / len(right) > 0.9
    code, out, _ = run("rank", model, pictures / "test")
    assert code == 0
    assert out.index("test/blob 2") < out.index("test/blob 1")
    assert "1 is blob 2, 4 is blob 1" in out
    assert "▁▁▁█" in out


def test_order_in_the_shell(run: Any, bare: Path, pictures: Path) -> None:
    code, _, err = run("rank", bare, pictures / "test")
    assert code == 2
    assert "--order poor,fair,good" in " ".join(err.split())
    code, out, _ = run("rank", bare, pictures / "test", "--order", 'blob 3, "blob 2",blob 1,blob 0', "--json")
    assert code == 0
    assert json.loads(out)["levels"] == ["blob 3", "blob 2", "blob 1", "blob 0"]
    code, _, err = run("rank", bare, pictures / "test", "--order", "blob 3,blob 2")
    assert code == 2
    assert "it lacks blob 0, blob 1" in " ".join(err.split())


def test_evaluate_adds_the_figures_of_ordered_labels(run: Any, model: Path, bare: Path, pictures: Path) -> None:
    code, out, _ = run("evaluate", model, pictures)
    assert code == 0
    for words in (
        "ordered labels: blob 2 to blob 1",
        "levels off",
        "kappa",
        "at most one level off",
        "Spearman",
        "hold the true level",
    ):
        assert words in out
    _, out, _ = run("evaluate", model, pictures, "--json")
    found = json.loads(out)
    assert found["ordinal"]["best"]["accuracy"] == pytest.approx(found["accuracy"])
    assert found["ordinal"]["median"]["kappa"] > 0.8
    _, out, _ = run("evaluate", bare, pictures, "--json")
    assert json.loads(out)["ordinal"] == found["ordinal"]  # the data give the order
    (pictures / "labels.csv").rename(pictures / "labels.off")
    try:
        _, out, _ = run("evaluate", bare, pictures, "--json")
        assert "ordinal" not in json.loads(out)
    finally:
        (pictures / "labels.off").rename(pictures / "labels.csv")
