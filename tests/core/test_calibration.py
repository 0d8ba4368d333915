"""Calibration against what its sentences say, on three labels of which one is known from a description alone."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, softmax

from labelwise.core.calibration import Calibration, Penalty, usual_odds

both_penalties = pytest.mark.parametrize("penalty", ["offset", "scale"])


def calibration(penalty: Penalty = "offset", seen_penalty: float = 0.0, *, exclusive: bool = False) -> Calibration:
    """Labels a and c were seen, b was not; the same map of scores for all, before the seen penalty."""
    bare = Calibration(
        scale=np.ones(3),
        offset=np.zeros(3),
        unseen=np.array([False, True, False]),
        seen_penalty=seen_penalty,
        penalty=penalty,
        exclusive=exclusive,
    )
    return bare.refit(3.0, 2.0, 2.0)


def raw(n: int = 6) -> NDArray[Any]:
    return -np.random.default_rng(0).random((n, 3)) - 0.1


def test_none_leaves_scores_unchanged() -> None:
    none = Calibration.none(3, exclusive=True, penalty="scale")
    assert np.array_equal(none.log_odds(raw()), raw())
    assert (none.exclusive, none.penalty, none.multilabel, none.temperature) == (True, "scale", False, 1.0)
    assert not none.unseen.any()
    assert none.log_odds(raw().astype(np.float32)).dtype == np.float32


def test_log_odds_are_scaled_and_shifted_by_label() -> None:
    own = Calibration(scale=np.array([1.0, 2, 3]), offset=np.array([0.0, 1, 2]), unseen=np.zeros(3, bool))
    assert own.log_odds(np.ones((1, 3))).tolist() == [[1, 3, 5]]


def test_probabilities_are_of_exactly_one_label() -> None:
    """softmax(log-odds) is what independent yes/no answers say, given that exactly one label is right."""
    log_odds = raw()
    none = Calibration.none(3, exclusive=False, penalty="offset")
    yes = none.yes(log_odds)
    one = np.stack([yes[:, i] * (1 - yes).prod(1) / (1 - yes[:, i]) for i in range(3)], 1)
    np.testing.assert_allclose(none.choice(log_odds), one / one.sum(1, keepdims=True))


def test_the_temperature_divides_where_labels_compete_alone() -> None:
    own, log_odds = calibration(), raw()
    np.testing.assert_allclose(own.choice(log_odds), softmax(log_odds / 2, 1))
    np.testing.assert_allclose(own.yes(log_odds), expit(log_odds))
    np.testing.assert_allclose(calibration(exclusive=True).yes(log_odds), softmax(log_odds / 2, 1))


@pytest.mark.parametrize("exclusive", [False, True])
def test_confidence_is_the_largest_yes(exclusive: bool) -> None:
    own, log_odds = calibration(exclusive=exclusive), raw() * 40
    np.testing.assert_allclose(own.confidence(log_odds), own.yes(log_odds).max(1))
    assert own.confidence(log_odds.astype(np.float32)).dtype == np.float64, "log-odds of 40 still differ from 41 there"


@both_penalties
def test_seen_labels_alone_are_held_back(penalty: Penalty) -> None:
    held, scores = calibration(penalty, 0.4), raw()
    less = scores - 0.4 if penalty == "offset" else scores * 1.4
    wanted = np.where(np.array([False, True, False]), scores, less) * 3 + 2
    np.testing.assert_allclose(held.log_odds(scores), wanted)
    assert held.seen_penalty == 0.4


@both_penalties
def test_neutral_is_the_map_without_the_penalty(penalty: Penalty) -> None:
    for seen_penalty in (0.0, 0.5, -0.3):
        assert calibration(penalty, seen_penalty).neutral() == pytest.approx((3, 2))


@both_penalties
@pytest.mark.parametrize("unseen", [True, False])
def test_an_added_label_is_one_row_like_the_others(penalty: Penalty, unseen: bool) -> None:
    held, scores = calibration(penalty, 0.4), raw()
    added = held.add(unseen=unseen)
    log_odds = added.log_odds(np.concatenate([scores, scores[:, :1]], 1))
    assert np.array_equal(log_odds[:, :3], held.log_odds(scores))
    assert added.unseen.tolist() == [False, True, False, unseen]
    wanted = calibration(penalty, 0.0 if unseen else 0.4).log_odds(scores)[:, 0]
    np.testing.assert_allclose(log_odds[:, 3], wanted)


def test_selected_labels_keep_their_rows() -> None:
    held, scores = calibration(seen_penalty=0.4), raw()
    some = held.select([1, 0])
    assert np.array_equal(some.log_odds(scores[:, [1, 0]]), held.log_odds(scores)[:, [1, 0]])
    assert some.unseen.tolist() == [True, False]
    assert (some.temperature, some.seen_penalty) == (2.0, 0.4)


@both_penalties
def test_what_was_fitted_goes_and_the_penalty_stays(penalty: Penalty) -> None:
    held, scores = calibration(penalty, 0.4), raw()
    bare = held.bare()
    np.testing.assert_allclose(bare.log_odds(scores), (held.log_odds(scores) - 2) / 3)
    assert bare.temperature == 1.0
    again = bare.refit(3.0, 2.0, 2.0)
    np.testing.assert_allclose(again.log_odds(scores), held.log_odds(scores))
    scale, offset = np.array([1.0, 2, 3]), np.array([0.0, 1, 2])
    each = bare.refit(scale, offset, 1.0)
    np.testing.assert_allclose(each.log_odds(scores), bare.log_odds(scores) * scale + offset)


@pytest.mark.parametrize(("share", "error"), [(0.0, 0.7), (0.02, 0.4), (0.1, 0.7), (0.3, 1.8)])
def test_a_yes_does_not_depend_on_a_constant_of_log_odds(share: float, error: float) -> None:
    rng, apart, constants = np.random.default_rng(0), 2.0, np.array([-1.0, 3.0, 700.0])
    right = rng.random((1000, 1)) < share
    log_odds = apart * (rng.normal(size=(1000, 1)) + apart * right) - apart**2 / 2 + constants
    estimated = usual_odds(log_odds)
    assert abs(estimated - constants).max() < error
    assert (log_odds > estimated)[~right[:, 0]].mean() < 0.25


def test_few_images_change_little() -> None:
    assert abs(usual_odds(np.array([[2.0]]))) < 1
    assert usual_odds(np.zeros((0, 2))).tolist() == [0.0, 0.0]
