"""Rotated labels: each rotation of a label's images by 90 degrees is a new label, as usual with Omniglot."""

from dataclasses import replace

import numpy as np

from labelwise.images.dataset import Dataset, Split
from labelwise.images.decode.headers import SHAPE
from labelwise.images.describe.labels import Labels
from labelwise.images.images import read_all
from labelwise.support.errors import DataError


def rotated(data: Dataset) -> Dataset:
    """Return four times as many labels and images: those given, and each turned by 90, 180 and 270 degrees.

    What is known about labels beyond their names is left out, since it need not hold for a turned one.
    """
    shape = data.shape or SHAPE
    if len(shape) != 3 or shape[1] != shape[2]:
        raise DataError(f'Only square images can be turned; those of "{data.name}" have the shape {list(shape)}.')
    if data.multilabel:
        raise DataError("Several labels may be true of these images; a turned label needs one label for each image.")
    k = len(data.labels)
    names = tuple(f"{name}, {90 * turn} degrees" if turn else name for turn in range(4) for name in data.labels.names)
    splits = {name: _turned(split, k) for name, split in data.splits.items()}
    return replace(data, labels=Labels(names=names), splits=splits)


def _turned(split: Split, k: int) -> Split:
    pixels = read_all(split.images, split.shape or SHAPE)
    images = np.concatenate([np.rot90(pixels, turn, (2, 3)) for turn in range(4)])
    targets = np.concatenate([np.where(split.targets < 0, -1, split.targets + turn * k) for turn in range(4)])
    files = tuple(f"{file}, {90 * turn} degrees" if turn else file for turn in range(4) for file in split.files)
    return Split(images=images, targets=targets, files=files, domains=split.domains * 4, groups=split.groups * 4)
