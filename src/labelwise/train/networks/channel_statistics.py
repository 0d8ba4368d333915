"""Exact mean and standard deviation of image channels and features, for normalisation."""

import math

import torch
from torch import Tensor

from labelwise.support.errors import UsageError
from labelwise.support.processes import current_group, sum_over_processes

CHUNK = 2**22  # numbers held in double precision at a time
FLOOR = 1e-3  # smallest standard deviation, relative to the largest


def channel_statistics(images: Tensor, unit: float) -> tuple[Tensor, Tensor]:
    """Return mean and std of each channel ``[c]`` in double precision, in chunks.

    No std is less than a thousandth of the largest, so that what hardly varies is not blown up; where nothing varies, it is ``unit``.
    """
    if images.dtype == torch.uint8:
        mean, std = _statistics_of_bytes(images)
    else:
        mean, std = _statistics_of_floats(images)
    if not std.isfinite().all():
        raise UsageError("The images hold a value that is not a finite number (NaN or infinity).")
    return mean, std.clamp(min=FLOOR * float(std.max())) if std.any() else torch.full_like(std, unit)


def _statistics_of_bytes(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and std of each channel by exact integer sums; processes share the work."""
    size = math.prod(images.shape[2:])
    sums = torch.zeros(2, images.shape[1], dtype=torch.int64, device=images.device)
    for part in torch.split(images[current_group().own(len(images))], max(1, CHUNK // (size * images.shape[1]))):
        flat = part.flatten(2)
        sums += torch.stack([flat.sum((0, 2)), flat.to(torch.int32).square_().sum((0, 2))])
    sums = sum_over_processes(sums)
    count, pairs = len(images) * size, list(zip(*sums.tolist(), strict=True))
    means = [value / count for value, _ in pairs]
    stds = [math.sqrt((squares * count - value**2) / count**2) for value, squares in pairs]
    mean, std = torch.tensor([means, stds], dtype=torch.float64, device=images.device)
    return mean, std


def _statistics_of_floats(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and std of each channel or feature, in double precision."""

    def mean_of(centre: Tensor, power: int) -> Tensor:
        others = [0, *range(2, images.ndim)]
        centre = centre.view(-1, *[1] * (images.ndim - 2))
        chunks = torch.split(images, max(1, CHUNK // images[0].numel()))
        sums = [(chunk.double() - centre).pow_(power).sum(others) for chunk in chunks]
        return torch.stack(sums).sum(0) / images[:, 0].numel()

    mean = mean_of(torch.zeros(images.shape[1], device=images.device, dtype=torch.float64), 1)
    return mean, mean_of(mean, 2).sqrt()
