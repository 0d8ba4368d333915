"""Maximum mean discrepancy: how far apart two samples are, as a kernel sees them."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Kernel = Literal["single", "mixture"]
WIDTHS = (0.1, 0.2, 1.5, 3.0, 5.0, 10.0)


def mmd(a: Tensor, b: Tensor, kernel: Kernel = "single") -> Tensor:
    """Return the squared maximum mean discrepancy between samples ``[n, d]`` and ``[m, d]``, a number that is 0 or more.

    It is the biased estimate (a vector counts as a pair with itself): the squared distance between the kernel means of the
    two samples, so it is never negative, 0 where the samples are the same, and bounded, which matters where it is
    maximised. Computed in float32 at least, whatever autocast says. The kernel ``single`` is ``2 d / (2 d + distance²)``,
    ``mixture`` the sum of ``c / (c + distance²)`` over ``WIDTHS``.
    """
    widths = (2.0 * a.shape[1],) if kernel == "single" else WIDTHS
    with torch.autocast(a.device.type, enabled=False):
        a, b = (x if x.dtype == torch.float64 else x.float() for x in (a, b))
        middle = b.detach().mean(0)  # distances stay the same, and what is far from 0 loses no digits
        a, b = a - middle, b - middle
        return _likeness(a, a, widths) + _likeness(b, b, widths) - 2 * _likeness(a, b, widths)


def _likeness(a: Tensor, b: Tensor, widths: Sequence[float]) -> Tensor:
    """Return the mean kernel of all pairs, a number."""
    squares = torch.addmm((a * a).sum(1)[:, None] + (b * b).sum(1), a, b.T, alpha=-2).clamp_min(0)
    return sum((width * (squares + width).reciprocal().mean() for width in widths), a.new_zeros(()))
