"""The whitening, its ridge and its sharpness."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from labelwise.methods.discriminant import whitening
from labelwise.methods.discriminant.leave_one_out import Floats, Ints
from labelwise.methods.discriminant.whitening import draw_groups, fit_whitening


def drawn(seed: int, counts: list[int], d: int, noise: float = 1.0) -> tuple[Floats, Ints]:
    rng = np.random.default_rng(seed)
    targets = np.repeat(np.arange(len(counts)), counts)
    return rng.normal(size=(len(counts), d))[targets] + noise * rng.normal(size=(len(targets), d)), targets


@pytest.mark.parametrize(("n", "d"), [(12, 20), (12, 200), (3, 5)])
def test_the_whitening_is_the_root_of_the_inverse_covariance(n: int, d: int) -> None:
    rows, targets = drawn(0, [n] * 4, d, noise=2.0)
    found = fit_whitening(rows, targets, 4)
    residuals = rows - np.stack([rows[targets == c].mean(0) for c in range(4)])[targets]
    within = residuals.T @ residuals / (len(rows) - 4)
    slow = np.linalg.inv(within + found.ridge * within.trace() / d * np.eye(d))
    assert_allclose(found.root @ found.root, slow, rtol=1e-6, atol=1e-6 * np.abs(slow).max())


def test_single_precision_chooses_and_whitens_as_double_does() -> None:
    rows, targets = drawn(5, [12] * 8, 20, noise=2.0)
    exact, quick = (fit_whitening(x, targets, 8) for x in (rows, rows.astype(np.float32)))
    assert quick.ridge == exact.ridge
    assert quick.noise == pytest.approx(exact.noise, rel=1e-4)
    assert quick.sharpness == pytest.approx(exact.sharpness, rel=1e-3)
    assert_allclose(quick.root, exact.root, rtol=1e-4, atol=1e-4)


def test_with_one_image_a_label_scores_are_surer_the_less_alike_images_and_the_more_labels() -> None:
    rows, _ = drawn(6, [1] * 20, 30)
    near, far = (fit_whitening(x, np.arange(20), 20) for x in (rows + 3, rows))
    assert near.noise == 0
    assert near.sharpness < far.sharpness
    assert fit_whitening(rows[:5], np.arange(5), 5).sharpness < far.sharpness


@pytest.mark.parametrize(("stretch", "low"), [(30.0, True), (1.0, False)])
def test_the_ridge_is_the_best_of_all(stretch: float, low: bool) -> None:
    """Where images vary unlike in a few directions a small ridge is right, where they vary alike a large one."""
    rng = np.random.default_rng(3)
    targets = np.repeat(np.arange(8), 30)
    rows = (2.0 * rng.normal(size=(8, 16)))[targets] + rng.normal(size=(240, 16)) * np.repeat([stretch, 1.0], [4, 12])
    trials = {r: ridge_among(rows, targets, (1.0, r)) for r in whitening.RIDGES}
    chosen = fit_whitening(rows, targets, 8).ridge
    assert chosen in {r for r, ridge in trials.items() if ridge == r}  # better than 1, or 1 itself
    assert (chosen < 1) == low


def ridge_among(rows: Floats, targets: Ints, ridges: tuple[float, ...]) -> float:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whitening, "RIDGES", tuple(sorted(set(ridges))))
        return fit_whitening(rows, targets, 8).ridge


def test_images_that_are_all_the_same_have_a_whitening() -> None:
    found = fit_whitening(np.ones((12, 6)), np.arange(12) % 3, 3)
    assert np.isfinite(found.root).all()
    assert np.isfinite([found.noise, found.sharpness]).all()


def test_whole_groups_are_drawn() -> None:
    groups = np.random.default_rng(0).integers(60, size=300)
    rows = draw_groups(groups, 100)
    assert 85 < len(rows) <= 100
    assert not set(groups[rows]) & set(np.delete(groups, rows))
    assert (draw_groups(groups, 300) == np.arange(300)).all()
