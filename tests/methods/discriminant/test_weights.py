"""A row of weight w counts as w copies of it that are left out together."""

import numpy as np
import pytest

from labelwise.core.platt import fit_temperature
from labelwise.images.describe.labels import Labels
from labelwise.methods.discriminant.fit import fit_discriminant
from labelwise.methods.discriminant.leave_one_out import TrainingRows, leave_out_distances
from labelwise.methods.discriminant.whitening import fit_whitening


def rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draws = np.random.default_rng(seed)
    targets = np.arange(24) % 3
    points = draws.normal(size=(24, 5)) + 2 * np.eye(3, 5)[targets]
    return points, targets, draws.integers(1, 4, 24).astype(np.float64)


def test_a_weight_counts_as_copies_in_one_group() -> None:
    points, targets, weights = rows()
    again = np.repeat(np.arange(24), weights.astype(int))
    whitening = fit_whitening(points, targets, 3, row_weights=weights)
    copied = fit_whitening(points[again], targets[again], 3, again)
    assert whitening.ridge == copied.ridge
    assert whitening.sharpness == pytest.approx(copied.sharpness)
    np.testing.assert_allclose(whitening.root, copied.root, rtol=1e-9, atol=1e-12)
    one = TrainingRows.of(whitening(points), targets, 3, row_weights=weights)
    many = TrainingRows.of(whitening(points[again]), targets[again], 3, again)
    np.testing.assert_allclose(one.counts, many.counts)
    distances = leave_out_distances(one, one.means, one.other_means)
    np.testing.assert_allclose(distances[again], leave_out_distances(many, many.means, many.other_means), atol=1e-9)


def test_weights_of_one_change_nothing_and_large_ones_move_a_label() -> None:
    points, targets, _ = rows()
    labels, x = Labels(names=("a", "b", "c")), points.astype(np.float32)
    plain = fit_discriminant(x, targets, labels).head.rows
    assert np.array_equal(plain, fit_discriminant(x, targets, labels, weights=np.ones(24)).head.rows)
    heavy = np.where(np.arange(24) == 0, 30.0, 1.0)
    moved = fit_discriminant(x, targets, labels, weights=heavy).head
    assert moved.score(moved.embed(x[:1]), moved.rows).argmax() == 0
    assert not np.allclose(plain, moved.rows)


def test_the_temperature_of_weighted_scores_is_that_of_copies() -> None:
    draws = np.random.default_rng(1)
    targets = draws.integers(0, 4, 30)
    scores = draws.normal(size=(30, 4)) + np.eye(4)[targets]
    weights = draws.integers(1, 4, 30)
    copied = fit_temperature(scores.repeat(weights, 0), targets.repeat(weights))
    assert fit_temperature(scores, targets, weights) == pytest.approx(copied, rel=1e-9)
