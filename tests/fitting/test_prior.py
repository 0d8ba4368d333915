"""The prior of labels: chosen by images left out, stated by a user, part of a classifier."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from labelwise.core.classifier import Classifier
from labelwise.core.load import load
from labelwise.core.store import save
from labelwise.fitting.fit import fit
from labelwise.fitting.prior import PriorWish, choose_prior
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.methods import Discriminant
from labelwise.support.errors import DataError
from labelwise.tasks.teach import teach

NAMES = ("fine", "crack", "hole")
COUNTS = (160, 20, 12)


def rows(counts: tuple[int, ...], seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features of labels that overlap, so that it matters how frequent they are."""
    draws, targets = np.random.default_rng(seed), np.repeat(np.arange(3), counts)
    return (draws.normal(size=(len(targets), 6)) + 1.2 * np.eye(3, 6)[targets]).astype(np.float32), targets


def fitted(counts: tuple[int, ...] = COUNTS, labels: Labels | None = None, **settings: Any) -> Classifier:
    x, targets = rows(counts)
    train = Split(images=x, targets=targets)
    labels = labels or Labels(names=NAMES)
    return fit(
        Dataset(name="tiles", labels=labels, splits={"train": train}, own_splits=False), Discriminant(**settings)
    )


def prior_of(classifier: Classifier) -> NDArray[Any]:
    assert classifier.calibration.prior is not None
    return classifier.calibration.prior


def right(classifier: Classifier, counts: tuple[int, ...]) -> float:
    x, targets = rows(counts, seed=1)
    return float((classifier.scores_of(classifier.head.embed(x)).best == targets).mean())


def test_frequent_labels_are_answered_more_often_where_that_pays() -> None:
    data, equal = fitted(), fitted(prior="equal")
    assert equal.calibration.prior is None
    assert prior_of(data).argmax() == 0
    assert right(data, (1600, 200, 120)) > right(equal, (1600, 200, 120)) + 0.05
    assert right(data, (300, 300, 300)) < right(equal, (300, 300, 300))


def test_labels_of_one_size_have_no_prior() -> None:
    one, other = fitted((40, 40, 40)), fitted((40, 40, 40), prior="equal")
    np.testing.assert_allclose(one.calibration.offset, other.calibration.offset, atol=1e-6)


def test_the_exponent_is_that_of_a_plain_search() -> None:
    draws = np.random.default_rng(2)
    targets = np.repeat([0, 1, 2], [90, 30, 10])
    scores = draws.normal(size=(130, 3)) + 1.5 * np.eye(3)[targets]
    counts = np.bincount(targets).astype(float)
    shift = np.log((counts + 1) / (counts.sum() + 3))

    def loss(exponent: float) -> float:
        table = minimize_scalar(
            lambda t: -log_softmax(scores * t + exponent * shift, 1)[np.arange(130), targets].mean(), (0.1, 1)
        )
        return float(table.fun)

    wanted = min((0.0, 0.25, 0.5, 0.75, 1.0), key=loss)
    assert choose_prior(scores, targets, counts).exponent == wanted


def test_shares_of_a_user_take_the_place_of_those_of_the_data(tmp_path: Path) -> None:
    table = tmp_path / "shares.csv"
    table.write_text("label,share\ncrack,5\nhole,2.5\nfine,2.5\n")
    stated = fitted(prior=str(table))
    assert right(stated, (250, 500, 250)) > right(fitted(), (250, 500, 250)) + 0.05
    told = fitted(labels=Labels(names=NAMES, shares=np.array([0.25, 0.5, 0.25])))
    np.testing.assert_allclose(prior_of(told), prior_of(stated), rtol=1e-5)


def test_a_label_that_must_not_be_missed_is_answered_more_often(tmp_path: Path) -> None:
    table = tmp_path / "costs.csv"
    table.write_text("label,cost\nfine,1\ncrack,20\nhole,1\n")
    x, targets = rows((1600, 200, 120), seed=1)

    def recall(classifier: Classifier) -> float:
        return float((classifier.scores_of(classifier.head.embed(x)).best[targets == 1] == 1).mean())

    assert recall(fitted(costs=str(table))) > recall(fitted()) + 0.2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("label,share\nfine,1\ncrack,1\n", "no row for: hole"),
        ("label,share\nfine,1\ncrack,1\nholes,1\n", 'no label "holes"'),
        ("label,share\nfine,1\ncrack,-1\nhole,1\n", "at least 0"),
        ("label,weight\nfine,1\n", 'needs one column "share"'),
        ("label,share\nfine,0\ncrack,0\nhole,0\n", "is 0"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_in_words(tmp_path: Path, content: str, words: str) -> None:
    table = tmp_path / "shares.csv"
    table.write_text(content)
    with pytest.raises(DataError, match=words):
        PriorWish.of(str(table), None, Labels(names=NAMES))


def test_a_prior_is_saved_and_a_new_label_changes_no_other_score(tmp_path: Path) -> None:
    classifier = fitted()
    save(classifier, tmp_path / "tiles.lw")
    again = load(tmp_path / "tiles.lw")
    np.testing.assert_array_equal(prior_of(again), prior_of(classifier))
    x = rows((20, 20, 20), seed=3)[0]
    taught = teach(again, "scratch", examples=again.scores_of(again.head.embed(x[:5] + 3)))
    before, after = (each.scores_of(each.head.embed(x)).log_odds for each in (classifier, taught))
    np.testing.assert_array_equal(after[:, :3], before)
    assert taught.calibration.offset[3] == pytest.approx(classifier.calibration.neutral()[1], rel=1e-5)
    chosen = taught.select(["scratch", "crack"])
    np.testing.assert_array_equal(prior_of(chosen), [0, prior_of(classifier)[1]])


def test_another_prior_takes_the_place_of_the_first() -> None:
    classifier = fitted()
    equal = classifier.calibration.with_prior(None)
    np.testing.assert_allclose(equal.offset, equal.offset.mean(), atol=1e-5)
    again = equal.with_prior(prior_of(classifier))
    np.testing.assert_allclose(again.offset, classifier.calibration.offset, atol=1e-5)


def test_weights_count_in_the_prior() -> None:
    x, targets = rows((40, 40, 40))
    weights = tuple(np.where(targets == 0, 8.0, 1.0).tolist())
    train = Split(images=x, targets=targets, weights=weights)
    data = Dataset(name="tiles", labels=Labels(names=NAMES), splits={"train": train}, own_splits=False)
    heavy = fit(data, Discriminant())
    assert prior_of(heavy).argmax() == 0
    light = fit(replace(data, splits={"train": replace(train, weights=())}), Discriminant())
    assert heavy.origin.summary["prior"]["ahead"]["fine"] > light.origin.summary["prior"]["ahead"]["fine"]
