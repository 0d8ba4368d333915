"""Low-level image statistics: colours by region, and orientation of edges."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from labelwise.images.decode.headers import area

Array = npt.NDArray[Any]
SIDE: Final = 32  # pixels a side that images are brought to
RIM, BAND, MIDDLE = 4, 6, 8  # pixels: the rim, the bands at top and bottom, the area around the centre
REGIONS: Final = ("top", "centre", "bottom", "rim")
# Of each region: lightness, red against green, yellow against blue, colourfulness, how uneven its lightness is.
COLOURS: Final = ("light", "red", "yellow", "colourful", "uneven")
# Share of coarse and of fine structure, upright edges against level ones, edges at the centre, left like right, edges that
# are upright or level against slanted ones, edges in all, centre unlike rim, a few strong edges.
SHAPES: Final = ("coarse", "fine", "upright", "central", "symmetric", "square", "edges", "contrast", "sharp")
LOOKS: Final = (*(f"{region} {colour}" for region in REGIONS for colour in COLOURS), *SHAPES)


def looks(images: Array) -> Array:
    """Return low-level statistics of images ``[n, len(LOOKS)]``, from bytes, or floats in [0, 1], ``[n, c, h, w]``, grey or in colour."""
    images = np.asarray(images)
    small = _small(images) / (255 if images.dtype == np.uint8 else 1)
    lab = to_lab(np.repeat(small, 3, 1) if small.shape[1] == 1 else small[:, :3])
    regions = _regions()
    colours = [_colours(lab[:, :, inside]) for inside in regions]
    centre, rim = (lab[:, :, inside].mean(2) for inside in (regions[1], regions[3]))
    shapes = _shapes(lab[:, 0], np.sqrt(((centre - rim) ** 2).sum(1)))
    return np.concatenate([*colours, shapes], 1).astype(np.float32)


def _small(images: Array) -> Array:
    """Return images as floats ``[n, c, SIDE, SIDE]``: the mean over the pixels that each new one covers."""
    if images.shape[2:] == (SIDE, SIDE):
        return images.astype(np.float64)
    return np.stack([np.stack([area(channel, SIDE, SIDE) for channel in image.astype(np.float64)]) for image in images])


def to_lab(images: Array) -> Array:
    """Return CIE L*a*b* ``[n, 3, h, w]`` of sRGB images in [0, 1] ``[n, 3, h, w]`` (white is that of D65)."""
    linear = np.where(images > 0.04045, ((images + 0.055) / 1.055) ** 2.4, images / 12.92)
    mix = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    white = np.array([0.9505, 1.0, 1.089])[:, None, None]
    xyz = np.einsum("ij,njhw->nihw", mix, linear) / white
    xyz = np.where(xyz > 0.008856, np.maximum(xyz, 1e-9) ** (1 / 3), 7.787 * xyz + 16 / 116)
    x, y, z = xyz[:, 0], xyz[:, 1], xyz[:, 2]
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], 1)


def _regions() -> list[Array]:
    """Return which pixels belong to each region ``[SIDE, SIDE]`` (bool)."""
    place = np.arange(SIDE)
    edge_distance = np.minimum(place, SIDE - 1 - place)  # pixels from the nearer end
    row, inside = np.broadcast_to(place[:, None], (SIDE, SIDE)), np.minimum(edge_distance[:, None], edge_distance)
    return [row < BAND, inside >= MIDDLE, row >= SIDE - BAND, inside < RIM]


def _colours(lab: Array) -> Array:
    """Return what ``COLOURS`` names ``[n, 5]``, of the pixels of a region ``[n, 3, p]``."""
    colourful = np.sqrt((lab[:, 1:] ** 2).sum(1)).mean(1)
    return np.concatenate([lab.mean(2), colourful[:, None], lab[:, 0].std(1, ddof=1)[:, None]], 1)


def _shapes(light: Array, contrast: Array) -> Array:
    """Return the values of ``SHAPES`` ``[n, 9]``, from lightness ``[n, SIDE, SIDE]`` and the difference of centre and rim ``[n]``."""
    level, upright = light[:, 2:, 1:-1] - light[:, :-2, 1:-1], light[:, 1:-1, 2:] - light[:, 1:-1, :-2]
    size, angle = np.sqrt(level**2 + upright**2), np.arctan2(level, upright)
    mean = size.mean((1, 2))
    centre = size[:, MIDDLE - 1 : 1 - MIDDLE, MIDDLE - 1 : 1 - MIDDLE]
    border_mean = (size.sum((1, 2)) - centre.sum((1, 2))) / (size[0].size - centre[0].size)
    coarse, fine = _bands(light)
    shapes = (
        coarse,
        fine,
        (size * np.cos(2 * angle)).mean((1, 2)) / np.maximum(mean, 1e-6),
        np.log(centre.mean((1, 2)) + 1) - np.log(border_mean + 1),
        -np.abs(light - light[:, :, ::-1]).mean((1, 2)) / (light.std((1, 2), ddof=1) + 1),
        (size * np.cos(4 * angle)).mean((1, 2)) / np.maximum(mean, 1e-6),
        mean,
        contrast,
        np.quantile(size.reshape(len(size), -1), 0.95, axis=1) / (mean + 1),
    )
    return np.stack(shapes, 1)


def _bands(light: Array) -> tuple[Array, Array]:
    """Return the logarithm of the share of power in the coarsest and in the finest structure, each ``[n]``."""
    power = np.abs(np.fft.fft2(light - light.mean((1, 2), keepdims=True))) ** 2
    steps = np.fft.fftfreq(SIDE)
    waves = np.sqrt(steps[:, None] ** 2 + steps**2)
    total = np.maximum((power * (waves > 0)).sum((1, 2)), 1e-9)
    ends = (waves > 0) & (waves <= 0.07), waves > 0.3
    coarse, fine = (np.log(np.maximum((power * inside).sum((1, 2)) / total, 1e-6)) for inside in ends)
    return coarse, fine
