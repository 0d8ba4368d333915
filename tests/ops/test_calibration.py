import numpy as np
import torch
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, log_softmax

from labelwise.metrics import expected_calibration_error
from labelwise.ops.calibration import fit_platt, fit_temperature


def problem(n: int = 800, k: int = 5, sharpness: float = 3.0, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores that are over-confident by a known factor."""
    made = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k, generator=made) * 1.5
    targets = torch.multinomial(logits.softmax(1), 1, generator=made)[:, 0]
    return logits * sharpness, targets


def test_temperature_recovers_the_factor_and_scipy() -> None:
    scores, targets = problem(n=20_000)
    found = fit_temperature(scores, targets)
    assert abs(found - 3.0) < 0.15

    def loss(t: float) -> float:
        logs = log_softmax(scores.numpy() / t, axis=1)
        return float(-logs[np.arange(len(targets)), targets.numpy()].mean())

    assert abs(minimize_scalar(loss, bounds=(0.1, 20), method="bounded").x - found) < 0.02


def test_temperature_lowers_the_calibration_error() -> None:
    scores, targets = problem()
    t = fit_temperature(scores, targets)
    before, after = scores.softmax(1).max(1), (scores / t).softmax(1).max(1)
    assert expected_calibration_error(after.values, after.indices == targets) < 0.5 * expected_calibration_error(
        before.values, before.indices == targets
    )


def test_platt_equals_scipy() -> None:
    scores, targets = problem(n=500)
    scale, offset = fit_platt(scores, targets)
    x, truth = scores.numpy().ravel(), np.eye(5)[targets.numpy()].ravel()
    soft = np.where(truth > 0, (truth.sum() + 1) / (truth.sum() + 2), 1 / ((1 - truth).sum() + 2))

    def loss(p: np.ndarray) -> float:
        q = np.clip(expit(x * p[0] + p[1]), 1e-12, 1 - 1e-12)
        return float(-(soft * np.log(q) + (1 - soft) * np.log(1 - q)).mean())

    reference = minimize(loss, np.array([1.0, 0.0]), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-12})
    assert abs(reference.x[0] - scale) < 1e-3
    assert abs(reference.x[1] - offset) < 1e-2


def test_perfect_separation_stays_finite() -> None:
    targets = torch.arange(5).repeat(20)
    scores = torch.nn.functional.one_hot(targets, 5) * 200.0 - 100
    scale, offset = fit_platt(scores, targets)
    assert 0 < scale < 10
    assert abs(offset) < 100
    assert 0.01 < fit_temperature(scores, targets) < 1000


def test_minus_distances_get_probabilities_above_one_half() -> None:
    """Scores that are never positive, such as minus distances, still give a yes."""
    targets = torch.arange(4).repeat(50)
    scores = -5.0 + 3.0 * torch.nn.functional.one_hot(targets, 4) + 0.3 * torch.randn(200, 4)
    scale, offset = fit_platt(scores, targets)
    right = torch.sigmoid(scores * scale + offset).gather(1, targets[:, None])
    assert float(right.mean()) > 0.9
