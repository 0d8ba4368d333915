"""Beliefs about means of labels: drawn as without the label itself, the same for labels fitted and taught."""

from math import inf

import numpy as np
import pytest
from numpy.testing import assert_allclose

from labelwise.methods.discriminant import beliefs as beliefs_module
from labelwise.methods.discriminant.beliefs import (
    MeanPrior,
    error_share,
    fit_prior,
    label_beliefs,
    margin_ratio,
    means_at_full_size,
    regress_means,
)
from labelwise.methods.discriminant.leave_one_out import (
    Floats,
    Ints,
    TrainingRows,
    leave_out_distances,
    leave_out_products,
)
from labelwise.methods.discriminant.whitening import fit_whitening


def drawn(seed: int, counts: list[int], d: int, noise: float = 1.0) -> tuple[Floats, Ints]:
    """Rows around means of labels, that vary around zero."""
    rng = np.random.default_rng(seed)
    targets = np.repeat(np.arange(len(counts)), counts)
    means = rng.normal(size=(len(counts), d))
    return means[targets] + noise * rng.normal(size=(len(targets), d)), targets


def dense(prior: MeanPrior) -> Floats:
    """B as a matrix, the slow way."""
    inside = prior.axes.T @ prior.axes
    rest = prior.other_variance * (np.eye(len(inside)) - inside)
    return np.asarray(prior.axes.T @ np.diag(prior.variances) @ prior.axes + rest)


@pytest.mark.parametrize("d", [4, 12])
def test_a_label_is_drawn_by_the_prior_without_it(d: int) -> None:
    rows, targets = drawn(0, [1, 2, 5, 9, 3, 3], d)
    sample = TrainingRows.of(rows, targets, 6)
    beliefs = label_beliefs(sample, float(d))
    prior, parts = fit_prior(sample.means, sample.counts, float(d), float(dense(beliefs.prior).trace()))
    for label in range(6):
        noise = prior.noise_variance / sample.counts[label] * np.eye(d)
        others = dense(prior) - np.outer(parts[label], parts[label])
        share = others @ np.linalg.inv(others + noise)
        assert_allclose(beliefs.means[label], share @ sample.means[label], rtol=1e-8, atol=1e-8)
        errors = error_share(sample.counts[label]) * (share @ noise).trace()
        assert_allclose(beliefs.excess[label], errors, rtol=1e-8, atol=1e-8)
    own = targets == 2
    means, excess = prior.posterior_mean(sample.other_means[own], sample.other_counts[own], parts[targets[own]])
    assert_allclose(beliefs.other_means[own], means)
    assert_allclose(beliefs.other_excess[own], excess)


def test_labels_of_one_image_hardly_move_the_prior() -> None:
    rows, targets = drawn(1, [40] * 12 + [1] * 6, 20, noise=3.0)
    sample, noise = TrainingRows.of(rows, targets, 18), 9.0 * 20
    many = TrainingRows.of(rows[targets < 12], targets[targets < 12], 12)
    size, alone = (float(dense(label_beliefs(each, noise).prior).trace()) for each in (sample, many))
    assert alone == pytest.approx(20, rel=0.4)  # means vary with variance 1 in 20 directions
    assert size == pytest.approx(alone, rel=0.15)


def test_the_belief_in_a_label_without_images_is_what_was_expected() -> None:
    rows, targets = drawn(2, [5, 5, 0, 5], 6)
    expected = np.random.default_rng(0).normal(size=(4, 6))
    beliefs = label_beliefs(TrainingRows.of(rows, targets, 4), 6.0, expected)
    assert_allclose(beliefs.means[2], expected[2], rtol=1e-4, atol=1e-4)
    assert_allclose(beliefs.excess[2], dense(beliefs.prior).trace() / 3, rtol=1e-4, atol=1e-4)


def test_distances_to_own_points_are_those_of_the_table() -> None:
    rows, targets = drawn(3, [4, 5, 6], 5)
    groups = np.array([0, 0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 8, 8, 9, 10])
    sample = TrainingRows.of(rows / 4, targets, 3, groups)
    table, away = leave_out_distances(sample, sample.means, sample.other_means), sample.rows - sample.other_means
    assert_allclose(leave_out_products(sample, away, away), table[np.arange(15), targets])


@pytest.mark.parametrize(("many", "few"), [(20, 1), (20, 2), (20, 5), (100, 1), (3, 1)])
def test_labels_of_few_images_fitted_with_many_are_as_if_taught(many: int, few: int) -> None:
    """The whitening, its sharpness and the beliefs of labels fitted together are near to those of labels taught afterwards."""
    rows, targets = drawn(4, [many] * 10 + [few] * 3, 30, noise=3.0)
    old = targets < 10
    before, after = fit_whitening(rows[old], targets[old], 10), fit_whitening(rows, targets, 13)
    prior = label_beliefs(TrainingRows.of(before(rows[old]), targets[old], 10), before.noise).prior
    taught = TrainingRows.of(before(rows[~old]), targets[~old] - 10, 3)
    means, excess = prior.posterior_mean(taught.means, taught.counts)
    beliefs = label_beliefs(TrainingRows.of(after(rows), targets, 13), after.noise)
    unit = after.noise / before.noise  # of the two whitenings
    size, wanted = (beliefs.means[10:] ** 2).sum() / unit, (means**2).sum()
    assert float(size / wanted) == pytest.approx(1, rel=0.5)
    assert float((beliefs.excess[10:].sum() / unit) / excess.sum()) == pytest.approx(1, rel=0.5)


def test_many_described_labels_need_no_table_of_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    vectors, means = rng.normal(size=(60, 5)), rng.normal(size=(60, 7))
    whole = regress_means(vectors, means)
    monkeypatch.setattr(beliefs_module, "MANY_LABELS", 10)
    for one, other in zip(regress_means(vectors, means), whole, strict=True):
        assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_expected_means_are_those_of_a_regression_without_the_label() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(20, 4))
    means = vectors @ rng.normal(size=(4, 3)) + 0.3 * rng.normal(size=(20, 3))
    weights, expected = regress_means(vectors, means)
    gram = vectors.T @ vectors
    penalties = [penalty * gram.trace() / 20 for penalty in beliefs_module.PENALTIES]
    ridge = min(
        penalties, key=lambda each: np.abs(np.linalg.solve(gram + each * np.eye(4), vectors.T @ means) - weights).max()
    )
    assert_allclose(np.linalg.solve(gram + ridge * np.eye(4), vectors.T @ means), weights, rtol=1e-8)
    for label in range(20):
        rest = np.arange(20) != label
        slope = np.linalg.solve(vectors[rest].T @ vectors[rest] + ridge * np.eye(4), vectors[rest].T @ means[rest])
        assert_allclose(expected[label], vectors[label] @ slope, rtol=1e-8)


def test_a_label_left_out_is_as_certain_as_one_of_all_its_rows() -> None:
    """With as many fresh rows in place of those that are left, distances are the same on average."""
    d, n = 40, 3
    rows, targets = drawn(5, [n] * 300, d, noise=2.0)
    sample = TrainingRows.of(rows, targets, 300)
    beliefs = label_beliefs(sample, 4.0 * d, prior_labels=inf)
    means, excess = means_at_full_size(sample, beliefs)
    fresh, _ = drawn(5, [n] * 300, d, noise=0.0)  # the means of labels
    new = fresh + 2.0 * np.random.default_rng(9).normal(size=fresh.shape)

    def nearer(x: Floats, points: Floats, off: Floats) -> Floats:
        """How much nearer than the mean of all labels."""
        return np.asarray((x**2).sum(1) - ((x - points) ** 2).sum(1) + off)

    stated = nearer(rows, means, excess).mean()
    true = nearer(new, beliefs.means[targets], beliefs.excess[targets]).mean()
    cautious = nearer(rows, beliefs.other_means, beliefs.other_excess).mean()
    assert stated == pytest.approx(true, rel=0.08)
    assert cautious < 0.9 * true
    ratio = margin_ratio(sample, beliefs)
    assert ((ratio > 0.8) & (ratio < 1)).all()
    assert margin_ratio(TrainingRows.of(*drawn(5, [40] * 10, d), 10), beliefs).mean() > 0.99
