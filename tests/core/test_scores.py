"""The matrix of scores: what follows from it, computed once, and its rows."""

from collections import Counter
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax
from torch import Tensor

from labelwise.core import scores as module
from labelwise.core.arrays import Array
from labelwise.core.scores import Scores
from labelwise.tasks.calibrate import calibration_errors
from labelwise.tasks.classify import classify
from tests.changed import changed, exact
from tests.close import assert_close
from tests.pixels_of import px
from tests.plain import ABC, Weighed, plain_classifier

WORKED_OUT = ("raw", "log_odds", "best", "probabilities", "yes", "reported", "confidence", "outlier_score", "unknown")


class Counted(Weighed):
    """A head that counts how often it is asked."""

    calls: ClassVar[Counter[str]] = Counter()

    def embed(self, features: Array) -> Array:
        self.calls["embedded"] += len(features)
        return super().embed(features)

    def score(self, embeddings: Array, label_embeddings: Array) -> Array:
        self.calls["scored"] += 1
        return np.asarray(super().score(embeddings, label_embeddings))


@pytest.fixture
def scores() -> Scores:
    classifier = changed(plain_classifier(), temperature=2.0, memory=torch.eye(3))
    images = torch.rand(7, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    first = exact(classifier, images)
    limited = replace(classifier, familiarity=classifier.familiarity.fit(first, 0.6))
    return Scores(limited, first.embeddings, limited.images(images))


def test_what_follows_from_scores(scores: Scores) -> None:
    classifier, log_odds = scores.classifier, scores.log_odds
    assert len(scores) == 7
    assert np.array_equal(log_odds, classifier.calibration.log_odds(scores.raw))
    assert np.array_equal(scores.best, log_odds.argmax(1))
    assert_close(scores.probabilities, softmax(log_odds / 2, 1))
    assert_close(scores.yes, expit(log_odds))
    assert np.array_equal(scores.reported, scores.probabilities)
    assert_close(scores.confidence, scores.yes.max(1))
    assert np.array_equal(scores.unknown, scores.outlier_score > classifier.familiarity.limit)
    assert scores.unknown.sum() == 3, "the rule lets 60 % pass"


def test_where_several_may_be_true_the_answers_are_reported(scores: Scores) -> None:
    several = scores.of(changed(scores.classifier, multilabel=True))
    assert np.array_equal(several.reported, several.yes)


def test_images_are_encoded_once_and_scored_once() -> None:
    calls = Counted.calls
    classifier = replace(plain_classifier(), head=Counted(weights=np.eye(3, dtype=np.float32)))
    scores = classifier.scores(torch.zeros(4, 3, 2, 2, dtype=torch.uint8))
    for name in (*WORKED_OUT, *WORKED_OUT):
        getattr(scores, name)
    scores.top(2)
    assert calls == {"embedded": 4, "scored": 1}
    assert np.array_equal(scores[[1, 2]].log_odds, scores.log_odds[[1, 2]])
    assert calls == {"embedded": 4, "scored": 1}, "what was computed is kept"
    other = scores.of(classifier.select(["b"]))
    assert other.log_odds.shape == (4, 1)
    assert calls["embedded"] == 4


@pytest.mark.parametrize("rows", [[2, 0], torch.tensor([2, 0]), slice(0, 2), torch.arange(7) == 3])
@pytest.mark.parametrize("asked_before", [True, False])
def test_rows_are_the_same_of_some_pictures(
    scores: Scores, rows: Tensor | list[int] | slice, asked_before: bool
) -> None:
    if asked_before:
        assert all(len(getattr(scores, name)) == 7 for name in WORKED_OUT)
    some = scores[rows]
    for name in (*WORKED_OUT, "embeddings"):
        assert_close(getattr(some, name), getattr(scores, name)[rows])
    assert_close(px(some), px(scores)[rows])


def test_top_lists_the_best_labels_first(scores: Scores) -> None:
    for row, listed in enumerate(scores.top(2)):
        order = sorted(range(3), key=lambda column: -float(scores.probabilities[row, column]))[:2]
        assert [name for name, _ in listed] == [ABC.names[column] for column in order]
        assert [value for _, value in listed] == [float(scores.probabilities[row, column]) for column in order]
    assert [len(listed) for listed in scores[[0]].top(10)] == [3]
    assert [len(listed) for listed in scores[[0]].top(0)] == [1]


def test_embeddings_alone_have_no_images(scores: Scores) -> None:
    bare = scores.classifier.scores_of(scores.embeddings)
    assert bare.images is None
    assert bare[[1]].images is None
    assert np.array_equal(bare.log_odds, scores.log_odds)


def test_large_matrices_are_answered_in_parts(scores: Scores, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, targets = Scores(scores.classifier, scores.embeddings), torch.tensor([0, 1, 2, 0, 1, 2, 0])
    answers, errors = classify(whole), calibration_errors(whole, targets)
    limits = {name: getattr(whole, name) for name in ("best", "confidence", "outlier_score", "unknown")}
    monkeypatch.setattr(module, "MOST", 2 * len(scores.classifier.labels))
    large = Scores(scores.classifier, scores.embeddings)
    assert [len(part) for part in large.parts()] == [2, 2, 2, 1]
    assert classify(large) == answers
    for name, right in limits.items():
        assert_close(getattr(large, name), right)
    assert calibration_errors(large, targets) == pytest.approx(errors, abs=1e-12)
    assert not {"raw", "log_odds", "yes", "probabilities"} & set(vars(large)), "a matrix of all pictures is kept"
