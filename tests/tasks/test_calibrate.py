"""Calibration on few images and on ordered labels: it must not make honest scores worse, and must still mend others."""

import pytest
import torch
from torch import Tensor

from labelwise.core.calibration import Calibration
from labelwise.core.metrics import expected_calibration_error
from labelwise.core.platt import fit_temperature
from labelwise.tasks.calibrate import fit_calibration

LEVELS = 5


def ordered(n: int, seed: int, sharpness: float = 1.0) -> tuple[Tensor, Tensor]:
    """Log-odds of ordered labels, honest where the sharpness is 1, and the truth."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, LEVELS, (n,), generator=generator)
    value = targets + 0.5 * torch.randn(n, generator=generator)
    return -sharpness * (value[:, None] - torch.arange(LEVELS)) ** 2 / (2 * 0.25), targets


def bare(**settings: bool) -> Calibration:
    exclusive = settings.get("exclusive", False)
    return Calibration.none(LEVELS, exclusive=exclusive, penalty="offset", device=torch.device("cpu"))


def error_of(calibration: Calibration, seed: int, sharpness: float = 1.0) -> float:
    raw, targets = ordered(3000, seed, sharpness)
    best, chosen = calibration.choice(calibration.log_odds(raw)).max(1)
    return expected_calibration_error(best, chosen == targets)


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
    targets = torch.arange(LEVELS).repeat(5)[:24]
    raw = -10.0 * (targets[:, None] - torch.arange(LEVELS)) ** 2
    sure = (raw / fit_temperature(raw, targets)).softmax(1).amax(1)
    assert float(sure.mean()) > 0.9


@pytest.mark.parametrize("exclusive", [True, False])
def test_scores_that_are_too_sure_are_mended(exclusive: bool) -> None:
    calibration, figures = fit_calibration(bare(exclusive=exclusive), *ordered(300, 0, sharpness=4.0))
    assert figures["applied"]["ece"]
    assert error_of(calibration, 7, 4.0) < 0.5 * error_of(bare(exclusive=exclusive), 7, 4.0)


def test_plain_scores_are_kept_where_nothing_helps() -> None:
    """Labels that have nothing to do with the scores, which say so: all are equally probable."""
    generator = torch.Generator().manual_seed(3)
    raw, targets = torch.zeros(40, LEVELS), torch.randint(0, LEVELS, (40,), generator=generator)
    calibration, figures = fit_calibration(bare(exclusive=True), raw, targets)
    assert figures["applied"] == {"ece": False, "answer_ece": False}
    assert torch.allclose(calibration.choice(calibration.log_odds(raw)), torch.full((40, LEVELS), 1 / LEVELS))
    assert figures["ece_after"] == figures["ece_before"]
