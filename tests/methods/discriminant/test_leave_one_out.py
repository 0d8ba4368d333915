"""Leaving pictures out in closed form is what refitting without them gives."""

import pytest
import torch
from torch import Tensor

from labelwise.methods.discriminant import leave_one_out as left_out
from labelwise.methods.discriminant.leave_one_out import Sample, left_out_cosines, left_out_distances
from labelwise.methods.discriminant.whitening import left_out_scores

K, D = 4, 6
RIDGE = 0.3


def drawn(seed: int, n: int = 30) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    targets = torch.cat([torch.arange(K).repeat(3), torch.randint(K, (n - 3 * K,), generator=rng)])
    centres = torch.randn(K, D, generator=rng, dtype=torch.float64)
    return centres[targets] + 0.5 * torch.randn(n, D, generator=rng, dtype=torch.float64), targets


def covariance(rows: Tensor, targets: Tensor, degrees: int) -> tuple[Tensor, Tensor]:
    """The means of labels and the covariance inside them with its ridge, the slow way."""
    means = torch.stack([rows[targets == c].mean(0) if (targets == c).any() else rows[0] * 0 for c in range(K)])
    inside = rows - means[targets]
    return means, inside.T @ inside / degrees + RIDGE * torch.eye(D)


def refitted(rows: Tensor, targets: Tensor, groups: Tensor) -> Tensor:
    """Distances of each row to the means of labels, all of it fitted again without the rows of its group."""
    degrees, table = len(rows) - K, torch.empty(len(rows), K, dtype=rows.dtype)
    for i in range(len(rows)):
        stay = groups != groups[i]
        means, within = covariance(rows[stay], targets[stay], degrees)
        away = rows[i] - means
        table[i] = (away @ torch.linalg.inv(within) * away).sum(1)
    return table


def closed(rows: Tensor, targets: Tensor, groups: Tensor | None) -> Tensor:
    """The same by the closed form."""
    _, within = covariance(rows, targets, len(rows) - K)
    values, axes = torch.linalg.eigh(within)
    sample = Sample.of(rows @ axes * values**-0.5, targets, K, groups)
    return left_out_distances(sample, sample.means, sample.rest)


@pytest.mark.parametrize("seed", range(3))
def test_one_left_out_is_a_refit_without_it(seed: int) -> None:
    rows, targets = drawn(seed)
    expected = refitted(rows, targets, torch.arange(len(rows)))
    torch.testing.assert_close(closed(rows, targets, None), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_a_group_left_out_is_a_refit_without_it(seed: int) -> None:
    rows, targets = drawn(seed)
    groups = torch.randint(18, (len(rows),), generator=torch.Generator().manual_seed(seed))  # some across labels
    kept = torch.tensor([[((targets == c) & (groups != g)).any() for c in range(K)] for g in groups.tolist()])
    assert kept.all()
    expected = refitted(rows, targets, groups)
    torch.testing.assert_close(closed(rows, targets, groups), expected, rtol=1e-8, atol=1e-8)


def test_a_label_that_is_one_group_has_nothing_left() -> None:
    rows, targets = drawn(0)
    groups = torch.where(targets == 2, 99, torch.arange(len(rows)))
    sample = Sample.of(rows, targets, K, groups)
    assert (sample.rest_weights[targets == 2] == 0).all()
    others = [c for c in range(K) if c != 2]
    expected = refitted(rows, targets, groups)[:, others]
    torch.testing.assert_close(closed(rows, targets, groups)[:, others], expected, rtol=1e-8, atol=1e-8)


def test_copies_make_a_mean_no_better() -> None:
    rows, targets = drawn(1)
    twice, both = rows.repeat(2, 1), targets.repeat(2)
    once = Sample.of(rows, targets, K)
    copied = Sample.of(twice, both, K, torch.arange(len(rows)).repeat(2))
    torch.testing.assert_close(copied.weights, once.weights)
    torch.testing.assert_close(copied.rest_weights[: len(rows)], once.rest_weights)
    torch.testing.assert_close(copied.rest[: len(rows)], once.rest)


def test_the_cosine_of_a_pair_is_that_of_a_refit_without_the_two() -> None:
    rows, targets = drawn(2)
    pairs = torch.tensor([[0, 4], [3, 17], [5, 6], [29, 1]])
    values, axes = torch.linalg.eigh(covariance(rows, targets, len(rows) - K)[1])
    cosines = left_out_cosines(Sample.of(rows @ axes * values**-0.5, targets, K), pairs)
    for cosine, pair in zip(cosines, pairs, strict=True):
        stay = torch.ones(len(rows), dtype=torch.bool).index_fill(0, pair, False)
        inverse = torch.linalg.inv(covariance(rows[stay], targets[stay], len(rows) - K)[1])
        table = rows[pair] @ inverse @ rows[pair].T
        torch.testing.assert_close(cosine, table[0, 1] / (table[0, 0] * table[1, 1]).sqrt(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_errors_of_means_are_those_of_a_refit_without_the_group(seed: int) -> None:
    rows, targets = drawn(seed)
    groups = torch.randint(18, (len(rows),), generator=torch.Generator().manual_seed(seed))  # some across labels
    sample, noise = Sample.of(rows, targets, K, groups), 0.7
    expected = torch.empty(len(rows), K, dtype=rows.dtype)
    for i in range(len(rows)):
        stay = groups != groups[i]
        expected[i] = 0.5 * noise / Sample.of(rows[stay], targets[stay], K, groups[stay]).weights
    nothing = torch.zeros(len(rows), K, dtype=rows.dtype)
    scores = left_out_scores(nothing, sample, noise / sample.weights, noise / sample.rest_weights)
    torch.testing.assert_close(scores, expected)


@pytest.mark.parametrize("seed", range(2))
def test_without_a_table_of_labels_by_labels(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, targets = drawn(seed)
    groups = torch.randint(18, (len(rows),), generator=torch.Generator().manual_seed(seed))
    whole = closed(rows, targets, groups)
    monkeypatch.setattr(left_out, "CHUNK", 3)  # blocks of a row, too
    torch.testing.assert_close(closed(rows, targets, groups), whole, rtol=1e-10, atol=1e-10)
