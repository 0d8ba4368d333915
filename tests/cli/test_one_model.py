"""One saved `prototype` answers every question from the shell: classify, ask, verify, retrieve, teach, outliers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import labelwise as lw
from labelwise.data import finches
from labelwise.images.dataset import Dataset
from tests.pixels_of import px


@pytest.fixture
def birds(monkeypatch: pytest.MonkeyPatch) -> Dataset:
    few = finches(per_species=20)
    monkeypatch.setattr("labelwise.images.catalogue.finches", lambda: few)
    return lw.data.load("finches")


@pytest.fixture
def photos(birds: Dataset, tmp_path: Path) -> Path:
    """Twelve test pictures of four species, as files."""
    place, split = tmp_path / "photos", birds.split("test")
    place.mkdir()
    for label in range(4):
        rows = np.flatnonzero(split.targets == label)[:3].tolist()
        for i, row in enumerate(rows):
            Image.fromarray(px(split)[row].permute(1, 2, 0).numpy()).save(place / f"{label}-{i}.png")
    return place


def test_one_model_answers_every_question(run: Any, birds: Dataset, photos: Path, tmp_path: Path) -> None:
    model, files = tmp_path / "birds.lw", sorted(photos.iterdir())
    words = ["--method", "prototype", "--set", "epochs=1", "--set", "encoder.width=8", "--encoder", "none", "--json"]
    assert run("fit", "finches", "--out", model, *words)[0] == 0

    def said(*verb: object) -> Any:
        code, out, err = run(*verb, "--json")
        assert code == 0, err
        return json.loads(out)

    names = set(birds.labels.names)
    rows = said("classify", model, *files)["predictions"]
    assert len(rows) == 12
    assert all(0 <= row["probability"] <= 1 and {row["label"]} <= names | {"unknown"} for row in rows)
    answer = said("ask", model, files[0], birds.labels.names[0])
    assert answer["yes"] == (answer["probability"] >= 0.5)
    same, other = (said("verify", model, files[0], b)["pairs"][0]["score"] for b in (files[0], files[-1]))
    assert same > other, "a picture is more like itself than like another species"
    matches = said("retrieve", model, files[0], "--gallery", photos, "--top", 11)["queries"][0]["matches"]
    assert {Path(match["file"]).name for match in matches} == {file.name for file in files[1:]}
    assert len(said("outliers", model, *files)["outliers"]) == 12
    code, out, _ = run("teach", model, "okapi", *files[:3], "--out", tmp_path / "more.lw")
    assert (code, f"{len(names) + 1} labels" in out) == (0, True)
    top = said("classify", tmp_path / "more.lw", files[0], "--top", 31)["predictions"][0]["top"]
    assert {each["label"] for each in top} == names | {"okapi"}
