"""Leaving images out in closed form is what refitting without them gives."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from labelwise.methods.discriminant import leave_one_out
from labelwise.methods.discriminant.leave_one_out import (
    Floats,
    Ints,
    TrainingRows,
    leave_out_cosines,
    leave_out_distances,
    leave_out_products,
    segment_sums,
)
from labelwise.methods.discriminant.whitening import leave_out_scores

K, D = 4, 6
RIDGE = 0.3


def drawn(seed: int, n: int = 30) -> tuple[Floats, Ints]:
    rng = np.random.default_rng(seed)
    targets = np.concatenate([np.tile(np.arange(K), 3), rng.integers(K, size=n - 3 * K)])
    return rng.normal(size=(K, D))[targets] + 0.5 * rng.normal(size=(n, D)), targets


def drawn_groups(seed: int, targets: Ints) -> Ints:
    """Groups, some of several labels, each of which leaves a row of each label."""
    groups = np.random.default_rng(100 + seed).integers(18, size=len(targets))
    assert all(((targets == c) & (groups != g)).any() for c in range(K) for g in groups)
    return groups


def covariance(rows: Floats, targets: Ints, degrees: int) -> tuple[Floats, Floats]:
    """The means of labels and the covariance inside them with its ridge, the slow way."""
    means = np.stack([rows[targets == c].mean(0) if (targets == c).any() else rows[0] * 0 for c in range(K)])
    residuals = rows - means[targets]
    return means, residuals.T @ residuals / degrees + RIDGE * np.eye(D)


def refitted(rows: Floats, targets: Ints, groups: Ints) -> Floats:
    """Distances of each row to the means of labels, all of it fitted again without the rows of its group."""
    degrees, table = len(rows) - K, np.empty((len(rows), K))
    for i in range(len(rows)):
        stay = groups != groups[i]
        means, within = covariance(rows[stay], targets[stay], degrees)
        away = rows[i] - means
        table[i] = (away @ np.linalg.inv(within) * away).sum(1)
    return table


def whitened(rows: Floats, targets: Ints) -> Floats:
    values, axes = np.linalg.eigh(covariance(rows, targets, len(rows) - K)[1])
    return np.asarray(rows @ axes * values**-0.5)


def closed(rows: Floats, targets: Ints, groups: Ints | None) -> Floats:
    """The same by the closed form."""
    sample = TrainingRows.of(whitened(rows, targets), targets, K, groups)
    return leave_out_distances(sample, sample.means, sample.other_means)


def near(one: Floats, other: Floats) -> None:
    assert_allclose(one, other, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_one_left_out_is_a_refit_without_it(seed: int) -> None:
    rows, targets = drawn(seed)
    near(closed(rows, targets, None), refitted(rows, targets, np.arange(len(rows))))


@pytest.mark.parametrize("seed", range(3))
def test_a_group_left_out_is_a_refit_without_it(seed: int) -> None:
    rows, targets = drawn(seed)
    groups = drawn_groups(seed, targets)
    near(closed(rows, targets, groups), refitted(rows, targets, groups))


def test_a_label_that_is_one_group_has_nothing_left() -> None:
    rows, targets = drawn(0)
    groups = np.where(targets == 2, 99, np.arange(len(rows)))
    sample = TrainingRows.of(rows, targets, K, groups)
    assert (sample.other_counts[targets == 2] == 0).all()
    others = [c for c in range(K) if c != 2]
    near(closed(rows, targets, groups)[:, others], refitted(rows, targets, groups)[:, others])


def test_groups_change_nothing_but_what_is_left_out() -> None:
    rows, targets = drawn(1)
    alone, grouped = TrainingRows.of(rows, targets, K), TrainingRows.of(rows, targets, K, drawn_groups(1, targets))
    near(grouped.means, alone.means)
    near(grouped.counts, alone.counts)
    near(grouped.covariance, alone.covariance)
    assert (grouped.other_counts < alone.other_counts).any()
    near(alone.regroup(grouped.groups).other_means, grouped.other_means)


def test_a_row_of_weight_two_is_two_rows() -> None:
    rows, targets = drawn(1)
    weights = np.where(np.arange(len(rows)) % 3 == 0, 2.0, 1.0)
    twice = np.repeat(np.arange(len(rows)), weights.astype(int))
    one = TrainingRows.of(rows, targets, K, None, weights)
    other = TrainingRows.of(rows[twice], targets[twice], K, twice)
    first = np.unique(twice, return_index=True)[1]
    near(one.means, other.means)
    near(one.counts, other.counts)
    near(one.covariance, other.covariance)
    near(one.other_means, other.other_means[first])
    near(one.other_counts, other.other_counts[first])
    tables = [leave_out_distances(each, each.means, each.other_means) for each in (one, other)]
    near(tables[0], tables[1][first])


def test_the_cosine_of_a_pair_is_that_of_a_refit_without_the_two() -> None:
    rows, targets = drawn(2)
    pairs = np.array([[0, 4], [3, 17], [5, 6], [29, 1]])
    cosines = leave_out_cosines(TrainingRows.of(whitened(rows, targets), targets, K), pairs)
    for cosine, pair in zip(cosines, pairs, strict=True):
        stay = ~np.isin(np.arange(len(rows)), pair)
        inverse = np.linalg.inv(covariance(rows[stay], targets[stay], len(rows) - K)[1])
        table = rows[pair] @ inverse @ rows[pair].T
        near(cosine, table[0, 1] / np.sqrt(table[0, 0] * table[1, 1]))


@pytest.mark.parametrize("seed", range(3))
def test_errors_of_means_are_those_of_a_refit_without_the_group(seed: int) -> None:
    rows, targets = drawn(seed)
    groups, noise = drawn_groups(seed, targets), 0.7
    sample = TrainingRows.of(rows, targets, K, groups)
    expected = np.empty((len(rows), K))
    for i in range(len(rows)):
        stay = groups != groups[i]
        expected[i] = 0.5 * noise / TrainingRows.of(rows[stay], targets[stay], K, groups[stay]).counts
    nothing = np.zeros((len(rows), K))
    near(leave_out_scores(nothing, sample, noise / sample.counts, noise / sample.other_counts), expected)
    alone = TrainingRows.of(rows, targets, K)
    scores = leave_out_scores(nothing, alone, noise / alone.counts, noise / alone.other_counts)
    own = np.arange(K) == targets[:, None]
    near(scores, 0.5 * noise * np.where(own, 1 / alone.other_counts[:, None], 1 / alone.counts))


@pytest.mark.parametrize("seed", range(2))
def test_without_a_table_of_labels_by_labels(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, targets = drawn(seed)
    groups = drawn_groups(seed, targets)
    whole = closed(rows, targets, groups)
    monkeypatch.setattr(leave_one_out, "TABLE_NUMBERS", 3)  # blocks of a row, too
    assert_allclose(closed(rows, targets, groups), whole, rtol=1e-10, atol=1e-10)


def test_single_precision_is_near_to_double_in_many_dimensions() -> None:
    rng = np.random.default_rng(0)
    rows, targets = rng.normal(size=(90, 1280)), np.arange(90) % 3
    exact, quick = (TrainingRows.of(x / 4, targets, 3) for x in (rows, rows.astype(np.float32)))
    tables = [leave_out_distances(each, each.means, each.other_means) for each in (exact, quick)]
    assert tables[1].dtype == np.float32
    assert_allclose(tables[1], tables[0], rtol=1e-4)
    one, other = (leave_out_products(each, each.rows, each.other_means) for each in (exact, quick))
    assert_allclose(other, one, rtol=1e-3, atol=1e-3)


def test_sums_of_groups_are_those_of_a_loop() -> None:
    rng = np.random.default_rng(0)
    rows, groups = rng.normal(size=(50, 3)), rng.integers(7, size=50)
    near(segment_sums(rows, groups, 9), np.stack([rows[groups == g].sum(0) for g in range(9)]))
