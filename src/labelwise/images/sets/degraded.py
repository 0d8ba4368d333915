"""Image quality as ordered labels: each image is degraded by a random amount."""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
from PIL import Image

from labelwise.images.dataset import Dataset, Split
from labelwise.images.decode.headers import SHAPE
from labelwise.images.describe.labels import Labels
from labelwise.images.images import Array, read_all
from labelwise.support.errors import UsageError, listing, suggest

UNTOUCHED = "untouched"
CHUNK = 512  # images changed at a time


@dataclass(frozen=True)
class Kind:
    """A degradation: bytes ``[n, c, h, w]`` and an amount, mildest to harshest, give bytes."""

    mildest: float
    harshest: float
    change: Callable[[Array, float, np.random.Generator], Array]

    def amount(self, step: int, steps: int) -> float:
        """Return the amount of a step from 1 to ``steps``, in a geometric sequence."""
        part = (step - 1) / (steps - 1) if steps > 1 else 1.0
        return math.exp(math.log(self.mildest) * (1 - part) + math.log(self.harshest) * part)


def degraded(
    dataset: Dataset, *, levels: int = 5, kinds: Sequence[str] = ("blur", "jpeg", "noise"), seed: int = 0
) -> Dataset:
    """Return the images with their quality as label: "quality 1 (worst)" to "quality 5 (best)".

    The images of each split are shared out evenly to ``levels``, at random. Those of the best level stay as they
    are; any other is made worse in one way, of ``KINDS``, the more so the lower its level. ``domains`` say in which
    way. All columns but files and groups are dropped: it tells nothing about quality.
    """
    if dataset.features:
        raise UsageError(f'"{dataset.name}" holds precomputed features; only images can be made worse.')
    if levels < 2 or seed < 0 or not kinds:
        raise UsageError(
            f"Quality needs 2 levels, 1 kind and a seed of 0, or more of each; given {levels}, {kinds}, {seed}."
        )
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f'No kind "{kind}" of degradation.{suggest(kind, KINDS)} Kinds: {listing(KINDS)}.')
    splits = {
        name: _degrade(split, levels, kinds, np.random.default_rng((seed, crc32(name.encode()))))
        for name, split in dataset.splits.items()
    }
    return replace(dataset, name=f"{dataset.name}/quality", labels=quality_labels(levels), splits=splits)


def quality_labels(levels: int) -> Labels:
    """Return the labels in order, from worst to best quality."""
    ends = {0: " (worst)", levels - 1: " (best)"}
    names = tuple(f"quality {i + 1}{ends.get(i, '')}" for i in range(levels))
    return Labels(names=names, order=tuple(range(levels)))


def _degrade(split: Split, levels: int, kinds: Sequence[str], rng: np.random.Generator) -> Split:
    """Degrade each image in one way, or leave it; targets are quality levels."""
    order = rng.permutation(len(split))
    steps, ways = order % levels, order // levels % len(kinds)
    images = np.array(read_all(split.images, split.shape or SHAPE))
    for step in range(1, levels):
        for way, name in enumerate(kinds):
            kind = KINDS[name]
            every = np.flatnonzero((steps == step) & (ways == way))
            for rows in (every[start : start + CHUNK] for start in range(0, len(every), CHUNK)):
                images[rows] = kind.change(images[rows], kind.amount(step, levels - 1), rng)
    domains = tuple(kinds[way] if step else UNTOUCHED for step, way in zip(steps.tolist(), ways.tolist(), strict=True))
    return Split(images=images, targets=levels - 1 - steps, files=split.files, groups=split.groups, domains=domains)


def _blur(images: Array, share: float, _: np.random.Generator) -> Array:
    """Blur images by a Gaussian with a standard deviation relative to the shorter side."""
    from scipy.ndimage import correlate1d

    sigma = share * min(images.shape[2:])
    reach = math.ceil(3 * sigma)
    steps = np.arange(-reach, reach + 1, dtype=np.float32)
    kernel = np.exp(-(steps**2) / np.float32(2 * sigma**2))
    soft = images.astype(np.float32)
    for axis in (3, 2):
        soft = correlate1d(soft, kernel / kernel.sum(), axis, mode="nearest")
    return _bytes(soft)


def _jpeg(images: Array, quality: float, _: np.random.Generator) -> Array:
    """Compress images as JPEG of this quality, 1 to 95."""
    copies = np.empty_like(images)
    for i, image in enumerate(np.ascontiguousarray(np.moveaxis(images, 1, 3))):
        stream = io.BytesIO()
        Image.fromarray(image if image.shape[2] == 3 else image[..., 0]).save(stream, "JPEG", quality=round(quality))
        with Image.open(stream) as read:
            copies[i] = np.atleast_3d(np.asarray(read)).transpose(2, 0, 1)
    return copies


def _noise(images: Array, deviation: float, rng: np.random.Generator) -> Array:
    """Add normal noise with this standard deviation, on a scale of 255."""
    return _bytes(images + np.float32(deviation) * rng.standard_normal(images.shape, np.float32))


def _bytes(values: Array) -> Array:
    return np.rint(values).clip(0, 255).astype(np.uint8)


KINDS: dict[str, Kind] = {
    "blur": Kind(0.016, 0.06, _blur),
    "jpeg": Kind(50, 6, _jpeg),
    "noise": Kind(6, 45, _noise),
}
