"""Calibration on few images and on ordered labels: it must not make honest scores worse, and must still mend others."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import softmax

from labelwise.core.calibration import Calibration
from labelwise.core.metrics import expected_calibration_error
from labelwise.core.platt import fit_temperature
from labelwise.tasks.calibrate import fit_calibration

LEVELS = 5


def ordered(n: int, seed: int, sharpness: float = 1.0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Log-odds of ordered labels, honest where the sharpness is 1, and the truth."""
    random = np.random.default_rng(seed)
    targets = random.integers(LEVELS, size=n)
    value = targets + 0.5 * random.standard_normal(n)
    return -sharpness * (value[:, None] - np.arange(LEVELS)) ** 2 / (2 * 0.25), targets


def bare(*, exclusive: bool) -> Calibration:
    return Calibration.none(LEVELS, exclusive=exclusive, penalty="offset")


def error_of(calibration: Calibration, seed: int, sharpness: float = 1.0) -> float:
    raw, targets = ordered(3000, seed, sharpness)
    choice = calibration.choice(calibration.log_odds(raw))
    return expected_calibration_error(choice.max(1), choice.argmax(1) == targets)


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_few_images_of_ordered_labels_do_not_spoil_honest_scores(exclusive: bool) -> None:
    errors = []
    for seed in range(6):
        calibration, figures = fit_calibration(bare(exclusive=exclusive), *ordered(24, seed))
        errors.append(error_of(calibration, 100 + seed))
        assert figures["ece_after"] <= figures["ece_before"] + 1e-9
    assert sum(errors) / 6 < 0.06  # 0.10 and more with a pseudo-count for labels that are far from right


def test_separable_images_keep_an_answer_sure() -> None:
    """Every image is right and the far end of the order is far: the temperature follows the nearest wrong label."""
    targets = np.tile(np.arange(LEVELS), 5)[:24]
    raw = -10.0 * (targets[:, None] - np.arange(LEVELS)) ** 2
    assert softmax(raw / fit_temperature(raw, targets), 1).max(1).mean() > 0.9


@pytest.mark.parametrize("exclusive", [True, False])
def test_scores_that_are_too_sure_are_mended(exclusive: bool) -> None:
    calibration, figures = fit_calibration(bare(exclusive=exclusive), *ordered(300, 0, sharpness=4.0))
    assert figures["applied"]["ece"]
    assert error_of(calibration, 7, 4.0) < 0.5 * error_of(bare(exclusive=exclusive), 7, 4.0)


def test_plain_scores_are_kept_where_nothing_helps() -> None:
    """Labels that have nothing to do with the scores, which say so: all are equally probable."""
    raw, targets = np.zeros((40, LEVELS)), np.random.default_rng(3).integers(LEVELS, size=40)
    calibration, figures = fit_calibration(bare(exclusive=True), raw, targets)
    assert figures["applied"] == {"ece": False, "answer_ece": False}
    np.testing.assert_allclose(calibration.choice(calibration.log_odds(raw)), 1 / LEVELS)
