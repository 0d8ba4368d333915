"""Calibrate a classifier on its own training images, each left out: probabilities, an estimate of accuracy, a threshold for pairs."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from labelwise.core.arrays import Array
from labelwise.core.classifier import Classifier
from labelwise.core.leave_one_out import LeaveOneOut, LeavesOut
from labelwise.core.pairs import draw_pairs
from labelwise.core.scores import Scores
from labelwise.fitting.estimate import estimate
from labelwise.fitting.prior import DATA, PriorWish, choose_prior
from labelwise.images.dataset import Split
from labelwise.tasks.calibrate import calibrate
from labelwise.tasks.verify import can_verify, verifier_of

if TYPE_CHECKING:
    from labelwise.train.data import TensorSplit

LEAST_IMAGES = 2  # that calibration takes
MOST_PAIRS = 5_000  # of each kind that a threshold for pairs is fitted on


def calibrate_by_leave_one_out(
    classifier: Classifier, fitted: LeavesOut, train: "Split | TensorSplit", embeddings: Array, wish: PriorWish = DATA
) -> Classifier:
    """Return the classifier calibrated on its training images, each left out; unchanged where no two share a label.

    Args:
        classifier: not calibrated yet.
        fitted: what is known after its fit.
        train: its training images.
        embeddings: of these ``[n, d]``.
        wish: which prior labels have.
    """
    classifier = _with_prior(classifier, fitted.leave_one_out(grouped=False), train, wish)
    left = fitted.leave_one_out()
    usable = np.flatnonzero(left.usable)
    if len(usable) < LEAST_IMAGES:
        return classifier
    rows, labels = left.rows[usable], np.asarray(train.targets)
    scores, targets = left_out_scores(classifier, embeddings, left)[usable], labels[rows]
    done = calibrate(scores, targets, nearest=True)
    # of n images of a label n - 1 differ from its mean as they like
    independent = max(1, len(np.unique(left.groups[usable])) - len(np.unique(targets)))
    right = _right(scores.of(done), targets, left, usable)
    about = estimate(scores.of(done), train, rows, independent, right)
    done = replace(done, origin=replace(done.origin, summary={**done.origin.summary, "leave_one_out": about}))
    return _with_verifier(done, fitted, labels, rows if len(left.rows) == len(train) else np.arange(len(train)))


def _with_prior(classifier: Classifier, left: LeaveOneOut, train: "Split | TensorSplit", wish: PriorWish) -> Classifier:
    """Return the classifier with the prior of its labels; labels without images are as frequent as the others are on average."""
    usable, trained = np.flatnonzero(left.usable), left.scores.shape[1]
    if wish.equal or len(usable) < LEAST_IMAGES:
        return classifier
    targets = np.asarray(train.targets)
    weights = np.asarray(train.weights) if isinstance(train, Split) and train.weights else None
    counts = np.bincount(targets, weights, minlength=trained).astype(np.float64)
    rows = left.rows[usable]
    prior = choose_prior(left.scores[usable], targets[rows], counts, wish, None if weights is None else weights[rows])
    values = np.full(len(classifier.labels), prior.values.mean())
    values[:trained] = prior.values
    calibration = classifier.calibration.with_prior(values) if prior.values.any() else classifier.calibration
    summary = {**classifier.origin.summary, "prior": prior.about(classifier.labels.names[:trained])}
    return replace(classifier, calibration=calibration, origin=replace(classifier.origin, summary=summary))


def _with_verifier(classifier: Classifier, fitted: LeavesOut, labels: Array, rows: Array) -> Classifier:
    """Return the classifier with a threshold for pairs, fitted on pairs of training images as if neither had been seen."""
    targets = labels[rows]
    if not can_verify(targets):
        return classifier
    same, different = (rows[np.asarray(pairs)] for pairs in draw_pairs(targets, MOST_PAIRS, 0))
    cosines = fitted.pair_cosines(np.concatenate([same, different]))
    if cosines is None:
        return classifier
    alike = cosines.astype(np.float64)
    return replace(classifier, verifier=verifier_of(alike[: len(same)], alike[len(same) :], "eer", "whitened"))


def _right(scores: Scores, targets: Array, left: LeaveOneOut, rows: Array) -> Array:
    """Return whether new images like these rows would be answered right ``[n]``.

    None of their label will be left out for them. So their own label is as well known as the others, and its margin to the best of
    these varies less, around the same mean.
    """
    raw, here = scores.raw.copy(), np.arange(len(rows))
    raw[here, targets] = left.own_scores[rows]
    log_odds = scores.classifier.calibration.log_odds(raw)
    own = log_odds[here, targets]
    log_odds[here, targets] = -np.inf
    margins = own - log_odds.max(1)
    return np.asarray(margins.mean() + (margins - margins.mean()) * left.margin_ratio[rows] > 0)


def left_out_scores(classifier: Classifier, embeddings: Array, left: LeaveOneOut) -> Scores:
    """Return the scores of training images left out; labels without any have the scores that they always have."""
    scores = classifier.scores_of(embeddings[left.rows])
    raw = scores.raw.copy()
    raw[:, : left.scores.shape[1]] = left.scores
    return classifier.scores_of(scores.embeddings, raw, left.outlier_scores, left.nearest)
