"""The verb explain."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def test_explain(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    image = next((pictures / "test" / "blob 0").iterdir())
    code, out, _ = run("explain", model, image, "blob 0", "--out", tmp_path / "new" / "why.png", "--json")
    assert code == 0
    assert np.asarray(json.loads(out)["heat"]).shape == (8, 8)
    with Image.open(tmp_path / "new" / "why.png") as picture:
        assert picture.size == (384, 384)
    assert run("explain", model, image, "--out", tmp_path / "why.txt")[0] == 2
