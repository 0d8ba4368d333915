"""Scores and label codes of models whose score is linear in the image code."""

import torch
from torch import Tensor


def linear_scores(image_codes: Tensor, label_codes: Tensor) -> Tensor:
    """Return ``[n, k]`` scores from image codes ``[n, d]`` and label codes ``[k, d + 1]`` (weights, then bias)."""
    return torch.addmm(label_codes[:, -1], image_codes, label_codes[:, :-1].T)


def with_one(codes: Tensor) -> Tensor:
    """Return codes ``[n, d + 1]`` with a last column of ones, the factor of the bias."""
    return torch.cat([codes, codes.new_ones(len(codes), 1)], 1)


def code_moments(codes: Tensor, targets: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return what is needed of training codes to add a label later, in double precision.

    Args:
        codes: image codes ``[n, d]``.
        targets: their labels ``[n]`` in 0..k-1.
        k: how many labels.

    Returns:
        The second moment ``[d + 1, d + 1]`` of codes with a one appended, every class weighing the same, and the
        mean covariance ``[d, d]`` inside a class.
    """
    x = codes.double()
    counts = torch.bincount(targets, minlength=k).double()
    weight = (1 / (counts.clamp_min(1) * (counts > 0).sum()))[targets]
    full = with_one(x)
    moment = (full * weight[:, None]).T @ full
    means = x.new_zeros(k, x.shape[1]).index_add_(0, targets, x) / counts.clamp_min(1)[:, None]
    inside = x - means[targets]
    return moment, (inside * weight[:, None]).T @ inside


def solve_label_code(
    examples: Tensor, moment: Tensor, within: Tensor, levels: tuple[float, float], *, ridge: float = 0.05
) -> Tensor:
    """Return the code ``[d + 1]`` of a new label that best separates its examples from the training codes.

    The closed form of a weighted least squares problem: the score should be ``yes`` on the new label's images and
    ``no`` on the training images. The new label's images are taken to lie around the mean of the examples with the
    spread that trained labels have (``within``), because a handful of examples shows too little of it. Both sides
    weigh the same. The result is then stretched so that the mean example scores ``yes`` and the mean training
    image ``no``, which puts it on the scale of the trained labels.

    Args:
        examples: image codes of the new label ``[m, d]``.
        moment: second moment of training codes with a one appended ``[d + 1, d + 1]``.
        within: covariance inside a class ``[d, d]``.
        levels: the mean score of right pairs (yes) and of wrong pairs (no) in training.
        ridge: the penalty on the weights, relative to the mean variance of the codes.
    """
    yes, no = levels
    x = examples.double()
    mean = with_one(x.mean(0)[None])[0]
    around = torch.outer(mean, mean)
    around[:-1, :-1] += within.double()
    system = moment.double() + around
    penalty = ridge * within.double().diagonal().mean().clamp_min(1e-8)
    system[:-1, :-1] += torch.eye(len(mean) - 1, dtype=system.dtype, device=system.device) * penalty
    code: Tensor = torch.linalg.solve(system, yes * mean + no * moment.double()[-1])
    high, low = code @ mean, code @ moment.double()[-1]
    stretch = (yes - no) / (high - low).clamp_min(1e-6)
    code = code * stretch
    code[-1] += yes - high * stretch
    return code.to(examples.dtype)
