"""The verb classify."""

import json
from pathlib import Path
from typing import Any

import numpy as np


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
