"""Beliefs about means of labels: drawn as without the label itself, the same for labels fitted and taught."""

from math import inf

import pytest
import torch
from torch import Tensor

from labelwise.methods.discriminant import beliefs as beliefs_module
from labelwise.methods.discriminant.beliefs import (
    Spread,
    as_of_all,
    expected_means,
    label_beliefs,
    label_spread,
    narrowing,
    taken_off,
)
from labelwise.methods.discriminant.leave_one_out import Sample, left_out_distances, left_out_products
from labelwise.methods.discriminant.whitening import fit_whitening


def drawn(seed: int, counts: list[int], d: int, noise: float = 1.0) -> tuple[Tensor, Tensor]:
    """Rows around means of labels, that spread around zero."""
    rng = torch.Generator().manual_seed(seed)
    targets = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    means = torch.randn(len(counts), d, generator=rng, dtype=torch.float64)
    return means[targets] + noise * torch.randn(len(targets), d, generator=rng, dtype=torch.float64), targets


def dense(spread: Spread) -> Tensor:
    """B as a matrix, the slow way."""
    d = spread.axes.shape[1]
    inside = spread.axes.T @ spread.axes
    return spread.axes.T @ torch.diag(spread.values) @ spread.axes + spread.other * (
        torch.eye(d, dtype=inside.dtype) - inside
    )


@pytest.mark.parametrize("d", [4, 12])
def test_a_label_is_drawn_by_the_spread_without_it(d: int) -> None:
    rows, targets = drawn(0, [1, 2, 5, 9, 3, 3], d)
    sample = Sample.of(rows, targets, 6)
    beliefs = label_beliefs(sample, float(d))
    size = dense(beliefs.spread).trace()
    spread, parts = label_spread(sample.means, sample.weights, float(d), size)
    for label in range(6):
        noise = spread.noise / sample.weights[label] * torch.eye(d, dtype=torch.float64)
        others = dense(spread) - torch.outer(parts[label], parts[label])
        share = others @ torch.linalg.inv(others + noise)
        torch.testing.assert_close(beliefs.means[label], share @ sample.means[label], rtol=1e-8, atol=1e-8)
        errors = taken_off(sample.weights[label]) * (share @ noise).trace()
        torch.testing.assert_close(beliefs.excess[label], errors, rtol=1e-8, atol=1e-8)
    first = targets == 2
    rest, excess = spread.believed(sample.rest[first], sample.rest_weights[first], parts[targets[first]])
    torch.testing.assert_close(beliefs.rest[first], rest)
    torch.testing.assert_close(beliefs.rest_excess[first], excess)


def test_labels_of_one_picture_hardly_move_the_spread() -> None:
    rows, targets = drawn(1, [40] * 12 + [1] * 6, 20, noise=3.0)
    sample, noise = Sample.of(rows, targets, 18), 9.0 * 20
    many = Sample.of(rows[targets < 12], targets[targets < 12], 12)
    size, alone = (float(dense(label_beliefs(each, noise).spread).trace()) for each in (sample, many))
    assert alone == pytest.approx(20, rel=0.4)  # means spread with variance 1 in 20 directions
    assert size == pytest.approx(alone, rel=0.15)


def test_nothing_known_is_what_was_expected() -> None:
    rows, targets = drawn(2, [5, 5, 0, 5], 6)
    expected = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    beliefs = label_beliefs(Sample.of(rows, targets, 4), 6.0, expected)
    torch.testing.assert_close(beliefs.means[2], expected[2], rtol=1e-4, atol=1e-4)
    told = dense(beliefs.spread).trace() * taken_off(torch.zeros(1, dtype=torch.float64))[0]
    torch.testing.assert_close(beliefs.excess[2], told, rtol=1e-4, atol=1e-4)


def test_distances_to_own_points_are_those_of_the_table() -> None:
    rows, targets = drawn(3, [4, 5, 6], 5)
    groups = torch.tensor([0, 0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 8, 8, 9, 10])
    sample = Sample.of(rows / 4, targets, 3, groups)
    table, away = left_out_distances(sample, sample.means, sample.rest), sample.rows - sample.rest
    torch.testing.assert_close(left_out_products(sample, away, away), table.gather(1, targets[:, None])[:, 0])


@pytest.mark.parametrize(("many", "few"), [(20, 1), (20, 2), (20, 5), (100, 1), (3, 1)])
def test_fitted_with_many_pictures_few_are_believed_as_if_taught(many: int, few: int) -> None:
    """The whitening, its sharpness and the beliefs of labels fitted together are near to those of labels taught afterwards."""
    rows, targets = drawn(4, [many] * 10 + [few] * 3, 30, noise=3.0)
    old = targets < 10
    before, after = fit_whitening(rows[old], targets[old], 10), fit_whitening(rows, targets, 13)
    spread = label_beliefs(Sample.of(before(rows[old]), targets[old], 10), before.noise).spread
    taught = Sample.of(before(rows[~old]), targets[~old] - 10, 3)
    means, excess = spread.believed(taught.means, taught.weights)
    beliefs = label_beliefs(Sample.of(after(rows), targets, 13), after.noise)
    per = after.noise / before.noise  # units of the two whitenings
    size, wanted = beliefs.means[10:].square().sum() / per, means.square().sum()
    assert float(size / wanted) == pytest.approx(1, rel=0.5)
    assert float((beliefs.excess[10:].sum() / per) / excess.sum()) == pytest.approx(1, rel=0.5)


def test_single_precision_chooses_and_whitens_as_double_does() -> None:
    rows, targets = drawn(5, [12] * 8, 20, noise=2.0)
    exact, quick = (fit_whitening(x, targets, 8) for x in (rows, rows.float()))
    assert quick.ridge == exact.ridge
    assert quick.noise == pytest.approx(exact.noise, rel=1e-4)
    assert quick.sharpness == pytest.approx(exact.sharpness, rel=1e-3)
    torch.testing.assert_close(quick.root.double(), exact.root, rtol=1e-4, atol=1e-4)


def test_one_picture_a_label_is_the_surer_the_less_alike_and_the_more_labels() -> None:
    rows, _ = drawn(6, [1] * 20, 30)
    near = fit_whitening(rows + 3, torch.arange(20), 20)
    assert near.noise == 0
    assert near.sharpness < fit_whitening(rows, torch.arange(20), 20).sharpness
    assert fit_whitening(rows[:5], torch.arange(5), 5).sharpness < fit_whitening(rows, torch.arange(20), 20).sharpness


def test_many_described_labels_need_no_table_of_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = torch.Generator().manual_seed(0)
    vectors, means = torch.randn(60, 5, generator=drawn).double(), torch.randn(60, 7, generator=drawn).double()
    weights, expected = expected_means(vectors, means)
    monkeypatch.setattr(beliefs_module, "MANY", 10)
    for one, other in zip(expected_means(vectors, means), (weights, expected), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_a_label_left_out_is_believed_like_one_of_all_its_rows() -> None:
    """With as many fresh rows in place of those that are left, distances are the same on average."""
    d, n = 40, 3
    rows, targets = drawn(5, [n] * 300, d, noise=2.0)
    sample = Sample.of(rows, targets, 300)
    beliefs = label_beliefs(sample, 4.0 * d, prior=inf)
    means, excess = as_of_all(sample, beliefs)
    fresh, _ = drawn(5, [n] * 300, d, noise=0.0)  # the means of labels
    new = fresh + 2.0 * torch.randn(fresh.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    # how much nearer than the mean of all labels
    told = rows.square().sum(1) - (rows - means).square().sum(1) + excess
    true = new.square().sum(1) - (new - beliefs.means[targets]).square().sum(1) + beliefs.excess[targets]
    cautious = rows.square().sum(1) - (rows - beliefs.rest).square().sum(1) + beliefs.rest_excess
    assert float(told.mean()) == pytest.approx(float(true.mean()), rel=0.08)
    assert float(cautious.mean()) < 0.9 * float(true.mean())
    ratio = narrowing(sample, beliefs)
    assert bool(((ratio > 0.8) & (ratio < 1)).all())
    assert float(narrowing(Sample.of(*drawn(5, [40] * 10, d), 10), beliefs).mean()) > 0.99
