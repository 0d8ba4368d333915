"""What a picture looks like without knowing what it shows: its colours by region, and how its edges lie."""

from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import interpolate

SIDE: Final = 32  # pictures are brought to so many pixels a side
RIM, BAND, MIDDLE = 4, 6, 8  # pixels: the rim, the bands at top and bottom, what lies around the centre
REGIONS: Final = ("top", "centre", "bottom", "rim")
# Of each region: lightness, red against green, yellow against blue, colourfulness, how uneven its lightness is.
COLOURS: Final = ("light", "red", "yellow", "colourful", "uneven")
# Share of coarse and of fine structure, upright edges against level ones, edges at the centre, left like right, edges that
# are upright or level against slanted ones, edges in all, centre unlike rim, a few strong edges.
SHAPES: Final = ("coarse", "fine", "upright", "central", "symmetric", "square", "edges", "contrast", "sharp")
LOOKS: Final = (*(f"{region} {colour}" for region in REGIONS for colour in COLOURS), *SHAPES)


def looks(images: Tensor) -> Tensor:
    """Return what pictures look like ``[n, len(LOOKS)]``, from images in [0, 1] ``[n, c, h, w]``, grey or in colour."""
    small = images if images.shape[-2:] == (SIDE, SIDE) else interpolate(images, size=(SIDE, SIDE), mode="area")
    lab = to_lab(small.expand(-1, 3, -1, -1) if small.shape[1] == 1 else small[:, :3])
    regions = _regions(images.device)
    colours = [_colours(lab[:, :, inside]) for inside in regions]
    centre, rim = (lab[:, :, inside].mean(2) for inside in (regions[1], regions[3]))
    return torch.cat([*colours, _shapes(lab[:, 0], (centre - rim).square().sum(1).sqrt())], 1)


def to_lab(images: Tensor) -> Tensor:
    """Return CIE L*a*b* ``[n, 3, h, w]`` of sRGB images in [0, 1] ``[n, 3, h, w]`` (white is that of D65)."""
    linear = torch.where(images > 0.04045, ((images + 0.055) / 1.055) ** 2.4, images / 12.92)
    mix = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    white = images.new_tensor([0.9505, 1.0, 1.089])[:, None, None]
    xyz = torch.einsum("ij,njhw->nihw", images.new_tensor(mix), linear) / white
    x, y, z = torch.where(xyz > 0.008856, xyz.clamp_min(1e-9) ** (1 / 3), 7.787 * xyz + 16 / 116).unbind(1)
    return torch.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], 1)


def _regions(device: torch.device) -> list[Tensor]:
    """Return which pixels belong to each region ``[SIDE, SIDE]`` (bool)."""
    place = torch.arange(SIDE, device=device)
    off = torch.minimum(place, SIDE - 1 - place)  # pixels from the nearer end
    row, inside = place[:, None].expand(SIDE, SIDE), torch.minimum(off[:, None], off)
    return [row < BAND, inside >= MIDDLE, row >= SIDE - BAND, inside < RIM]


def _colours(lab: Tensor) -> Tensor:
    """Return what ``COLOURS`` names ``[n, 5]``, of the pixels of a region ``[n, 3, p]``."""
    colourful = lab[:, 1:].square().sum(1).sqrt().mean(1)
    return torch.cat([lab.mean(2), colourful[:, None], lab[:, 0].std(1)[:, None]], 1)


def _shapes(light: Tensor, contrast: Tensor) -> Tensor:
    """Return what ``SHAPES`` names ``[n, 9]``, from lightness ``[n, SIDE, SIDE]`` and how unlike centre and rim are ``[n]``."""
    level, upright = light[:, 2:, 1:-1] - light[:, :-2, 1:-1], light[:, 1:-1, 2:] - light[:, 1:-1, :-2]
    size, angle = (level.square() + upright.square()).sqrt(), torch.atan2(level, upright)
    mean = size.mean((1, 2))
    centre = size[:, MIDDLE - 1 : 1 - MIDDLE, MIDDLE - 1 : 1 - MIDDLE]
    around = (size.sum((1, 2)) - centre.sum((1, 2))) / (size[0].numel() - centre[0].numel())
    bands = _bands(light)
    shapes = (
        bands[0],
        bands[1],
        (size * (2 * angle).cos()).mean((1, 2)) / mean.clamp_min(1e-6),
        (centre.mean((1, 2)) + 1).log() - (around + 1).log(),
        -(light - light.flip(2)).abs().mean((1, 2)) / (light.std((1, 2)) + 1),
        (size * (4 * angle).cos()).mean((1, 2)) / mean.clamp_min(1e-6),
        mean,
        contrast,
        size.flatten(1).quantile(0.95, dim=1) / (mean + 1),
    )
    return torch.stack(shapes, 1)


def _bands(light: Tensor) -> Tensor:
    """Return the logarithm of the share of power in the coarsest and the finest structure ``[2, n]``."""
    power = torch.fft.fft2(light - light.mean((1, 2), keepdim=True)).abs().square()
    steps = torch.fft.fftfreq(SIDE, device=light.device)
    waves = (steps[:, None].square() + steps.square()).sqrt()
    total = (power * (waves > 0)).sum((1, 2)).clamp_min(1e-9)
    ends = (waves > 0) & (waves <= 0.07), waves > 0.3
    return torch.stack([((power * inside).sum((1, 2)) / total).clamp_min(1e-6).log() for inside in ends])
