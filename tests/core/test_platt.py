from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, log_softmax, softmax

from labelwise.core import platt as calibration
from labelwise.core.metrics import expected_calibration_error
from labelwise.core.platt import fit_platt, fit_platt_each, fit_temperature

Array = NDArray[Any]


def problem(n: int = 800, k: int = 5, sharpness: float = 3.0, seed: int = 0) -> tuple[Array, Array]:
    """Scores that are over-confident by a known factor."""
    random = np.random.default_rng(seed)
    logits = random.standard_normal((n, k)).astype(np.float32) * np.float32(1.5)
    targets = (softmax(logits, 1).cumsum(1) < random.random((n, 1))).sum(1).clip(0, k - 1)
    return logits * np.float32(sharpness), targets


def test_temperature_recovers_the_factor_and_scipy() -> None:
    scores, targets = problem(n=20_000)
    found = fit_temperature(scores, targets)
    assert abs(found - 3.0) < 0.15

    def loss(t: float) -> float:
        logs = log_softmax(scores / t, axis=1)
        return float(-logs[np.arange(len(targets)), targets].mean())

    assert abs(minimize_scalar(loss, bounds=(0.1, 20), method="bounded").x - found) < 0.02


def test_temperature_lowers_the_calibration_error() -> None:
    scores, targets = problem()
    t = fit_temperature(scores, targets)
    right = scores.argmax(1) == targets
    before, after = (expected_calibration_error(softmax(scores / by, 1).max(1), right) for by in (1, t))
    assert after < 0.5 * before


def test_platt_equals_scipy() -> None:
    scores, targets = problem(n=500)
    scale, offset = fit_platt(scores, targets)
    x, truth = scores.ravel(), np.eye(5)[targets].ravel()
    wrong = np.eye(5)[np.where(np.eye(5)[targets] > 0, -np.inf, scores).argmax(1)].ravel()
    soft = np.where(truth > 0, 501 / 502, wrong / 502)  # one yes among the noes, on the best wrong label of each image

    def loss(p: np.ndarray) -> float:
        q = np.clip(expit(x * p[0] + p[1]), 1e-12, 1 - 1e-12)
        return float(-(soft * np.log(q) + (1 - soft) * np.log(1 - q)).mean())

    reference = minimize(loss, np.array([1.0, 0.0]), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-12})
    assert abs(reference.x[0] - scale) < 1e-3
    assert abs(reference.x[1] - offset) < 1e-2


def test_both_ways_to_fit_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for scores, targets in (problem(n=300), problem(n=40, k=2, sharpness=0.1), problem(n=50, k=30, sharpness=20.0)):
        quick = fit_platt(scores, targets)
        with monkeypatch.context() as patch:
            patch.setattr(calibration, "_newton", lambda *_: None)
            assert fit_platt(scores, targets) == pytest.approx(quick, rel=1e-4, abs=1e-4)


def test_scores_that_say_nothing_or_the_contrary_leave_the_share_of_yes() -> None:
    scores, targets = problem(n=200)
    scale, offset = fit_platt(np.ones_like(scores), targets)
    assert abs(expit(scale + offset) - 0.2) < 0.01
    scores[np.arange(200), targets] -= 50  # the true label is always the last
    scale, offset = fit_platt(scores, targets)
    assert 0 < scale < 1e-5
    assert abs(expit(offset) - 0.2) < 0.01


def test_perfect_separation_stays_finite() -> None:
    targets = np.tile(np.arange(5), 20)
    scores = np.eye(5)[targets] * 200.0 - 100
    scale, offset = fit_platt(scores, targets)
    assert 0 < scale < 10
    assert abs(offset) < 100
    assert 0.01 < fit_temperature(scores, targets) < 1000


def test_minus_distances_get_probabilities_above_one_half() -> None:
    """Scores that are never positive, such as minus distances, still give a yes."""
    targets = np.tile(np.arange(4), 50)
    scores = -5.0 + 3.0 * np.eye(4)[targets] + 0.3 * np.random.default_rng(0).standard_normal((200, 4))
    scale, offset = fit_platt(scores, targets)
    right = expit(scores * scale + offset)[np.arange(200), targets]
    assert float(right.mean()) > 0.9


def yes_and_no(n: int, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """Scores of four labels, each with a scale and an offset of its own, and what is true; the last label is rare."""
    random = np.random.default_rng(seed)
    scale, offset = np.array([0.5, 1.0, 2.0, 1.0]), np.array([0.5, -1.0, 0.0, -6.0])
    scores = random.standard_normal((n, 4)).astype(np.float32) * 2
    return scores, random.random((n, 4)) < expit(scores * scale + offset), scale, offset


def test_each_label_gets_its_own_scale_and_offset() -> None:
    scores, truths, scale, offset = yes_and_no(40_000)
    found = fit_platt_each(scores, truths)
    np.testing.assert_allclose(found[0], scale, rtol=0.1, atol=0.05)
    np.testing.assert_allclose(found[1], offset, rtol=0.1, atol=0.05)


def test_each_label_equals_scipy_with_the_prior() -> None:
    scores, truths, _, _ = yes_and_no(150)
    common = fit_platt(scores, truths)
    found = fit_platt_each(scores, truths)
    for label in range(4):
        x, truth = scores[:, label].astype(np.float64) * common[0] + common[1], truths[:, label]

        def loss(p: np.ndarray, x: np.ndarray = x, truth: np.ndarray = truth) -> float:
            logits = x * np.exp(p[0]) + p[1]
            return float(np.logaddexp(0, np.where(truth, -logits, logits)).sum() + 0.5 * (p**2).sum())

        best = minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12}).x
        assert abs(common[0] * np.exp(best[0]) - float(found[0][label])) < 1e-3
        assert abs(common[1] * np.exp(best[0]) + best[1] - float(found[1][label])) < 1e-3


def test_a_label_that_no_held_out_image_has_stays_near_the_others() -> None:
    scores, truths, _, _ = yes_and_no(200)
    truths[:, 3] = False
    scale, offset = fit_platt_each(scores, truths)
    assert bool((scale > 0).all())
    assert float(scale[3]) < 10 * float(scale[:3].mean())
    assert -10 < float(offset[3]) < float(offset[:3].min())
    assert scale.dtype == scores.dtype


def test_calibration_of_each_label_lowers_the_error_on_new_scores() -> None:
    scores, truths, _, _ = yes_and_no(400, seed=1)
    scale, offset = fit_platt_each(scores, truths)
    new, right, _, _ = yes_and_no(20_000, seed=2)
    errors = [
        expected_calibration_error(expit(given).ravel(), right.ravel())
        for given in (new, new * fit_platt(scores, truths)[0] + fit_platt(scores, truths)[1], new * scale + offset)
    ]
    assert errors[2] < 0.5 * errors[0]
    one = [expected_calibration_error(expit(given)[:, 0], right[:, 0]) for given in (new, new * scale + offset)]
    assert one[1] < 0.5 * one[0]


def hostile() -> list[tuple[str, Array, Array]]:
    """Scores and targets on which a fit may fail: huge, tiny, tied, separated, of one label, of two images."""
    random, cases = np.random.default_rng(0), []
    for n, k, size in ((2, 2, 1.0), (2, 3, 1e6), (50, 1, 1.0), (60, 5, 1e-8), (60, 5, 1e30), (40, 3_000, 1.0)):
        targets = random.integers(k, size=n)
        scores = random.standard_normal((n, k)) * size
        for name, more in (("plain", 0), ("separated", 100 * size), ("contrary", -100 * size)):
            cases.append((f"{name} {n} x {k}, {size:g}", scores + more * np.eye(k)[targets], targets))
        cases.append((f"tied {n} x {k}, {size:g}", np.round(scores / size) * size, targets))
    return [*cases, ("constant", np.ones((50, 5)), targets[:50] % 5), ("one label", scores[:, :4], targets * 0)]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("scores", "targets"), [pytest.param(*case[1:], id=case[0]) for case in hostile()])
def test_hostile_scores_have_finite_maps(scores: Array, targets: Array) -> None:
    scores, targets = scores[: len(targets)], targets[: len(scores)]
    scale, offset = fit_platt(scores, targets)
    assert scale > 0
    assert np.isfinite([scale, offset]).all()
    temperature = fit_temperature(scores, targets)
    assert 0 < temperature < np.inf
    each = fit_platt_each(scores, targets[:, None] == np.arange(scores.shape[1]))
    assert np.isfinite(each).all()
    assert (each[0] > 0).all()
