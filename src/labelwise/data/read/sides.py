"""The side in pixels that pictures are read at: as asked for, else as the encoder that is trained takes them."""

from dataclasses import replace
from pathlib import Path

import torch

from labelwise.data.dataset import Dataset, Split
from labelwise.data.read.pictures import read_files
from labelwise.data.read.reading import read_paths


def at_side(data: Dataset, side: int) -> Dataset:
    """Return the data with its pictures read again from their files, as squares of this side.

    They stay as they are where somebody asked for their side, where they have it already, and where they are no longer what
    the files hold: a change of pixels is not undone.
    """
    parts = {name: split for name, split in data.splits.items() if len(split)}
    if not data.side_open or len(data.shape) != 3 or data.shape[1:] == (side, side):
        return data
    if not all(_as_read(split) for split in parts.values()):
        return data
    files = [Path(file) for split in parts.values() for file in split.files]
    images, _, _ = read_paths(files, (data.shape[0], side, side), strict=True)
    pieces = torch.split(images, [len(split) for split in parts.values()])
    again = {name: replace(split, images=piece) for (name, split), piece in zip(parts.items(), pieces, strict=True)}
    return replace(data, splits={**data.splits, **again})


def _as_read(split: Split) -> bool:
    """Return whether the first picture is what its file holds; the others are taken to be, too."""
    return bool(split.files) and torch.equal(read_files(split.files[:1], split.shape, strict=True)[0], split.images[:1])
