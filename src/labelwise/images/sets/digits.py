"""Digits: small handwritten digits (the UCI set that scikit-learn ships, CC BY 4.0), an ordered data set without a download."""

from pathlib import Path

import numpy as np

from labelwise.images.dataset import Array, Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.support.rows import Draws

_NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def digits(*, seed: int = 0) -> Dataset:
    """Return 1,797 handwritten digits, images ``[n, 1, 8, 8]``, with ordered labels "zero" to "nine".

    Of each digit's images 60 % are in train, 15 % in val and 25 % in test; the seed decides which.
    """
    with np.load(Path(__file__).parent / "digits.npz") as pack:
        levels, targets = pack["images"], pack["targets"].astype(np.int64)
    images = np.round(levels * (255 / 16)).astype(np.uint8)[:, None]
    draws = Draws(seed)
    parts: dict[str, list[Array]] = {"train": [], "val": [], "test": []}
    for digit in range(len(_NAMES)):
        rows = np.flatnonzero(targets == digit)
        rows = rows[draws.permutation(len(rows))]
        train, val = round(0.6 * len(rows)), round(0.15 * len(rows))
        for name, part in zip(parts, np.split(rows, (train, train + val)), strict=True):
            parts[name].append(part)
    division = {name: np.sort(np.concatenate(rows)) for name, rows in parts.items()}
    splits = {name: Split(images=images[rows], targets=targets[rows]) for name, rows in division.items()}
    return Dataset(name="digits", labels=Labels(names=_NAMES, order=tuple(range(10))), splits=splits)
