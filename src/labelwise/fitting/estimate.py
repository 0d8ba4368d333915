"""Estimate the quality of a classifier on images outside training: accuracy with interval, confusions, suspicious labels."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from labelwise.core.arrays import Array
from labelwise.core.calibration import Sign
from labelwise.core.classifier import Classifier
from labelwise.core.metrics import average_precisions, wilson
from labelwise.core.platt import LeaveOneOut, LeavesOut
from labelwise.core.promises import ahead_of_others, with_promises
from labelwise.core.scores import Scores
from labelwise.fitting.prior import DATA, PriorWish, choose_prior
from labelwise.images.dataset import Split
from labelwise.tasks.calibrate import calibrate
from labelwise.tasks.verify import can_verify, draw_pairs, verifier_of

if TYPE_CHECKING:
    from labelwise.train.data import TensorSplit

MOST_CONFUSED = 3  # pairs of labels
MOST_SUSPICIOUS = 10  # images
LEAST_IMAGES = 20  # fewest validation images for an estimate
LEAST_SUSPICIOUS = 0.5  # smallest probability of another label for a suspicious image


def estimate(
    scores: Scores, split: "Split | TensorSplit", rows: Array, independent: int, right: Array | None = None
) -> dict[str, Any]:
    """Estimate accuracy with its 95 % interval, confused labels and suspicious images, in single-label data.

    Args:
        scores: of the images, calibrated.
        split: the split of the images.
        rows: their positions in the split ``[n]``.
        independent: effective number of images: copies count once.
        right: whether similar new images would be right ``[n]``; None: whether these are.
    """
    names, targets = scores.classifier.labels.names, np.asarray(split.targets)[rows]
    best = scores.best
    accuracy = float((best == targets if right is None else right).mean())
    low, high = wilson(accuracy, independent)
    share, largest = baseline(targets)
    figures: dict[str, Any] = {"accuracy": accuracy, "low": low, "high": high, "images": len(rows)}
    figures["baseline"] = {"label": names[largest], "accuracy": share}
    confused = confused_labels(best, targets, names)
    return {**figures, "confused": confused, "suspicious": _suspicious(scores, targets, split, rows)}


def baseline(targets: Array) -> tuple[float, int]:
    """Return the accuracy of always answering the most frequent label, and that label."""
    counts = np.bincount(targets)
    return float(counts.max() / len(targets)), int(counts.argmax())


def confused_labels(best: Array, targets: Array, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the most frequent confusions of labels."""
    wrong = best != targets
    pairs, counts = np.unique(targets[wrong] * len(names) + best[wrong], return_counts=True)
    order = (-counts).argsort(kind="stable")[:MOST_CONFUSED]
    return [
        {"label": names[pair // len(names)], "taken_for": names[pair % len(names)], "count": count}
        for pair, count in zip(pairs[order].tolist(), counts[order].tolist(), strict=True)
    ]


def _suspicious(scores: Scores, targets: Array, split: "Split | TensorSplit", rows: Array) -> list[dict[str, Any]]:
    """Return the images that look most like another label than their own."""
    names = scores.classifier.labels.names
    chances, others = np.empty(len(targets)), np.empty(len(targets), np.int64)
    start = 0
    for part in scores.parts():
        probabilities, end = part.probabilities.copy(), start + len(part)
        probabilities[np.arange(len(part)), targets[start:end]] = 0.0
        chances[start:end], others[start:end], start = probabilities.max(1), probabilities.argmax(1), end
    return [
        {
            "file": split.files[rows[i]] if split.files else f"row {rows[i]}",
            "label": names[targets[i]],
            "looks_like": names[others[i]],
            "probability": round(float(chances[i]), 4),
        }
        for i in (-chances).argsort(kind="stable")[:MOST_SUSPICIOUS].tolist()
        if chances[i] >= LEAST_SUSPICIOUS
    ]


def estimate_on_validation(classifier: Classifier, scores: Scores, val: "Split | TensorSplit") -> Classifier:
    """Add an estimate on validation images to the classifier, if there are enough of them with one label each."""
    if val.multilabel or len(val) < LEAST_IMAGES:
        return classifier
    alone = val.groups.count("") if val.groups else len(val)
    independent = alone + len(set(val.groups) - {""})
    about = estimate(scores.of(classifier), val, np.arange(len(val)), independent)
    summary = {**classifier.origin.summary, "validation": about}
    return replace(classifier, origin=replace(classifier.origin, summary=summary))


def merit(scores: Scores, val: "Split | TensorSplit") -> dict[str, float]:
    """Return the accuracy of validation scores, or the mean average precision in multi-label data."""
    if val.multilabel:
        return {"validation_precision": float(np.nanmean(average_precisions(scores.log_odds, val.targets)))}
    return {"validation_accuracy": float((scores.best == np.asarray(val.targets)).mean())}


CALIBRATION_IMAGES = 2  # that calibration takes
SIGNS: tuple[Sign, Sign] = ("confidence", "familiarity")
SHARES = (
    0.0,
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    1.0,
)  # of the distance in the sum of both signs of a stranger
FEW = 5  # images of a label that is left out, from about which on it counts fully
FEW_LABELS = 5  # from about which on they say how well strangers are told
SLACK = 0.001  # of an area, by which weights that are more even may be worse
LEAST_LEFT_OUT = 3  # labels that are left out in turn to weigh the signs of a stranger
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
    alone = fitted.leave_one_out("copies")
    classifier = _with_prior(classifier, alone, train, wish)
    left = fitted.leave_one_out()
    usable = np.flatnonzero(left.usable)
    if len(usable) < CALIBRATION_IMAGES:
        return classifier
    rows, labels = left.rows[usable], np.asarray(train.targets)
    scores, targets = left_out_scores(classifier, embeddings, left)[usable], labels[rows]
    done = calibrate(scores, targets, nearest=True)
    done = _with_sign_weights(done, scores, (alone, fitted.leave_one_out("labels")), labels, embeddings)
    # of n images of a label n - 1 differ from its mean as they like
    independent = max(1, len(np.unique(left.groups[usable])) - len(np.unique(targets)))
    log_odds = _log_odds_at_full_size(scores.of(done), targets, left, usable)
    ahead = ahead_of_others(log_odds, targets)
    about = estimate(scores.of(done), train, rows, independent, ahead > 0)
    if len(np.unique(left.groups)) < len(np.unique(alone.groups)):
        about["accuracy_with_lookalikes"] = _accuracy_with_lookalikes(done, alone, labels, embeddings)
    done = replace(done, calibration=with_promises(done, log_odds, targets))
    done = replace(done, origin=replace(done.origin, summary={**done.origin.summary, "leave_one_out": about}))
    return _with_verifier(done, fitted, labels, rows if len(left.rows) == len(train) else np.arange(len(train)))


def _with_prior(classifier: Classifier, left: LeaveOneOut, train: "Split | TensorSplit", wish: PriorWish) -> Classifier:
    """Return the classifier with the prior of its labels; labels without images are as frequent as the others are on average."""
    usable, trained = np.flatnonzero(left.usable), left.scores.shape[1]
    if wish.equal or len(usable) < CALIBRATION_IMAGES:
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


def _with_sign_weights(
    classifier: Classifier, scores: Scores, left: tuple[LeaveOneOut, LeaveOneOut], labels: Array, embeddings: Array
) -> Classifier:
    """Return the classifier whose outlier rule weighs its signs as tells strangers best: training images whose whole label is left out.

    Args:
        classifier: calibrated.
        scores: of the images that its rule was fitted on.
        left: training images left out alone, and with their label.
        labels: of all training images.
        embeddings: of these ``[n, d]``.
    """
    familiarity, keep = classifier.familiarity, classifier.origin.summary["calibration"]["keep"]
    strange = left[1].rows
    if len(np.unique(labels[strange])) < LEAST_LEFT_OUT:
        return classifier
    known = left[0].rows[left[0].usable]
    inside = left_out_scores(classifier, embeddings, left[0])[np.flatnonzero(left[0].usable)]
    outside = left_out_scores(classifier, embeddings, left[1])
    known_signs = np.stack([familiarity.outlier_score(inside, kind) for kind in SIGNS], 1)
    strange_signs = np.stack([familiarity.outlier_score(outside, kind) for kind in SIGNS], 1)
    weights = weigh_signs(known_signs, strange_signs, labels[known], labels[strange])
    return replace(classifier, familiarity=familiarity.fit(scores.of(classifier), keep, nearest=True, weights=weights))


def weigh_signs(known: Array, strange: Array, labels: Array, left_out: Array) -> tuple[float, float]:
    """Return the weights of two signs under whose sum strangers stand out most: by the area under the ROC curve of each label left out.

    A label of n strangers counts n / (n + 5). Of weights that do nearly as well the most even ones are taken; and these are drawn towards
    even ones, since few labels say little of others: by w / (w + 5), where w is how many labels count.

    Args:
        known: both signs of known images ``[n, 2]``.
        strange: both signs of images whose label was left out ``[m, 2]``.
        labels: of known images ``[n]``.
        left_out: of the others ``[m]``.
    """
    counts = np.bincount(left_out)
    counted = (1 / (counts + FEW))[left_out]
    areas = {share: float(counted @ _below(known, labels, strange, left_out, share)) for share in SHARES}
    best = max(areas.values()) - SLACK * float(counted.sum())
    share = min((share for share in SHARES if areas[share] >= best), key=lambda share: abs(share - 0.5))
    labels_counted = float(counted.sum())
    share = 0.5 + (share - 0.5) * labels_counted / (labels_counted + FEW_LABELS)
    return 2 * (1 - share), 2 * share


def _below(known: Array, labels: Array, strange: Array, left_out: Array, share: float) -> Array:
    """Return which share of known images of other labels each stranger stands out from ``[m]``."""
    weights = np.array([1 - share, share])
    inside, outside = known @ weights, strange @ weights
    every = np.searchsorted(np.sort(inside), outside).astype(np.float64)
    total = np.full(len(outside), float(len(inside)))
    for label in np.unique(left_out):
        rows, own = left_out == label, np.sort(inside[labels == label])
        every[rows] -= np.searchsorted(own, outside[rows])
        total[rows] -= len(own)
    return np.asarray(every / np.maximum(total, 1))


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


def _accuracy_with_lookalikes(classifier: Classifier, alone: LeaveOneOut, labels: Array, embeddings: Array) -> float:
    """Return the accuracy on new images that look like training images as much as these look like each other."""
    usable = np.flatnonzero(alone.usable)
    scores = left_out_scores(classifier, embeddings, alone)[usable]
    targets = labels[alone.rows[usable]]
    return float((ahead_of_others(_log_odds_at_full_size(scores, targets, alone, usable), targets) > 0).mean())


def _log_odds_at_full_size(scores: Scores, targets: Array, left: LeaveOneOut, rows: Array) -> Array:
    """Return the log-odds ``[n, k]`` that new images like these rows would have.

    None of their label will be left out for them. So their own label is as well known as the others, and its margin to the best of
    these varies less, around the same mean.
    """
    raw = scores.raw.copy()
    raw[np.arange(len(rows)), targets] = left.own_scores[rows]
    log_odds = scores.classifier.calibration.log_odds(raw)
    ahead = ahead_of_others(log_odds, targets)
    new = ahead.mean() + (ahead - ahead.mean()) * left.margin_ratio[rows]
    log_odds[np.arange(len(rows)), targets] += new - ahead
    return log_odds


def left_out_scores(classifier: Classifier, embeddings: Array, left: LeaveOneOut) -> Scores:
    """Return the scores of training images left out; labels without any have the scores that they always have."""
    rows, raw = embeddings[left.rows], left.scores
    if raw.shape[1] < len(classifier.labels):
        raw = np.concatenate([raw, classifier.score(rows)[:, raw.shape[1] :]], 1)
    return classifier.scores_of(rows, raw, left.outlier_scores, left.nearest)
