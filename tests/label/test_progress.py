"""Intervals and what more answers would bring."""

import math

import numpy as np
import pytest

from labelwise.label.actions import Action
from labelwise.label.ledger import Ledger
from labelwise.label.progress import answers_for_a_point, interval, lower_limit, sure_share, told


@pytest.mark.parametrize("n", [1, 5, 21, 60])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.8, 0.95, 0.99, 0.999])
def test_the_interval_covers_every_share_often_enough(n: int, share: float) -> None:
    inside = 0.0
    for hits in range(n + 1):
        low, high = interval(hits, n)
        inside += (low <= share <= high) * math.comb(n, hits) * share**hits * (1 - share) ** (n - hits)
    assert inside >= 0.95


def test_without_a_check_nothing_is_known() -> None:
    assert interval(0, 0) == (0.0, 1.0)


def test_answers_for_a_point_follow_the_slope() -> None:
    history = [(n, 0.5 + 0.1 * math.log(n)) for n in (40, 50, 60, 70, 80)]
    assert answers_for_a_point(history) == round(80 * math.expm1(0.1))
    assert answers_for_a_point([(n, 0.9) for n in (40, 50, 60, 70, 80)]) is None
    assert answers_for_a_point([]) is None


@pytest.mark.parametrize("share", [0.7, 0.9, 0.94])
def test_guesses_that_are_right_too_rarely_seldom_count(share: float) -> None:
    generator, counted = np.random.default_rng(0), 0
    for _ in range(200):
        tops, every = generator.random(80), generator.random(500)
        limit, _ = sure_share(tops.astype(np.float32), generator.random(80) < share, every.astype(np.float32), 0.95)
        counted += limit <= 1
    assert counted <= 0.25 * 200  # ten nested thresholds are tried, each of which may be wrong one time of ten


def test_the_surest_guesses_count_where_the_others_are_wrong() -> None:
    every = np.linspace(0, 1, 500, dtype=np.float32)
    tops = np.linspace(0, 1, 200, dtype=np.float32)
    limit, missing = sure_share(tops, tops > 0.5, every, 0.95)
    assert 0.45 < limit < 0.65
    assert missing is None


def test_missing_checks_are_enough_if_all_are_right() -> None:
    every, none = np.linspace(0, 1, 50, dtype=np.float32), np.empty(0, np.float32)
    limit, missing = sure_share(none, none.astype(bool), every, 0.95)
    assert limit > 1
    assert missing is not None
    assert lower_limit(missing, missing) >= 0.95 > lower_limit(missing - 1, missing - 1)
    assert sure_share(np.ones(missing, np.float32), np.ones(missing, bool), every, 0.95)[0] <= 1


@pytest.mark.parametrize(("labels", "plain"), [(2, 0.02), (40, -0.015)])
def test_the_accuracy_told_allows_for_mistakes_of_the_person(labels: int, plain: float) -> None:
    """Of 1,500 guesses 80 % are right, one answer of ten is a slip, and 300 answers in doubt are not asked about again yet."""
    generator, names = np.random.default_rng(labels), [f"label {place}" for place in range(labels)]
    ledger, truths = Ledger(1500, list(names)), np.where(generator.random(1500) < 0.8, 0, 1)
    for row, truth in enumerate(truths.tolist()):
        for time in range(3):
            if time == 0 or (row in ledger.again and row >= 300):
                slip = generator.random() < 0.1
                said = (truth + int(generator.integers(1, labels))) % labels if slip else truth
                action = Action(kind="name", rows=(row,), label=names[said], form="check", guess=names[0])
                ledger.add(action)
    hits, waiting = (
        sum(label == 0 for label in ledger.checks.values()),
        [len(said) for _, said in ledger.again.values()],
    )
    true = float((truths == 0).mean())
    accuracy, low, high = told(hits, waiting, 1500 - len(waiting), len(ledger.slips), labels)
    assert accuracy == pytest.approx(true, abs=0.012)
    assert low < true < high
    assert hits / 1500 - true == pytest.approx(plain, abs=0.012), "without the correction"
