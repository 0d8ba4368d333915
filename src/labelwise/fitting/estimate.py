"""Estimate the quality of a classifier on images outside training: accuracy with interval, confusions, suspicious labels."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

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
    from labelwise.train.train_data import TensorSplit

MOST_CONFUSED = 3  # pairs of labels
MOST_SUSPICIOUS = 10  # images
LEAST_IMAGES = 20  # fewest validation images for an estimate
LEAST_SUSPICIOUS = 0.5  # smallest probability of another label for a suspicious image


def estimate(
    scores: Scores,
    split: "Split | TensorSplit",
    rows: Array,
    independent: float,
    right: Array | None = None,
    weights: Array | None = None,
) -> dict[str, Any]:
    """Estimate accuracy with its 95 % interval, confused labels and suspicious images, in single-label data.

    Args:
        scores: of the images, calibrated.
        split: the split of the images.
        rows: their positions in the split ``[n]``.
        independent: effective number of images: copies count once.
        right: whether similar new images would be right ``[n]``; None: whether these are.
        weights: how many images each counts as ``[n]``; None: one.
    """
    names, targets = scores.classifier.labels.names, np.asarray(split.targets)[rows]
    best = scores.best
    accuracy = float(np.average(best == targets if right is None else right, weights=weights))
    low, high = wilson(accuracy, independent)
    share, largest = baseline(targets, weights)
    figures: dict[str, Any] = {"accuracy": accuracy, "low": low, "high": high, "images": len(rows)}
    figures["baseline"] = {"label": names[largest], "accuracy": share}
    confused = confused_labels(best, targets, names)
    return {**figures, "confused": confused, "suspicious": _suspicious(scores, targets, split, rows)}


def baseline(targets: Array, weights: Array | None = None) -> tuple[float, int]:
    """Return the accuracy of always answering the most frequent label, and that label."""
    counts = np.bincount(targets, weights)
    return float(counts.max() / counts.sum()), int(counts.argmax())


def independent_images(groups: Array, targets: Array, weights: Array) -> float:
    """Return how many images these are worth ``[n]``: a group counts once, and n - 1 of n groups of a label differ from its mean freely.

    Of unequal weights, Kish's effective size: "Survey sampling" (1965).
    """
    _, place = np.unique(groups, return_inverse=True)
    each = np.bincount(place, weights) / np.bincount(place)
    return max(1.0, float(each.sum() ** 2 / (each**2).sum()) - len(np.unique(targets)))


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
    chances, rivals = np.empty(len(targets)), np.empty(len(targets), np.int64)
    start = 0
    for part in scores.parts():
        probabilities, end = part.probabilities.copy(), start + len(part)
        probabilities[np.arange(len(part)), targets[start:end]] = 0.0
        chances[start:end], rivals[start:end], start = probabilities.max(1), probabilities.argmax(1), end
    return [
        {
            "file": split.files[rows[i]] if split.files else f"row {rows[i]}",
            "label": names[targets[i]],
            "looks_like": names[rivals[i]],
            "probability": round(float(chances[i]), 4),
        }
        for i in (-chances).argsort(kind="stable")[:MOST_SUSPICIOUS].tolist()
        if chances[i] >= LEAST_SUSPICIOUS
    ]


def estimate_on_validation(classifier: Classifier, scores: Scores, val: "Split | TensorSplit") -> Classifier:
    """Add an estimate on validation images to the classifier, if there are enough of them with one label each."""
    if val.multilabel or len(val) < LEAST_IMAGES:
        return classifier
    independent_count = val.groups.count("") if val.groups else len(val)
    independent = independent_count + len(set(val.groups) - {""})
    estimates = estimate(scores.of(classifier), val, np.arange(len(val)), independent)
    summary = {**classifier.origin.summary, "validation": estimates}
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
FEW_LABELS = 5  # labels from which the weight is reliable
SLACK = 0.001  # of an area, by which weights that are more even may be worse
LEAST_LEFT_OUT = 3  # labels that are left out in turn to weigh the signs of a stranger
MOST_PAIRS = 5_000  # of each kind that a threshold for pairs is fitted on


def calibrate_by_leave_one_out(
    classifier: Classifier,
    discriminant: LeavesOut,
    train: "Split | TensorSplit",
    embeddings: Array,
    request: PriorWish = DATA,
) -> Classifier:
    """Return the classifier calibrated on its training images, each left out; unchanged where no two share a label.

    Args:
        classifier: not calibrated yet.
        discriminant: its fit, for leave-one-out.
        train: its training images.
        embeddings: of these ``[n, d]``.
        request: which prior labels have.
    """
    train_rows = _TrainRows.of(train, embeddings)
    without_copies = discriminant.leave_one_out("copies")
    classifier = _with_prior(classifier, without_copies, train_rows, request)
    without_one = discriminant.leave_one_out()
    usable = np.flatnonzero(without_one.usable)
    if len(usable) < CALIBRATION_IMAGES:
        return classifier
    rows = without_one.rows[usable]
    scores, targets, weights = (
        train_rows.scores(classifier, without_one)[usable],
        train_rows.targets[rows],
        train_rows.weights[rows],
    )
    calibrated = calibrate(scores, targets, nearest=True, weights=weights)
    calibrated = _with_sign_weights(
        calibrated, scores, weights, train_rows, (without_copies, discriminant.leave_one_out("labels"))
    )
    log_odds = _log_odds_at_full_size(scores.of(calibrated), targets, weights, without_one, usable)
    lead = ahead_of_others(log_odds, targets)
    independent = independent_images(without_one.groups[usable], targets, weights)
    estimates = estimate(scores.of(calibrated), train, rows, independent, lead > 0, weights)
    if len(np.unique(without_one.groups)) < len(np.unique(without_copies.groups)):
        estimates["accuracy_with_lookalikes"] = _accuracy_with_lookalikes(calibrated, without_copies, train_rows)
    calibrated = replace(calibrated, calibration=with_promises(calibrated, log_odds, targets, weights))
    calibrated = replace(
        calibrated, origin=replace(calibrated.origin, summary={**calibrated.origin.summary, "leave_one_out": estimates})
    )
    return _with_verifier(
        calibrated,
        discriminant,
        train_rows.targets,
        rows if len(without_one.rows) == len(train) else np.arange(len(train)),
    )


@dataclass(frozen=True, eq=False)
class _TrainRows:
    """The training images: targets, weights and embeddings."""

    targets: Array  # [n]
    weights: Array  # how many images each counts as [n]
    embeddings: Array  # [n, d]

    @classmethod
    def of(cls, train: "Split | TensorSplit", embeddings: Array) -> Self:
        given = train.weights if isinstance(train, Split) else ()
        return cls(np.asarray(train.targets), np.array(given) if given else np.ones(len(train)), embeddings)

    def scores(self, classifier: Classifier, estimate: LeaveOneOut) -> Scores:
        """Return the scores of those that were left out."""
        return left_out_scores(classifier, self.embeddings, estimate)


def _with_prior(
    classifier: Classifier, estimate: LeaveOneOut, train_rows: _TrainRows, request: PriorWish
) -> Classifier:
    """Return the classifier with the prior of its labels; labels without images are as frequent as the others are on average."""
    usable, label_count = np.flatnonzero(estimate.usable), estimate.scores.shape[1]
    if request.equal or len(usable) < CALIBRATION_IMAGES:
        return classifier
    counts = np.bincount(train_rows.targets, train_rows.weights, minlength=label_count)
    rows = estimate.rows[usable]
    prior = choose_prior(estimate.scores[usable], train_rows.targets[rows], counts, request, train_rows.weights[rows])
    values = np.full(len(classifier.labels), prior.values.mean())
    values[:label_count] = prior.values
    calibration = classifier.calibration.with_prior(values) if prior.values.any() else classifier.calibration
    summary = {**classifier.origin.summary, "prior": prior.summary(classifier.labels.names[:label_count])}
    return replace(classifier, calibration=calibration, origin=replace(classifier.origin, summary=summary))


def _with_sign_weights(
    classifier: Classifier,
    scores: Scores,
    weights: Array,
    train_rows: _TrainRows,
    estimates: tuple[LeaveOneOut, LeaveOneOut],
) -> Classifier:
    """Return the classifier whose outlier rule weighs its signs as tells strangers best: training images whose whole label is left out.

    Args:
        classifier: calibrated.
        scores: of the images that its rule was fitted on ``[m, k]``.
        weights: of these ``[m]``.
        train_rows: all training images.
        estimates: training images left out alone, and with their label.
    """
    familiarity, keep = classifier.familiarity, classifier.origin.summary["calibration"]["keep"]
    without_copies, usable, outlier_rows = estimates[0], np.flatnonzero(estimates[0].usable), estimates[1].rows
    if len(np.unique(train_rows.targets[outlier_rows])) < LEAST_LEFT_OUT:
        return classifier
    sides = []
    for some, rows in (
        (train_rows.scores(classifier, without_copies)[usable], without_copies.rows[usable]),
        (train_rows.scores(classifier, estimates[1]), outlier_rows),
    ):
        signs = np.stack([familiarity.outlier_score(some, kind) for kind in SIGNS], 1)
        sides.append(Signs(signs, train_rows.targets[rows], train_rows.weights[rows]))
    sign_weights = weigh_signs(*sides)
    rule = familiarity.fit(scores.of(classifier), keep, weights, nearest=True, sign_weights=sign_weights)
    return replace(classifier, familiarity=rule)


@dataclass(frozen=True, eq=False)
class Signs:
    """Both signs of images, which say how strange they are."""

    values: Array  # [n, 2]
    labels: Array  # [n]
    weights: Array  # [n]


def weigh_signs(signs: Signs, outlier_signs: Signs) -> tuple[float, float]:
    """Return the weights of two signs under whose sum strangers stand out most: by the area under the ROC curve of each label left out.

    A label of n strangers counts n / (n + 5). Of weights that do nearly as well the most even ones are taken; and these are drawn towards
    even ones, since few labels say little of others: by w / (w + 5), where w is how many labels count.

    Args:
        signs: of known images.
        outlier_signs: of images whose label was left out.
    """
    counts = np.bincount(outlier_signs.labels, outlier_signs.weights)
    weights = outlier_signs.weights / (counts + FEW)[outlier_signs.labels]
    labels_counted = float(weights.sum())
    areas = {share: float(weights @ _share_below(signs, outlier_signs, share)) for share in SHARES}
    best = max(areas.values()) - SLACK * labels_counted
    share = min((share for share in SHARES if areas[share] >= best), key=lambda share: abs(share - 0.5))
    share = 0.5 + (share - 0.5) * labels_counted / (labels_counted + FEW_LABELS)
    return 2 * (1 - share), 2 * share


def _share_below(known: Signs, outlier_signs: Signs, share: float) -> Array:
    """Return which share of known images of other labels each stranger stands out from ``[m]``."""
    inside, outside = (signs.values @ np.array([1 - share, share]) for signs in (known, outlier_signs))
    order = inside.argsort(kind="stable")
    every, total = _weight_below(inside[order], known.weights[order], outside)
    for label in np.unique(outlier_signs.labels):
        rows, own = outlier_signs.labels == label, order[known.labels[order] == label]
        lower_weight, total_weight = _weight_below(inside[own], known.weights[own], outside[rows])
        every[rows] -= lower_weight
        total[rows] -= total_weight
    return np.asarray(every / np.maximum(total, 1e-12))


def _weight_below(values: Array, weights: Array, limits: Array) -> tuple[Array, Array]:
    """Return the weight of the sorted values below each limit ``[m]``, and that of all."""
    sums = np.append(0.0, weights.cumsum())
    return sums[np.searchsorted(values, limits)], np.full(len(limits), sums[-1])


def _with_verifier(classifier: Classifier, discriminant: LeavesOut, labels: Array, rows: Array) -> Classifier:
    """Return the classifier with a threshold for pairs, fitted on pairs of training images as if neither had been seen."""
    targets = labels[rows]
    if not can_verify(targets):
        return classifier
    same, different = (rows[np.asarray(pairs)] for pairs in draw_pairs(targets, MOST_PAIRS, 0))
    cosines = discriminant.pair_cosines(np.concatenate([same, different]))
    if cosines is None:
        return classifier
    similarity = cosines.astype(np.float64)
    return replace(
        classifier, verifier=verifier_of(similarity[: len(same)], similarity[len(same) :], "eer", "whitened")
    )


def _accuracy_with_lookalikes(classifier: Classifier, estimate: LeaveOneOut, train_rows: _TrainRows) -> float:
    """Return the accuracy on new images that look like training images as much as these look like each other."""
    usable = np.flatnonzero(estimate.usable)
    scores, rows = train_rows.scores(classifier, estimate)[usable], estimate.rows[usable]
    targets, weights = train_rows.targets[rows], train_rows.weights[rows]
    log_odds = _log_odds_at_full_size(scores, targets, weights, estimate, usable)
    return float(np.average(ahead_of_others(log_odds, targets) > 0, weights=weights))


def _log_odds_at_full_size(scores: Scores, targets: Array, weights: Array, estimate: LeaveOneOut, rows: Array) -> Array:
    """Return the log-odds ``[n, k]`` that new images like these rows would have.

    None of their label will be left out for them. So their own label is as well known as the others, and its margin to the best of
    these varies less, around the same mean.
    """
    raw = scores.raw.copy()
    raw[np.arange(len(rows)), targets] = estimate.own_scores[rows]
    log_odds = scores.classifier.calibration.log_odds(raw)
    lead = ahead_of_others(log_odds, targets)
    usual = np.average(lead, weights=weights)
    new = usual + (lead - usual) * estimate.margin_ratio[rows]
    log_odds[np.arange(len(rows)), targets] += new - lead
    return log_odds


def left_out_scores(classifier: Classifier, embeddings: Array, estimate: LeaveOneOut) -> Scores:
    """Return the scores of training images left out; labels without any have the scores that they always have."""
    rows, raw = embeddings[estimate.rows], estimate.scores
    if raw.shape[1] < len(classifier.labels):
        raw = np.concatenate([raw, classifier.score(rows)[:, raw.shape[1] :]], 1)
    return classifier.scores_of(rows, raw, estimate.outlier_scores, estimate.nearest)
