"""Figures that say how good answers are: plain functions of predictions or scores.

Inputs are tensors, arrays or lists. Predictions and targets are positions of labels; a larger score means yes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelwise.errors import UsageError

Values = Tensor | NDArray[Any] | Sequence[float]


def accuracy(predicted: Values, targets: Values) -> float:
    """Return the share of predictions ``[n]`` that equal their target ``[n]``."""
    given, right = _positions(predicted, targets, lowest=-1)
    return float((given == right).double().mean())


def class_accuracies(predicted: Values, targets: Values, classes: int | None = None) -> Tensor:
    """Return the accuracy within each class ``[k]``; NaN where a class has no target.

    Args:
        predicted: positions ``[n]``; -1 where the answer was "unknown", which is wrong for every class.
        targets: positions ``[n]``.
        classes: k; by default one more than the largest target.
    """
    given, right = _positions(predicted, targets, lowest=-1)
    k = _classes(classes, right)
    hits = torch.bincount(right[given == right], minlength=k).double()
    return hits / torch.bincount(right, minlength=k)


def per_class_accuracy(predicted: Values, targets: Values) -> float:
    """Return the mean of the accuracies within each class that has a target."""
    return float(class_accuracies(predicted, targets).nanmean())


def harmonic_mean(unseen: float, seen: float) -> float:
    """Return the harmonic mean of two accuracies (generalised zero-shot: of unseen and of seen classes)."""
    if not (0 <= unseen < math.inf and 0 <= seen < math.inf):
        raise UsageError(f"A harmonic mean needs two numbers that are not negative; given {unseen} and {seen}.")
    return 2 * unseen * seen / (unseen + seen) if unseen + seen > 0 else 0.0


def confusion_matrix(predicted: Values, targets: Values, classes: int | None = None) -> Tensor:
    """Return counts ``[k, k]``: row is the target, column the prediction.

    Args:
        predicted: positions ``[n]``.
        targets: positions ``[n]``.
        classes: k; by default one more than the largest position.
    """
    given, right = _positions(predicted, targets)
    k = _classes(classes, torch.cat([given, right]))
    return torch.bincount(right * k + given, minlength=k * k).view(k, k)


def auroc(positive: Values, negative: Values) -> float:
    """Return the probability that a positive scores above a negative ``[p], [q]``; a tie counts one half."""
    up, down = _scores(positive, "positive").contiguous(), _scores(negative, "negative").sort().values
    twice = torch.searchsorted(down, up).sum() + torch.searchsorted(down, up, right=True).sum()
    return int(twice) / (2 * len(up) * len(down))


def fpr_at_tpr(positive: Values, negative: Values, tpr: float = 0.95) -> float:
    """Return the share of negatives accepted at the strictest threshold that accepts a share ``tpr`` of positives.

    A score equal to the threshold is accepted.
    """
    if not 0 < tpr <= 1:
        raise UsageError(f"The true positive rate must lie above 0 and at most at 1; given {tpr}.")
    up, down = _scores(positive, "positive"), _scores(negative, "negative")
    needed = math.ceil(tpr * len(up) - 1e-9)
    threshold = up.sort(descending=True).values[max(needed, 1) - 1]
    return float((down >= threshold).double().mean())


class EqualError(NamedTuple):
    """Where as many positives are refused as negatives are accepted.

    Attributes:
        rate: the share of either, read off the straight line between the two nearest thresholds.
        threshold: the one where both shares are nearest; a score at least as large is accepted.
    """

    rate: float
    threshold: float


def equal_error_rate(positive: Values, negative: Values) -> EqualError:
    """Return the equal error rate of scores of positives ``[p]`` and negatives ``[q]``, and its threshold."""
    up, down = _scores(positive, "positive"), _scores(negative, "negative")
    values = torch.from_numpy(np.unique(torch.cat([up, down]).numpy()))
    if not values.isfinite().all():
        raise UsageError("The equal error rate needs finite scores; some are infinite.")
    refused = torch.searchsorted(up.sort().values, values).double() / len(up)
    accepted = 1 - torch.searchsorted(down.sort().values, values).double() / len(down)
    refused = torch.cat([refused, refused.new_ones(1)])  # the last threshold lies above every score
    accepted = torch.cat([accepted, accepted.new_zeros(1)])
    gap = refused - accepted  # from -1 to 1, never decreasing
    after = int((gap >= 0).nonzero()[0])
    low, high = gap[after - 1], gap[after]
    part = low / (low - high)
    rate = torch.lerp(refused[after - 1], refused[after], part)
    best = int(gap[:-1].abs().argmin())
    below, at = float(values[max(best - 1, 0)]), float(values[best])
    middle = below / 2 + at / 2
    return EqualError(rate=float(rate), threshold=middle if below < middle else at)


@dataclass(frozen=True, eq=False)
class Reliability:
    """How often answers of a given confidence are right; bins of equal width over [0, 1].

    Attributes:
        confidence: mean confidence in each bin ``[b]``; NaN where it is empty.
        accuracy: share of correct answers in each bin ``[b]``; NaN where it is empty.
        count: answers in each bin ``[b]``.
    """

    confidence: Tensor
    accuracy: Tensor
    count: Tensor


def reliability(confidence: Values, correct: Values, bins: int = 15) -> Reliability:
    """Return mean confidence, accuracy and count of each bin; a bin contains its upper edge.

    Args:
        confidence: probability given to each answer ``[n]``.
        correct: whether each answer was right ``[n]``.
        bins: how many.
    """
    sure, right = _probability(confidence), _whole(correct, "answer")
    if sure.ndim != 1 or sure.shape != right.shape or bool((right > 1).any()) or bins < 1:
        raise UsageError(
            f"Calibration needs one confidence and one yes or no (1 or 0) for each answer, and at least one bin; "
            f"given {list(sure.shape)} confidences, {list(right.shape)} answers and {bins} bins."
        )
    edges = torch.arange(1, bins, dtype=torch.float64) / bins
    places = torch.bucketize(sure, edges)
    count = torch.bincount(places, minlength=bins)
    totals = [torch.bincount(places, weights=values.double(), minlength=bins) for values in (sure, right)]
    return Reliability(confidence=totals[0] / count, accuracy=totals[1] / count, count=count)


def expected_calibration_error(confidence: Values, correct: Values, bins: int = 15) -> float:
    """Return the mean distance between confidence and accuracy, over bins of equal width weighted by count."""
    table = reliability(confidence, correct, bins)
    gaps = (table.confidence - table.accuracy).abs().nan_to_num(0)
    return float((gaps * table.count).sum() / table.count.sum())


def brier(probabilities: Values, targets: Values) -> float:
    """Return the mean squared error of probabilities.

    Args:
        probabilities: of every label ``[n, k]`` (errors are summed over labels), or of a yes ``[n]``.
        targets: the right label of each ``[n]``, or 1 for yes and 0 for no.
    """
    given, right = _probability(probabilities), _whole(targets, "target")
    most = given.shape[1] if given.ndim == 2 else 2
    if given.ndim > 2 or len(given) != len(right) or int(right.max()) >= most:
        raise UsageError(
            f"The Brier score needs probabilities [n, k], or [n] for yes and no, and n targets below k (or 2); "
            f"given {list(given.shape)} and {len(right)} targets up to {int(right.max())}."
        )
    if given.ndim == 1:
        return float((given - right).square().mean())
    return float((given - torch.nn.functional.one_hot(right, most)).square().sum(1).mean())


def quadratic_kappa(predicted: Values, targets: Values) -> float:
    """Return Cohen's kappa of ordered classes with quadratic weights: 1 is perfect, 0 is chance."""
    from sklearn.metrics import cohen_kappa_score

    given, right = _positions(predicted, targets)
    classes = range(_classes(None, torch.cat([given, right])))  # those that nobody names count as steps, too
    if bool((given == right[0]).all() and (right == right[0]).all()):
        raise UsageError("Kappa is not defined where targets and predictions are all the same class.")
    return float(cohen_kappa_score(given.numpy(), right.numpy(), labels=classes, weights="quadratic"))


def mean_absolute_error_in_classes(predicted: Values, targets: Values) -> float:
    """Return how many classes a prediction is off on average; classes are ordered."""
    given, right = _positions(predicted, targets)
    return float((given - right).abs().double().mean())


def within_one(predicted: Values, targets: Values) -> float:
    """Return the share of predictions that are at most one class off; classes are ordered."""
    given, right = _positions(predicted, targets)
    return float(((given - right).abs() <= 1).double().mean())


def spearman(scores: Values, targets: Values) -> float:
    """Return the correlation of the ranks of scores and targets ``[n]``: 1 is the same order; ties share their mean rank."""
    from scipy.stats import spearmanr

    said, right = _scores(scores, "prediction").numpy(), _scores(targets, "target").numpy()
    if len(said) != len(right) or said.min() == said.max() or right.min() == right.max():
        raise UsageError(
            f"A rank correlation needs two rows [n] of different numbers; given {[len(said), len(right)]}."
        )
    return float(spearmanr(said, right).statistic)


def _tensor(values: Values, what: str) -> Tensor:
    tensor = values.detach().cpu() if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
    if not tensor.numel():
        raise UsageError(f"No {what} was given; at least one is needed.")
    if tensor.is_floating_point() and bool(tensor.isnan().any()):
        bad = int(tensor.reshape(len(tensor), -1).isnan().any(1).nonzero()[0])
        raise UsageError(f"The {what} in row {bad} is not a number (NaN).")
    return tensor


def _scores(values: Values, what: str) -> Tensor:
    scores = _tensor(values, f"{what} score")
    if scores.ndim != 1:
        raise UsageError(f"Scores of {what}s must be one row of numbers [n]; given {list(scores.shape)}.")
    return scores.double()


def _probability(values: Values) -> Tensor:
    chances = _tensor(values, "probability").double()
    if not 0 <= float(chances.min()) <= float(chances.max()) <= 1 + 1e-6:
        low, high = float(chances.min()), float(chances.max())
        raise UsageError(f"Probabilities must lie in [0, 1]; given {low:g} to {high:g}. Calibrate scores first.")
    return chances


def _whole(values: Values, what: str, lowest: int = 0) -> Tensor:
    numbers = _tensor(values, what)
    whole = numbers.long()
    if numbers.ndim != 1 or bool((whole != numbers).any()) or int(whole.min()) < lowest:
        raise UsageError(f"Each {what} must be a whole number, at least {lowest}, in one row [n].")
    return whole


def _positions(predicted: Values, targets: Values, lowest: int = 0) -> tuple[Tensor, Tensor]:
    given, right = _whole(predicted, "prediction", lowest), _whole(targets, "target")
    if len(given) != len(right):
        raise UsageError(f"There are {len(given)} predictions but {len(right)} targets; give one for each image.")
    return given, right


def _classes(classes: int | None, positions: Tensor) -> int:
    needed = int(positions.max()) + 1
    if classes is not None and classes < needed:
        raise UsageError(f"There are {classes} classes but a position of {needed - 1}; positions start at 0.")
    return classes or needed
