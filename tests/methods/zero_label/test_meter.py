"""How far names are settled: against what a loop over all namings says, and what answers do to it."""

from itertools import permutations

import numpy as np
import pytest

import labelwise as lw
from labelwise.methods.zero_label import meter
from labelwise.methods.zero_label.assignment import gibbs_average, gibbs_weights, marginals
from labelwise.methods.zero_label.rename import name_clusters, named_head, settled_names
from tests.methods.test_zero_label import CPU, STRUCTURE, world

NAMINGS = np.array([[0, 1, 2], [1, 0, 2], [0, 2, 1]])
SHARES = np.array([0.5, 0.3, 0.2])
SIZES = np.array([0.6, 0.3, 0.1])


def expected(chances: np.ndarray) -> float:
    """The images named rightly by the best of all namings, tried one after another."""
    k = len(chances)
    return max(float(sum(SIZES[c] * chances[c, own[c]] for c in range(k))) for own in permutations(range(k)))


def test_worth_is_what_a_loop_over_answers_finds() -> None:
    now = expected(marginals(NAMINGS, SHARES))
    for cluster, gain in enumerate(meter._worth(NAMINGS, SHARES, SIZES)):
        after = 0.0
        for label in range(3):
            here = NAMINGS[:, cluster] == label
            if here.any():
                after += SHARES[here].sum() * expected(marginals(NAMINGS[here], SHARES[here] / SHARES[here].sum()))
        assert gain == pytest.approx(after - now)


def test_the_fewest_labels_that_have_nearly_all_votes() -> None:
    assert meter._likeliest(np.array([0.05, 0.9, 0.05])) == [1]
    assert meter._likeliest(np.array([0.5, 0.05, 0.45])) == [0, 2]
    assert meter._likeliest(np.full(4, 0.25)) == [0, 1, 2, 3]


def test_weights_of_different_matchings_sum_to_one() -> None:
    twice, scores = np.concatenate([NAMINGS, NAMINGS[:1]]), np.array([0.3, 0.1, 0.2, 0.3])
    different, weights = gibbs_weights(twice, scores, 0.1)
    assert len(different) == 3
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(gibbs_average(twice, scores, 0.1), marginals(different, weights))


def test_answers_settle_names() -> None:
    classifier = lw.fit(world(), STRUCTURE, CPU)
    names = named_head(classifier).names.tolist()
    before = settled_names(classifier)
    assert before.namings >= 1
    assert [own[0] for own in before.may_be] == ["abcde"[label] for label in names]
    asked = int(np.argmax(before.worth))
    after = settled_names(name_clusters(classifier, {asked: "abcde"[names[asked]]}))
    assert after.worth[asked] == 0
    assert after.may_be[asked] == ("abcde"[names[asked]],)
    assert after.namings <= before.namings + 1e-9
    every = settled_names(name_clusters(classifier, {c: "abcde"[label] for c, label in enumerate(names)}))
    assert every.namings == pytest.approx(1)
    assert max(every.worth) == 0
