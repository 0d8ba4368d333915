"""Maps from raw scores to probabilities, fitted on held-out scores."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from labelwise.images.targets import truth_table

MOST_PAIRS, FEWEST_ROWS = 2**23, 300  # of images and labels that a map is fitted on at most; but of so many images
BLOCK = 2**15  # pairs that are computed at a time
MOST_STEPS = 100  # of Newton's method; a handful is usual
SOFTEST = 1e-6  # the least inverse temperature, relative to the spread of scores: they say nothing, then


Numbers = NDArray[np.float64]
Loss = Callable[[Numbers], tuple[float, Numbers]]  # its value, and its slope
Bent = Callable[[Numbers], tuple[float, Numbers, Numbers]]  # and how its slope changes


def most_rows(k: int) -> int:
    """Return how many images with scores of k labels a map is fitted on at most: more make it no better, and each takes k numbers."""
    return max(FEWEST_ROWS, MOST_PAIRS // k)


def fit_platt(scores: Tensor, targets: Tensor) -> tuple[float, float]:
    """Return (scale, offset) such that sigmoid(scores * scale + offset) is the probability of a yes.

    One scale and one offset for all labels, fitted by maximum likelihood to all pairs of image and label; the scale
    is positive, so the order of labels stays. Targets are smoothed as Platt did, by one pair of each kind that is the other,
    which keeps the scale finite where held-out images are separated without error. The yes among the noes lies where it is
    most to be expected: on the best wrong label of each image. Spread over all labels, as far away as some are, it would
    outweigh all images. Scores are ``[n, k]``, targets ``[n]`` or ``[n, k]`` (bool).
    """
    x = scores.double().detach()
    truth = truth_table(targets, x.shape[1])
    wrong = _best_wrong(x, truth)
    yes, no = truth.sum(), wrong.sum()
    soft = torch.where(truth, (yes + 1) / (yes + 2), wrong / (no + 2)).double()
    spread = float(x.std()) if x.numel() > 1 else 1.0
    x = x / max(spread, 1e-12)

    parts = list(zip(torch.split(x.flatten(), BLOCK), torch.split(soft.flatten(), BLOCK), strict=True))

    def cross_entropy(p: Numbers) -> tuple[float, Numbers, Numbers]:
        """Return the mean cross entropy of answers, its slope and its bend, by blocks that stay in a processor's cache."""
        scale, offset = p.tolist()
        sums = x.new_zeros(6)
        for numbers, wanted in parts:
            odds = numbers * scale + offset
            chance = odds.sigmoid()
            excess, bend = chance - wanted, chance * (1 - chance)
            value = (wanted * -odds - logsigmoid(-odds)).sum()
            bends = (bend @ numbers.square(), bend @ numbers, bend.sum())
            sums += torch.stack([value, excess @ numbers, excess.sum(), *bends])
        value, *slope, squares, mixed, whole = (sums / x.numel()).tolist()
        return value, np.array(slope), np.array([[squares, mixed], [mixed, whole]])

    scale, offset = _newton(cross_entropy, np.array([1.0, 0.0])) or _positive(cross_entropy)
    return scale / max(spread, 1e-12), offset


def fit_platt_each(scores: Tensor, truths: Tensor) -> tuple[Tensor, Tensor]:
    """Return a scale and an offset of each label ``[k]``: sigmoid(scores * scale + offset) is the probability of a yes.

    Labels differ in how frequent and how hard they are, but one that few held-out images have says little about itself.
    So each label departs from what ``fit_platt`` finds for all of them as far as its own images ask for it: the log of its
    scale and its offset have a standard normal prior around the common ones (maximum a posteriori). Scores and truths are
    ``[n, k]``.
    """
    scale, offset = fit_platt(scores, truths)
    x, truth = scores.double().detach() * scale + offset, truths.double()

    def loss(p: Tensor) -> Tensor:
        stretch, shift = p.to(x.device).view(2, -1)
        likelihood = binary_cross_entropy_with_logits(x * stretch.exp() + shift, truth, reduction="sum")
        return (likelihood + 0.5 * p.to(x.device).square().sum()) / len(x)

    stretch, shift = torch.tensor(_minimise(_with_slope(loss), [0.0] * (2 * x.shape[1]))).to(x).view(2, -1)
    each = stretch.exp()
    return (scale * each).to(scores.dtype), (offset * each + shift).to(scores.dtype)


def fit_temperature(scores: Tensor, targets: Tensor) -> float:
    """Return T such that softmax(scores / T) is the probability of each label, by maximum likelihood.

    The true label gives one pseudo-count in all to the best wrong one of each image, which keeps T above zero where held-out
    images are classified without error. (Given to all labels alike, those that are far from right, the far end of ordered
    ones, would make every answer unsure.)
    """
    x = scores.double().detach()
    n, k = x.shape
    if k < 2:
        return 1.0
    truth = truth_table(targets, k)
    spread = float(x.std()) or 1.0
    x = x / spread
    # a pseudo-count on the best wrong label, as one more image that it was would be
    wanted = ((n + 1) * x[truth] + x.masked_fill(truth, float("-inf")).amax(1)) / (n + 2)
    inverse = 1.0
    for _ in range(MOST_STEPS):  # Newton: convex in 1 / T
        chances = (x * inverse).softmax(1)
        mean = (chances * x).sum(1)
        slope = float((mean - wanted).mean())
        bend = float(((chances * x.square()).sum(1) - mean.square()).mean())
        step = min(max(inverse - slope / max(bend, 1e-300), inverse / 4), inverse * 4)
        step = min(max(step, SOFTEST), 1 / SOFTEST)
        if abs(step - inverse) <= 1e-12 * inverse:
            break
        inverse = step
    return spread / inverse


def _best_wrong(scores: Tensor, truth: Tensor) -> Tensor:
    """Return which label of each image is the best of those that are not true ``[n, k]`` (bool); none where all are."""
    best = scores.masked_fill(truth, float("-inf")).argmax(1, keepdim=True)
    return torch.zeros_like(truth).scatter_(1, best, value=True) & ~truth


def _with_slope(loss: Callable[[Tensor], Tensor]) -> Loss:
    """Return a loss that tells its slope, too."""

    def value_and_slope(numbers: Numbers) -> tuple[float, Numbers]:
        with torch.enable_grad():
            point = torch.from_numpy(numbers.copy()).requires_grad_()
            value = loss(point)
            (slope,) = torch.autograd.grad(value, point)
        return float(value.detach()), slope.numpy()

    return value_and_slope


def _newton(loss: Bent, point: Numbers) -> list[float] | None:
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


def _positive(loss: Bent) -> list[float]:
    """Return a first number above zero and a second for which a loss is least."""

    def by_log(p: Numbers) -> tuple[float, Numbers]:
        value, slope, _ = loss(np.array([np.exp(p[0]), p[1]]))
        return value, slope * (np.exp(p[0]), 1.0)

    log_first, second = _minimise(by_log, [0.0, 0.0])
    return [float(np.exp(log_first)), second]


def _minimise(loss: Loss, start: list[float]) -> list[float]:
    """Return where a loss is least; the solver of torch would import its compiler first, which takes longer than all else."""
    from scipy.optimize import minimize  # takes a quarter of a second to import
    from threadpoolctl import threadpool_limits

    def held(numbers: Numbers) -> tuple[float, Numbers]:
        value, slope = loss(numbers)
        return value + 1e-9 * float(np.square(numbers).sum()), slope + 2e-9 * numbers

    limits = {"maxiter": 200, "gtol": 1e-10, "ftol": 1e-15}
    with threadpool_limits(1, "blas"):  # its matrices have ten rows: threads that share them only wait for each other
        least = minimize(held, np.array(start), jac=True, method="L-BFGS-B", options=limits)
    return [float(number) for number in least.x]
