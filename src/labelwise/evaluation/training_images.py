"""Answers of a closed form to its training images, each left out: measured where there are no other images.

The fit is repeated, which takes seconds, and must give the classifier: so nothing but these images, as they are labelled now, made it.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from labelwise.core.arrays import Array
from labelwise.core.classifier import Classifier
from labelwise.core.scores import Scores
from labelwise.encoders.encode import encode
from labelwise.fitting.closed_form import solve
from labelwise.fitting.estimate import left_out_scores
from labelwise.fitting.repeats import merge_repeats
from labelwise.images.dataset import Split
from labelwise.images.describe.labels import Labels
from labelwise.methods.discriminant.head import DiscriminantHead
from labelwise.methods.discriminant.method import Discriminant
from labelwise.support.errors import DataError
from labelwise.support.settings import from_plain

TOLERANCE = 1e-2  # relative, of a fit that is repeated, maybe on another machine


@dataclass(frozen=True, eq=False)
class LeftOutAnswers:
    """The training images with leave-one-out scores, and these scores."""

    rows: NDArray[np.int64]  # [m]
    scores: Scores  # [m, k]


def left_out_answers(classifier: Classifier, split: Split, labels: Labels) -> LeftOutAnswers | None:
    """Return the answers to training images; None unless the closed form of exactly these images is the classifier."""
    head, record = classifier.head, classifier.origin.method
    if classifier.origin.summary.get("labels_by"):  # no person chose the labels: agreement with them is no accuracy
        return None
    is_fitted = isinstance(head, DiscriminantHead) and head.descriptions is None and record is not None
    if not is_fitted or split.multilabel or "leave_one_out" not in classifier.origin.summary:
        return None
    assert isinstance(head, DiscriminantHead)
    assert record is not None
    method = from_plain(Discriminant, record.settings)
    same = sorted(labels.names[i] for i in split.present) == sorted(head.labels.names)
    if method.tune is not None or not same or classifier.labels.names != head.labels.names:
        return None
    counted = np.flatnonzero(split.weighty)
    split = split.select(counted)
    features = encode(classifier.encoder, split.images)
    places = np.array([head.labels.names.index(name) if name in head.labels.names else -1 for name in labels.names])
    part = split.select(features.rows)
    part = Split(images=part.images, targets=places[part.targets], groups=part.groups, weights=part.weights)
    merged, values, repeats = merge_repeats(part, features.values)
    try:
        solution, _ = solve(values, merged, head.labels, method)
    except DataError:  # a table of shares or costs is gone
        return None
    if not _nearly_equal(solution.head.embed_labels(head.labels), classifier.label_embeddings):
        return None
    estimate = solution.leave_one_out()
    place = np.full(len(merged), -1)
    place[estimate.rows[estimate.usable]] = np.flatnonzero(estimate.usable)
    some = np.flatnonzero(place[repeats] >= 0)
    scores = left_out_scores(classifier, solution.embeddings, estimate)[place[repeats[some]]]
    rows = np.asarray(features.rows)[some]
    return LeftOutAnswers(counted[rows], replace(scores, images=split.images.select(rows))) if len(some) else None


def _nearly_equal(first: Array, second: Array) -> bool:
    """Return whether two arrays are the same but for rounding."""
    return first.shape == second.shape and float(abs(first - second).max()) <= TOLERANCE * float(abs(second).max())
