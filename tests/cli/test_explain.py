"""The verb explain."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from labelwise.images.sheets import add_title
from labelwise.tasks.explain import Explanation
from tests.hostile.names import HOSTILE


def test_explain(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    image = next((pictures / "test" / "blob 0").iterdir())
    code, out, _ = run("explain", model, image, "blob 0", "--out", tmp_path / "new" / "why.png", "--json")
    assert code == 0
    assert np.asarray(json.loads(out)["heat"]).shape == (8, 8)
    with Image.open(tmp_path / "new" / "why.png") as picture:
        assert picture.size == (384, 412), "a line of title above it"
        assert (np.asarray(picture)[:28] < 100).any(), "dark letters"
        assert (np.asarray(picture)[:28, 0] == 255).all(), "on white"
    assert run("explain", model, image, "blob 0", "--not", "blob 1", "--out", tmp_path / "not.png")[0] == 0
    with Image.open(tmp_path / "not.png") as picture:
        assert picture.size == (384, 434), "a line for each label"
    assert run("explain", model, image, "--out", tmp_path / "why.txt")[0] == 2


@pytest.mark.parametrize("name", HOSTILE)
def test_a_title_shows_any_name_within_the_picture(name: str) -> None:
    why = Explanation(
        name, 0.5, np.zeros((8, 8), np.float32), np.zeros((8, 8, 3), np.uint8), "other", np.zeros((8, 8), np.float32)
    )
    picture = np.asarray(add_title(why.overlay(), why.lines))
    assert picture.shape == (434, 384, 3)
    assert (picture[:50, -5:] == 255).all(), "no letter reaches the edge"
    assert (picture[26:48] < 100).any(), "the other label is named, too"
