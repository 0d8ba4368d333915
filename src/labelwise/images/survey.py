"""One pass over image files before they are used: those that cannot be read are left out and named."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from labelwise.images.dataset import Dataset
from labelwise.images.decode.decoding import FINGERPRINTED
from labelwise.images.images import Images, Skipped, check_read, skipped_rows
from labelwise.images.split.lookalikes import fingerprints
from labelwise.images.stored import StoredImages
from labelwise.images.view import Fit


def readable(
    data: Dataset, splits: Sequence[str] = (), shape: tuple[int, ...] | None = None, *, strict: bool = False
) -> Dataset:
    """Return the data without image files that cannot be read; which are looked for once.

    Args:
        data: all splits.
        splits: those to go through; all where none is named.
        shape: at which files are read, and remembered for the next reader at that shape.
        strict: make an image that cannot be read an error.
    """
    parts = dict(data.splits)
    skipped: list[Skipped] = []
    for name in splits or parts:
        if name not in parts or not (faults := unreadable(parts[name].images, shape)):
            continue
        split = parts[name]
        skipped += skipped_rows(split.files or split.images.ids, faults)
        parts[name] = split.select([row for row in range(len(split)) if row not in faults])
    if skipped:
        check_read(skipped, sum(map(len, data.splits.values())), strict=strict)
    return replace(data, splits=parts, skipped=(*data.skipped, *skipped)) if skipped else data


def unreadable(images: Images, shape: tuple[int, ...] | None = None, fit: Fit = "crop") -> dict[int, str]:
    """Return why rows of images cannot be read, of those that nobody has read yet.

    They are remembered at their own shape, or at the one that is asked for.
    """
    if not isinstance(images, StoredImages):
        return {}
    rows = np.flatnonzero(~images.known_readable())
    if not len(rows):
        return {}
    images.remember(images.shape or shape or FINGERPRINTED.shape, fit)
    _, faults = fingerprints(images.select(rows))
    images.note_readable([row for i, row in enumerate(rows.tolist()) if i not in faults])
    return {int(rows[i]): reason for i, reason in faults.items()}
