"""The verb outliers."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from labelwise.cli.outliers import SHOWN


def test_outliers(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    strange = tmp_path / "strange"
    strange.mkdir()
    for i in range(3):
        stripes = np.zeros((16, 16, 3), np.uint8)
        stripes[i::3] = 255
        Image.fromarray(stripes).save(strange / f"{i}.png")
    code, out, _ = run("outliers", model, strange, "--json", "--csv", tmp_path / "all.csv")
    assert code == 0
    document = json.loads(out)
    assert document["skipped"] == []
    assert [one["score"] for one in document["outliers"]] == sorted(
        (o["score"] for o in document["outliers"]), reverse=True
    )
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 4
    known = sorted(pictures.rglob("*.png"))[:12]
    code, out, _ = run("outliers", model, strange, *known)
    rows = [line for line in out.splitlines() if ".png" in line]
    assert code == 0
    assert len(rows) == 15
    assert all(("█" * 20 in row) == row.rstrip().endswith("unknown") for row in rows)
    assert "images are unknown: their score is above" in out


def test_a_screen_of_rows_is_printed_and_a_table_holds_all(
    run: Any, model: Path, pictures: Path, tmp_path: Path
) -> None:
    code, out, _ = run("outliers", model, pictures / "train", "--csv", tmp_path / "all.csv")
    count = len(list((pictures / "train").rglob("*.png")))
    assert code == 0
    assert len([line for line in out.splitlines() if ".png" in line]) == SHOWN < count
    assert f"The first {SHOWN} of {count} images. --csv FILE writes all of them." in out
    rows = list(csv.DictReader((tmp_path / "all.csv").read_text().splitlines()))
    scores = [float(row["score"]) for row in rows]
    assert (len(rows), scores) == (count, sorted(scores, reverse=True))
