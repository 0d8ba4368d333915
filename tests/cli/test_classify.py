"""The verb classify."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import labelwise as lw
from tests.conftest import quick


def test_classify(run: Any, model: Path, pictures: Path) -> None:
    folder = pictures / "test" / "blob 2"
    code, out, _ = run("classify", model, folder, "--json", "--top", 2)
    assert code == 0
    document = json.loads(out)
    assert len(document["predictions"]) == len(list(folder.iterdir()))
    assert np.mean([p["top"][0]["label"] == "blob 2" for p in document["predictions"]]) > 0.8
    assert all(len(p["top"]) == 2 for p in document["predictions"])
    code, out, _ = run("classify", model, folder)
    assert code == 0
    assert "blob 2" in out


def test_classify_skips_or_refuses_what_it_cannot_read(run: Any, model: Path, pictures: Path) -> None:
    broken, good = pictures / "train" / "blob 0" / "broken.jpg", pictures / "test" / "blob 1"
    code, out, err = run("classify", model, broken, good, "--json")
    assert code == 0
    assert len(json.loads(out)["skipped"]) == 1
    assert "broken.jpg" in err
    assert run("classify", model, broken, good, "--strict")[0] == 1
    assert run("classify", model, broken)[0] == 1
    _, _, err = run("classify", model, "https://example.org/1.jpg")
    assert "Download it and give the file" in " ".join(err.split())


def test_coverage_lists_enough_labels_in_the_shell_and_over_http(run: Any, model: Path, pictures: Path) -> None:
    folder = pictures / "test" / "blob 2"
    lengths = []
    for coverage in (0.5, 0.9999):
        code, out, _ = run("classify", model, folder, "--json", "--coverage", coverage)
        assert code == 0
        lengths.append([len(one["top"]) for one in json.loads(out)["predictions"]])
    assert max(lengths[0]) < min(lengths[1]) == 4  # so few images cannot promise 99.99 %: all labels
    code, _, err = run("classify", model, folder, "--coverage", 90)
    assert code == 2
    assert "between 0 and 1" in err


@pytest.fixture(scope="module")
def tree(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of these pictures, whose labels have parents in labels.csv."""
    folder = tmp_path_factory.mktemp("with parents") / "pictures"
    shutil.copytree(pictures / "train", folder)
    rows = [f"blob {i},{parent}" for i, parent in enumerate(("warm", "warm", "cold", "cold"))]
    (folder / "labels.csv").write_text("\n".join(["label,parent", *rows]))
    path = folder.parent / "my tree.lw"
    lw.save(lw.fit(lw.data.load(folder, size=8), quick("discriminant"), lw.Run(device="cpu")), path)
    return path


def test_max_error_answers_with_parents_in_the_shell(run: Any, tree: Path, pictures: Path, tmp_path: Path) -> None:
    noise = tmp_path / "noise"
    noise.mkdir()
    for seed in range(8):
        pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)
        Image.fromarray(pixels).save(noise / f"{seed}.png")
    folder = pictures / "test" / "blob 2"
    code, out, err = run("classify", tree, folder, noise, "--json", "--max-error", 0.05)
    assert code == 0, err
    rows = json.loads(out)["predictions"]
    assert {row["label"]: row["parents"] for row in rows if row["label"] == "blob 2"} == {"blob 2": ["cold"]}
    answers = {row["label"] for row in rows}
    assert answers <= {"unknown", "unsure", "warm", "cold", "blob 0", "blob 1", "blob 2", "blob 3"}
    code, out, _ = run(
        "classify", tree, folder, "--max-error", 0.0001, "--sort-into", tmp_path / "sorted", "--only", "unsure,cold"
    )
    assert code == 0
    assert {path.name for path in (tmp_path / "sorted").iterdir() if path.is_dir()} == {"unsure"}
    code, _, err = run("classify", tree, folder, "--max-error", 5)
    assert code == 2
    assert "between 0 and 1" in err


def test_a_taught_label_can_give_its_parent(run: Any, tree: Path, pictures: Path, tmp_path: Path) -> None:
    taught = tmp_path / "taught.lw"
    code, _, err = run("teach", tree, "blob 4", pictures / "test" / "blob 3", "--out", taught, "--parent", "cold")
    assert code == 0, err
    assert lw.load(taught).labels.parents == (("warm",), ("warm",), ("cold",), ("cold",), ("cold",))
    assert (
        run("teach", tree, "x", pictures / "test" / "blob 3", "--out", tmp_path / "y.lw", "--parent", "unknown")[0] == 2
    )


def test_only_labels_that_may_occur_are_answered(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    here = tmp_path / "my place.txt"
    here.write_text("blob 1\nblob 0\nwren\n")
    code, printed, err = run("--json", "classify", model, pictures / "train" / "blob 2", "--prior", here)
    assert code == 0, err
    document = json.loads(printed)
    assert document["prior"]["labels"] == ["blob 0", "blob 1"]
    assert {row["label"] for one in document["predictions"] for row in one["top"]} == {"blob 0", "blob 1"}
    assert "2 of 4 labels may occur" in err
    assert "no labels here: wren" in err
