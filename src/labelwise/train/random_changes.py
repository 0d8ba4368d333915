"""Random changes of a whole batch, one drawn for each image, in the manner of RandAugment (Cubuk et al. 2020).

Every kind is computed for the whole batch and the drawn one is kept, so that nothing waits for the device. Equalisation of the
histogram, which would need a sort of all pixels, is left out.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, avg_pool2d, grid_sample

LUMA = (0.299, 0.587, 0.114)
KINDS = (
    "none",
    "brightness",
    "contrast",
    "saturation",
    "sharpness",
    "autocontrast",
    "solarize",
    "posterize",
    "rotate",
    "shear across",
    "shear down",
    "move across",
    "move down",
)
_FACTOR, _ANGLE, _SHEAR, _MOVE = 0.9, torch.pi / 6, 0.3, 0.9  # at full strength; a move is in half sides


def random_change(images: Tensor, uniform: Tensor, strength: float) -> Tensor:
    """Return images ``[n, c, h, w]`` of one or three channels, floats in [0, 1], each with one change.

    ``uniform [n, 2]`` are numbers in [0, 1): which of ``KINDS``, and which way. Strength goes from 0 (almost nothing)
    to 1.
    """
    kind = (uniform[:, :1] * len(KINDS)).long().clamp_max(len(KINDS) - 1)[..., None, None]
    signs = torch.where(uniform[:, 1] < 0.5, -1.0, 1.0)

    def is_kind(*names: str) -> Tensor:
        return torch.stack([kind == KINDS.index(name) for name in names]).any(0)  # no constant comes from the host

    x = torch.where(is_kind(*KINDS[1:5]), _blended(images, is_kind, 1 + _FACTOR * strength * signs), images)
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    x = torch.where(is_kind("autocontrast"), (x - low) / (high - low).clamp_min(1 / 255), x)
    x = torch.where(is_kind("solarize") & (x >= 1 - strength), 1 - x, x)
    step = 2 ** round(4 * strength)
    x = torch.where(is_kind("posterize"), (x * 255 / step + 1e-4).floor() * step / 255, x)
    warped = _warp(x, kind[:, 0, 0, 0], signs * strength)
    return torch.where(is_kind(*KINDS[8:]), warped, x).clamp(0, 1)


def _blended(images: Tensor, is_kind: Callable[..., Tensor], factors: Tensor) -> Tensor:
    """Return images further from, or nearer to, what brightness, contrast, saturation or sharpness are measured from."""
    weights = LUMA if images.shape[1] == 3 else (1.0,)
    grey = torch.stack([weight * images[:, i] for i, weight in enumerate(weights)], 1).sum(1, keepdim=True)
    smooth = avg_pool2d(images, 3, 1, 1, count_include_pad=False)
    still = torch.where(
        is_kind("saturation"), grey, torch.where(is_kind("sharpness"), smooth, torch.zeros_like(images))
    )
    still = torch.where(is_kind("contrast"), grey.mean((2, 3), keepdim=True), still)
    return (still + factors.view(-1, 1, 1, 1) * (images - still)).clamp(0, 1)


def _warp(images: Tensor, kind: Tensor, amounts: Tensor) -> Tensor:
    """Return images turned, sheared or moved, by amounts in -1..1 of the full strength ``[n]``; what comes in is black."""

    def of(name: str, full: float) -> Tensor:
        return torch.where(kind == KINDS.index(name), amounts * full, torch.zeros_like(amounts))

    angle, ratio = of("rotate", _ANGLE), images.shape[2] / images.shape[3]
    rows = (
        torch.stack([angle.cos(), of("shear across", _SHEAR) - angle.sin() * ratio, of("move across", _MOVE)], 1),
        torch.stack([of("shear down", _SHEAR) + angle.sin() / ratio, angle.cos(), of("move down", _MOVE)], 1),
    )
    grid = affine_grid(torch.stack(rows, 1).to(images), list(images.shape), align_corners=False)
    return grid_sample(images, grid, align_corners=False)
