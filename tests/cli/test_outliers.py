"""The verb outliers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def test_outliers(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    strange = tmp_path / "strange"
    strange.mkdir()
    for i in range(3):
        stripes = np.zeros((16, 16, 3), np.uint8)
        stripes[i::3] = 255
        Image.fromarray(stripes).save(strange / f"{i}.png")
    code, out, _ = run("outliers", model, strange, "--known", pictures, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["figures"]["auroc"] > 0.9
    assert [one["score"] for one in document["outliers"]] == sorted(
        (o["score"] for o in document["outliers"]), reverse=True
    )
    known = sorted(pictures.rglob("*.png"))[:12]
    code, out, _ = run("outliers", model, strange, *known)
    rows = [line for line in out.splitlines() if ".png" in line]
    assert code == 0
    assert len(rows) == 15
    assert all(("█" * 20 in row) == row.rstrip().endswith("unknown") for row in rows)
    assert "A full bar is unknown: a score above" in out
