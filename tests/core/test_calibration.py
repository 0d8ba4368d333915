"""Calibration against what its sentences say, on three labels of which one is known from a description alone."""

import pytest
import torch
from torch import Tensor

from labelwise.core.calibration import Calibration, Penalty

CPU = torch.device("cpu")
both_penalties = pytest.mark.parametrize("penalty", ["offset", "scale"])


def calibration(penalty: Penalty = "offset", seen_penalty: float = 0.0, *, exclusive: bool = False) -> Calibration:
    """Labels a and c were seen, b was not; the same map of scores for all, before seen labels are held back."""
    bare = Calibration(
        scale=torch.ones(3),
        offset=torch.zeros(3),
        unseen=torch.tensor([False, True, False]),
        seen_penalty=seen_penalty,
        penalty=penalty,
        exclusive=exclusive,
    )
    return bare.fitted(3.0, 2.0, 2.0)


def raw(n: int = 6) -> Tensor:
    return -torch.rand(n, 3, generator=torch.Generator().manual_seed(0)) - 0.1


def test_none_leaves_scores_as_they_are() -> None:
    none = Calibration.none(3, exclusive=True, penalty="scale", device=CPU)
    assert torch.equal(none.log_odds(raw()), raw())
    assert (none.exclusive, none.penalty, none.multilabel, none.temperature) == (True, "scale", False, 1.0)
    assert not none.unseen.any()


def test_log_odds_are_scaled_and_shifted_by_label() -> None:
    own = Calibration(
        scale=torch.tensor([1.0, 2, 3]), offset=torch.tensor([0.0, 1, 2]), unseen=torch.zeros(3, dtype=torch.bool)
    )
    assert own.log_odds(torch.ones(1, 3)).tolist() == [[1, 3, 5]]


def test_probabilities_are_of_exactly_one_label() -> None:
    """softmax(log-odds) is what independent yes/no answers say, given that exactly one label is right."""
    log_odds = raw()
    none = Calibration.none(3, exclusive=False, penalty="offset", device=CPU)
    yes = none.yes(log_odds)
    one = torch.stack([yes[:, i] * (1 - yes).prod(1) / (1 - yes[:, i]) for i in range(3)], 1)
    torch.testing.assert_close(none.choice(log_odds), one / one.sum(1, keepdim=True))


def test_the_temperature_divides_where_labels_compete_alone() -> None:
    own, log_odds = calibration(), raw()
    torch.testing.assert_close(own.choice(log_odds), (log_odds / 2).softmax(1))
    torch.testing.assert_close(own.yes(log_odds), log_odds.sigmoid())
    torch.testing.assert_close(calibration(exclusive=True).yes(log_odds), (log_odds / 2).softmax(1))


@pytest.mark.parametrize("exclusive", [False, True])
def test_how_sure_it_is(exclusive: bool) -> None:
    own, log_odds = calibration(exclusive=exclusive), raw() * 40
    confidence = own.confidence(log_odds)
    assert confidence.dtype == torch.float64, "log-odds of 40 still differ from 41 there"
    torch.testing.assert_close(confidence.float(), own.yes(log_odds).amax(1))


@both_penalties
def test_seen_labels_alone_are_held_back(penalty: Penalty) -> None:
    held, scores = calibration(penalty, 0.4), raw()
    less = scores - 0.4 if penalty == "offset" else scores * 1.4
    wanted = torch.where(torch.tensor([False, True, False]), scores, less) * 3 + 2
    torch.testing.assert_close(held.log_odds(scores), wanted)
    assert held.seen_penalty == 0.4


@both_penalties
def test_neutral_is_the_map_without_the_penalty(penalty: Penalty) -> None:
    for seen_penalty in (0.0, 0.5, -0.3):
        scale, offset = calibration(penalty, seen_penalty).neutral()
        assert (float(scale), float(offset)) == pytest.approx((3, 2))


@both_penalties
@pytest.mark.parametrize("unseen", [True, False])
def test_an_added_label_is_one_row_like_the_others(penalty: Penalty, unseen: bool) -> None:
    held, scores = calibration(penalty, 0.4), raw()
    added = held.add(unseen=unseen)
    found = added.log_odds(torch.cat([scores, scores[:, :1]], 1))
    assert torch.equal(found[:, :3], held.log_odds(scores))
    assert added.unseen.tolist() == [False, True, False, unseen]
    wanted = calibration(penalty, 0.0 if unseen else 0.4).log_odds(scores)[:, 0]
    torch.testing.assert_close(found[:, 3], wanted)


def test_selected_labels_keep_their_rows() -> None:
    held, scores = calibration(seen_penalty=0.4), raw()
    some = held.select([1, 0])
    assert torch.equal(some.log_odds(scores[:, [1, 0]]), held.log_odds(scores)[:, [1, 0]])
    assert some.unseen.tolist() == [True, False]
    assert (some.temperature, some.seen_penalty) == (2.0, 0.4)


@both_penalties
def test_what_was_fitted_goes_and_the_penalty_stays(penalty: Penalty) -> None:
    held, scores = calibration(penalty, 0.4), raw()
    bare = held.bare()
    torch.testing.assert_close(bare.log_odds(scores), (held.log_odds(scores) - 2) / 3)
    assert bare.temperature == 1.0
    again = bare.fitted(3.0, 2.0, 2.0)
    torch.testing.assert_close(again.log_odds(scores), held.log_odds(scores))
    each = bare.fitted(torch.tensor([1.0, 2, 3]), torch.tensor([0.0, 1, 2]), 1.0)
    torch.testing.assert_close(
        each.log_odds(scores), bare.log_odds(scores) * torch.tensor([1.0, 2, 3]) + torch.tensor([0.0, 1, 2])
    )
