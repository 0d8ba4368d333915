"""The curve of seen and unseen accuracy against one gap after another."""

from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from labelwise.core.balance import BalanceCurve, balance_curve
from labelwise.core.calibration import Penalty
from labelwise.support.errors import DataError

KINDS = get_args(Penalty)


def applied(scores: Tensor, seen: Tensor, gap: float, kind: Penalty) -> Tensor:
    """Return the scores with the gap, label by label."""
    changed = scores.double().clone()
    for label in seen.nonzero()[:, 0].tolist():
        changed[:, label] = changed[:, label] * (1 + gap) if kind == "scale" else changed[:, label] - gap
    return changed


def slow_accuracies(scores: Tensor, targets: Tensor, seen: Tensor) -> tuple[float, float]:
    """Return accuracy on unseen and on seen labels, label by label."""
    best = scores.argmax(1).tolist()
    found: dict[bool, list[float]] = {False: [], True: []}
    for label in sorted(set(targets.tolist())):
        rows = [i for i, target in enumerate(targets.tolist()) if target == label]
        found[bool(seen[label])].append(sum(best[i] == label for i in rows) / len(rows))
    return sum(found[False]) / len(found[False]), sum(found[True]) / len(found[True])


def slow_curve(
    scores: Tensor, targets: Tensor, seen: Tensor, kind: Penalty = "offset"
) -> list[tuple[float, float, float]]:
    """Return (gap, unseen, seen) for a gap before, between and after all those at which an answer changes."""
    pairs = [(max(row[seen].tolist()), max(row[~seen].tolist())) for row in scores.double()]
    flips = sorted({u / s - 1 if kind == "scale" else s - u for s, u in pairs})
    between = [(a + b) / 2 for a, b in pairwise(flips)]
    gaps = [(flips[0] - 1) / 2 if kind == "scale" else flips[0] - 1, *between, flips[-1] + 1]
    return [(gap, *slow_accuracies(applied(scores, seen, gap, kind), targets, seen)) for gap in gaps]


def harmonic(unseen: float, seen: float) -> float:
    return 2 * unseen * seen / (unseen + seen) if unseen + seen else 0.0


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, Penalty]:
    """Scores that favour the right label a little and seen labels a lot, targets, seen labels, kind."""
    made = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    k, n = draw(st.integers(2, 6)), draw(st.integers(2, 14))
    seen = torch.arange(k) < draw(st.integers(1, k - 1))
    seen = seen[torch.randperm(k, generator=made)]
    targets = torch.randint(0, k, (n,), generator=made)
    assume(bool(seen[targets].any()) and bool((~seen[targets]).any()))
    scores = torch.randn(n, k, generator=made, dtype=torch.float64) + 1.0 * seen
    scores[torch.arange(n), targets] += 1
    kind = draw(st.sampled_from(KINDS))
    return (-scores.neg().exp() if kind == "scale" else scores), targets, seen, kind


@given(cases())
def test_the_curve_is_what_each_gap_gives(case: tuple[Tensor, Tensor, Tensor, Penalty]) -> None:
    scores, targets, seen, kind = case
    curve, slow = balance_curve(scores, targets, seen, kind), slow_curve(scores, targets, seen, kind)
    assert curve.unseen.tolist() == pytest.approx([u for _, u, _ in slow])
    assert curve.seen.tolist() == pytest.approx([s for _, _, s in slow])
    assert curve.harmonic.tolist() == pytest.approx([harmonic(u, s) for _, u, s in slow])
    for gap, unseen, known in slow:
        assert curve.at(gap) == pytest.approx((unseen, known))
    area = sum((s0 + s1) / 2 * (u1 - u0) for (_, u0, s0), (_, u1, s1) in pairwise(slow))
    assert curve.area == pytest.approx(area)


@given(cases())
def test_the_best_gap_attains_the_best_harmonic_mean(case: tuple[Tensor, Tensor, Tensor, Penalty]) -> None:
    scores, targets, seen, kind = case
    slow = max(harmonic(u, s) for _, u, s in slow_curve(scores, targets, seen, kind))
    assume(slow > 0)  # else any gap is as good
    gap = balance_curve(scores, targets, seen, kind).best()
    assert harmonic(*slow_accuracies(applied(scores, seen, gap, kind), targets, seen)) == pytest.approx(slow)


@given(cases(), st.lists(st.floats(-0.95, 4), min_size=2, max_size=8))
def test_a_larger_gap_never_calls_more_images_seen(
    case: tuple[Tensor, Tensor, Tensor, Penalty], gaps: list[float]
) -> None:
    scores, targets, seen, kind = case
    called = [seen[applied(scores, seen, gap, kind).argmax(1)] for gap in sorted(gaps)]
    for part in (seen[targets], ~seen[targets]):
        shares = [float(one[part].double().mean()) for one in called]
        assert shares == sorted(shares, reverse=True)
    curve = balance_curve(scores, targets, seen, kind)
    assert bool((np.diff(curve.flips) >= 0).all())
    assert bool((np.diff(curve.unseen) >= -1e-12).all())
    assert bool((np.diff(curve.seen) <= 1e-12).all())
    accuracies = [curve.at(gap) for gap in sorted(gaps)]
    assert [u for u, _ in accuracies] == sorted(u for u, _ in accuracies)
    assert [s for _, s in accuracies] == sorted((s for _, s in accuracies), reverse=True)


@given(st.integers(0, 10**6))
def test_images_that_change_at_the_same_gap(seed: int) -> None:
    """Whole scores, different within an image: many images flip together, and any gap between two flips is right."""
    made = torch.Generator().manual_seed(seed)
    scores = torch.stack([torch.randperm(5, generator=made) for _ in range(12)]).double()
    targets, seen = torch.arange(12) % 5, torch.tensor([True, False, True, False, True])
    curve = balance_curve(scores, targets, seen)
    for gap in (-4.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 4.5):
        assert curve.at(gap) == pytest.approx(slow_accuracies(applied(scores, seen, gap, "offset"), targets, seen))


def test_labels_weigh_the_same_however_many_images_they_have() -> None:
    """Of seen label 0 one image of four is right, of seen label 1 the only one: the mean is 5/8, not 2/5."""
    scores = torch.tensor([[2.0, 0, 0], [0, 2, 0], [0, 2, 0], [0, 2, 0], [0, 2, 0], [0, 0, 2]])
    curve = balance_curve(scores, torch.tensor([0, 0, 0, 0, 1, 2]), torch.tensor([True, True, False]))
    assert curve.at(0.0) == pytest.approx((1.0, 5 / 8))


def test_the_curve_begins_and_ends_on_one_side() -> None:
    scores, targets = torch.tensor([[3.0, 1], [3, 2], [1, 4]]), torch.tensor([0, 1, 1])
    curve = balance_curve(scores, targets, torch.tensor([True, False]))
    assert curve.flips.tolist() == [-3, 1, 2]
    assert (curve.unseen.tolist(), curve.seen.tolist()) == ([0, 0.5, 1, 1], [1, 1, 1, 0])
    assert (curve.area, curve.best()) == (1.0, 1.5)
    scaled = balance_curve(-torch.tensor([[1.0, 3], [1, 2], [4, 1]]), targets, torch.tensor([True, False]), "scale")
    assert scaled.flips.tolist() == [-0.75, 1, 2]
    assert scaled.best() == 1.5


@pytest.mark.parametrize("targets", [[0, 1, 0], [2, 2, 2]])
def test_images_of_one_kind_cannot_be_balanced(targets: list[int]) -> None:
    with pytest.raises(DataError, match="needs images of both"):
        balance_curve(torch.randn(3, 3), torch.tensor(targets), torch.tensor([True, True, False]))


@pytest.mark.parametrize("row", [[0.1, -1.0], [-1.0, 0.1]])
def test_scores_above_zero_cannot_be_scaled(row: list[float]) -> None:
    scores, targets, seen = torch.tensor([row, [-2.0, -1.0]]), torch.tensor([0, 1]), torch.tensor([True, False])
    with pytest.raises(DataError, match="at most zero"):
        balance_curve(scores, targets, seen, "scale")
    assert isinstance(balance_curve(scores, targets, seen), BalanceCurve)
