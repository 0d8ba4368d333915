"""Fit maps from raw scores to probabilities, on held-out or leave-one-out scores."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike, NDArray

from labelwise.core.arrays import sigmoid, softmax, softplus
from labelwise.images.dataset import truth_table

MOST_PAIRS, FEWEST_ROWS = (
    2**23,
    300,
)  # at most this many pairs of image and label are fitted, and at least this many images
BLOCK = 2**15  # pairs that are computed at a time, so that they stay in the processor's cache
MOST_STEPS = 100  # of Newton's method; a handful is usual
SOFTEST = 1e-6  # the least inverse temperature, relative to the spread of scores: they say nothing, then


Numbers = NDArray[np.float64]
Loss = Callable[[Numbers], tuple[float, Numbers]]  # its value and gradient
CurvedLoss = Callable[[Numbers], tuple[float, Numbers, Numbers]]  # its value, gradient and Hessian


def most_rows(k: int) -> int:
    """Return how many images with scores of k labels a map is fitted on at most; more make it no better."""
    return max(FEWEST_ROWS, MOST_PAIRS // k)


def fit_platt(scores: ArrayLike, targets: ArrayLike, weights: ArrayLike | None = None) -> tuple[float, float]:
    """Return (scale, offset) such that sigmoid(scores * scale + offset) is the probability of a yes.

    One scale and one offset for all labels, fitted by maximum likelihood to all pairs of image and label; the scale
    is positive, so the order of labels does not change. As Platt did, targets are smoothed: one pair of each kind counts as the
    other kind, which keeps the scale finite if held-out images are separated without error. The yes among the noes is
    where it is most likely: on the best wrong label of each image. Spread over all labels, some of them far away, it would
    outweigh all images. Scores are ``[n, k]``, targets ``[n]`` or ``[n, k]`` (bool). An image of weight w ``[n]`` counts as w images.
    """
    x = np.asarray(scores, np.float64)
    truth = truth_table(np.asarray(targets), x.shape[1])
    wrong = _best_wrong(x, truth)
    counts = np.ones(len(x)) if weights is None else np.asarray(weights, np.float64)
    positives, negatives = float(counts @ truth.sum(1)), float(counts @ wrong.sum(1))
    soft = np.where(truth, (positives + 1) / (positives + 2), wrong / (negatives + 2)).ravel()
    scale_of_scores = max(_deviation(x), 1e-12)
    pair_weights, total = np.repeat(counts, x.shape[1]), float(counts.sum()) * x.shape[1]
    x = x.ravel() / scale_of_scores
    blocks = [(x[i : i + BLOCK], soft[i : i + BLOCK], pair_weights[i : i + BLOCK]) for i in range(0, len(x), BLOCK)]

    def cross_entropy(p: Numbers) -> tuple[float, Numbers, Numbers]:
        """Return the mean cross entropy of answers, its gradient and its Hessian, block by block."""
        sums = np.zeros(6)
        for numbers, target, share in blocks:
            odds = numbers * p[0] + p[1]
            answers = sigmoid(odds)
            excess, bend = share * (answers - target), share * answers * (1 - answers)
            value = share @ (softplus(odds) - target * odds)
            curvature = (bend @ numbers**2, bend @ numbers, bend.sum())
            sums += np.array([value, excess @ numbers, excess.sum(), *curvature])
        value, first, second, squares, cross_sum, weight_sum = (sums / total).tolist()
        return value, np.array([first, second]), np.array([[squares, cross_sum], [cross_sum, weight_sum]])

    scale, offset = _newton(cross_entropy, np.array([1.0, 0.0])) or _positive(cross_entropy)
    return scale / scale_of_scores, offset


def fit_platt_each(scores: ArrayLike, truths: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return a scale and an offset of each label ``[k]``: sigmoid(scores * scale + offset) is the probability of a yes.

    Labels differ in how frequent and how hard they are, but one that few held-out images have says little about itself.
    So each label departs from what ``fit_platt`` finds for all of them as far as its own images ask for it: the log of its
    scale and its offset have a standard normal prior around the common ones (maximum a posteriori). Scores and truths are
    ``[n, k]``.
    """
    raw, truth = np.asarray(scores), np.asarray(truths)
    scale, offset = fit_platt(raw, truth)
    x = raw.astype(np.float64) * scale + offset
    n, k = x.shape

    def loss(p: Numbers) -> tuple[float, Numbers]:
        stretch, shift = np.exp(p[:k]), p[k:]
        odds = x * stretch + shift
        excess = sigmoid(odds) - truth
        slope = np.concatenate([(excess * x).sum(0) * stretch, excess.sum(0)])
        value = (softplus(odds) - truth * odds).sum() + 0.5 * (p @ p)
        return float(value / n), (slope + p) / n

    least = _minimise(loss, np.zeros(2 * k))
    stretch, shift = np.exp(least[:k]), least[k:]
    return (scale * stretch).astype(raw.dtype), (offset * stretch + shift).astype(raw.dtype)


def fit_temperature(
    scores: ArrayLike, targets: ArrayLike, weights: ArrayLike | None = None, shift: ArrayLike = 0.0
) -> float:
    """Return T such that softmax(scores / T + shift) is the probability of each label, by maximum likelihood.

    The true label gives one pseudo-count in all to the best wrong one of each image, which keeps T above zero where held-out
    images are classified without error. (Given to all labels alike, those that are far from right, the far end of ordered
    ones, would make every answer unsure.) An image of weight w ``[n]`` counts as w images.
    """
    x, shifts = np.asarray(scores, np.float64), np.asarray(shift, np.float64)
    n, k = x.shape
    if k < 2:
        return 1.0
    truth = truth_table(np.asarray(targets), k)
    counts = np.ones(n) if weights is None else np.asarray(weights, np.float64)
    total, share = counts.sum(), counts / counts.sum()
    scale = _deviation(x) or 1.0
    x = x / scale
    # a pseudo-count on the best wrong label, as one more image that it was would be
    target = float(share @ ((total + 1) * x[truth] + np.where(truth, -np.inf, x).max(1)) / (total + 2))
    inverse = 1.0
    for _ in range(MOST_STEPS):  # Newton: convex in 1 / T
        weighted_scores = softmax(x * inverse + shifts) * x
        mean = weighted_scores.sum(1)
        slope = float(share @ mean) - target
        bend = float(share @ ((weighted_scores * x).sum(1) - mean**2))
        step = min(max(inverse - slope / max(bend, 1e-300), inverse / 4), inverse * 4)
        step = min(max(step, SOFTEST), 1 / SOFTEST)
        if abs(step - inverse) <= 1e-12 * inverse:
            break
        inverse = step
    return scale / inverse


def _deviation(x: Numbers) -> float:
    """Return the standard deviation of all numbers; 1 of a single one."""
    return float(x.std(ddof=1)) if x.size > 1 else 1.0


def _best_wrong(scores: Numbers, truth: NDArray[Any]) -> NDArray[Any]:
    """Return which label of each image is the best of those that are not true ``[n, k]`` (bool); none where all are."""
    best = np.where(truth, -np.inf, scores).argmax(1)
    return np.asarray((np.arange(scores.shape[1]) == best[:, None]) & ~truth)


def _newton(loss: CurvedLoss, point: Numbers) -> list[float] | None:
    """Return where a convex loss is least; None where that is not found, or the first number is not above zero there."""
    value, step = np.inf, 0 * point
    for _ in range(MOST_STEPS):
        new, slope, bend = loss(point - step)
        if not new <= value + 1e-14:  # too far: it is no parabola
            step = step / 4
            continue
        point, value = point - step, new
        if step.any() and np.abs(step).max() <= 1e-9 * (1 + np.abs(point).max()):
            return None if point[0] < SOFTEST else list(point.tolist())
        step = np.linalg.solve(bend + 1e-12 * np.eye(len(point)), slope).astype(np.float64)
    return None


def _positive(loss: CurvedLoss) -> list[float]:
    """Return a first number above zero and a second for which a loss is least."""

    def by_log(p: Numbers) -> tuple[float, Numbers]:
        value, slope, _ = loss(np.array([np.exp(p[0]), p[1]]))
        return value, slope * (np.exp(p[0]), 1.0)

    log_first, second = _minimise(by_log, np.zeros(2)).tolist()
    return [float(np.exp(log_first)), second]


def _minimise(loss: Loss, start: Numbers) -> Numbers:
    """Return where a loss is least, held near zero by a very small quadratic term."""
    from scipy.optimize import minimize  # takes a quarter of a second to import
    from threadpoolctl import threadpool_limits

    def ridge(numbers: Numbers) -> tuple[float, Numbers]:
        value, slope = loss(numbers)
        return value + 1e-9 * float(numbers @ numbers), slope + 2e-9 * numbers

    limits = {"maxiter": 200, "gtol": 1e-10, "ftol": 1e-15}
    with threadpool_limits(1, "blas"):  # its matrices have ten rows: threads that share them only wait for each other
        least = minimize(ridge, start, jac=True, method="L-BFGS-B", options=limits)
    return np.asarray(least.x)


Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class LeaveOneOut:
    """Scores of training images, each scored as if it, and its copies, had not been among them."""

    rows: Array  # which of the training images these are [n]: all, or of very many some
    scores: Array  # of every pair [n, k]
    outlier_scores: Array  # [n], see ``head.SensesFamiliarity``
    nearest: Array  # distance to the nearest training image of those that are remembered [n]
    usable: Array  # which rows say something: another image of their label is left [n] (bool)
    groups: Array  # images that were left out together have the same number [n]
    # What a new image would see with all images of its label in training: the score of the label [n], as certain as the others,
    # and how much less the margin to the best of these varies [n].
    own_scores: Array
    margin_ratio: Array


LeftOut = Literal["groups", "copies", "labels"]  # what is left out together with an image


class LeavesOut(Protocol):
    """Statistics of a fit whose training images can be left out in closed form."""

    def leave_one_out(self, also: LeftOut = "groups") -> LeaveOneOut:
        """Return leave-one-out scores, leaving out each image with its group, its copies, or its whole label.

        Without its label an image is a stranger, and that label has the score -inf. No row at all where that cannot be said.
        """

    def pair_cosines(self, pairs: Array) -> Array | None:
        """Return how alike pairs ``[p, 2]`` of training images are by ``head.Whitens.whitened``, as if neither had been seen.

        None where the head does not whiten.
        """
