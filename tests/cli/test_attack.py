"""The verb attack as a user meets it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import labelwise as lw
from labelwise.core.store import save
from labelwise.data import load
from labelwise.evaluation.evaluation import Evaluation
from labelwise.support.errors import UsageError
from labelwise_papers.attacks.attack import GRADIENTS
from labelwise_papers.attacks.fooled import strip
from labelwise_papers.attacks.robust import RobustSettings, evaluate_robust
from labelwise_papers.attacks.square import Square
from labelwise_papers.attacks.verb import parse_radius
from tests.conftest import blobs, quick


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "blobs.lw"
    save(lw.fit(blobs(per_label=30), quick("indicator", 8), lw.Run(device="cpu")), path)
    return path


def test_figures_and_pictures(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    words = ("attack", model, pictures, "--epsilon", "0.1", "--queries", 30, "--device", "cpu")
    code, out, err = run(*words, "--json", "--out", tmp_path / "fooled")
    assert code == 0, err
    found = json.loads(out)
    data, classifier = load(str(pictures), size=8), lw.load(model)
    settings = RobustSettings(epsilon=0.1, attacks=(*GRADIENTS, Square(queries=30)))
    whole = evaluate_robust(Evaluation.of(classifier, data.split("test"), data.labels), settings)
    assert found["attacks"] == whole.attacks
    assert (found["worst"], found["images"]) == (whole.worst, len(data.split("test")))
    assert [check["name"] for check in found["checks"]] == [check.name for check in whole.checks]
    assert 1 <= len(found["pictures"]) <= 12
    for one in found["pictures"]:
        assert one["label"] != one["answer"]
        with Image.open(one["file"]) as picture:
            assert picture.size == (3 * 192, 192)


def test_the_table_names_the_worst_and_the_checks(run: Any, model: Path, pictures: Path) -> None:
    words = ("attack", model, pictures, "--images", 9, "--queries", 5, "--longer", 3, "--surrogate", model)
    code, out, err = run(*words, "--device", "cpu")
    assert code == 0, err
    for said in (
        "at most 8/255 (epsilon)",
        "none: as they are",
        "apgd-dlr",
        "square-5",
        "pgd-3",
        "transfer",
        "(robust accuracy)",
    ):
        assert said in " ".join(out.split())
    for said in ("huge radius", "more steps", "black box", "passed"):
        assert said in out


def test_a_strip_shows_the_clean_and_the_perturbed_picture_and_what_was_added() -> None:
    clean = torch.tensor([[[0.2, 0.4], [0.6, 1.0]]])
    perturbed = torch.tensor([[[0.3, 0.3], [0.6, 0.95]]])
    found = strip(clean, perturbed, 0.1)
    assert found.shape == (192, 576, 3)
    corners = found[::96, ::96, 0][:2].astype(np.float64) / 255
    expected = [[0.2, 0.4, 0.3, 0.3, 1.0, 0.0], [0.6, 1.0, 0.6, 0.95, 0.5, 0.25]]
    assert np.allclose(corners, expected, atol=0.003)


def test_radii_are_numbers_or_fractions(run: Any, model: Path, pictures: Path) -> None:
    assert parse_radius("8/255") == 8 / 255
    assert parse_radius(" 0.3 ") == 0.3
    for wrong in ("eight", "8/0", "8", "0", "-1/255"):
        with pytest.raises(UsageError):
            parse_radius(wrong)
    code, _, err = run("attack", model, pictures, "--epsilon", "8")
    assert code == 2
    assert "divide by 255" in err
