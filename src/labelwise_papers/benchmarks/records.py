"""Records of a layout's images, read without decoding: labels, splits, domains. Choosing images is cheap."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from labelwise.images.as_images import Uploads
from labelwise.images.dataset import SPLITS, Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.file_images import FileImages
from labelwise.images.images import ArrayImages, FeatureRows, Images, Skipped, at_side
from labelwise.images.sources.build import readable
from labelwise.images.view import Fit
from labelwise.support.errors import DataError
from labelwise.support.files import read_text

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Records:
    """n images and what is known of each; row i of every piece belongs to the same image."""

    names: tuple[str, ...]  # the labels; empty where the files do not name them, see ``Entry.labels``
    pictures: Any  # paths, contents of image files, pixels as bytes ``[n, c, h, w]``, or sounds ``[n, samples]``
    targets: Sequence[int] | Ints  # positions in ``names`` ``[n]``; -1 where there is no label
    splits: Sequence[str] = ()  # train, val or test for each; empty where there is no official split
    files: Sequence[str] = ()  # a name for each image, or empty
    domains: Sequence[str] = ()  # or empty
    groups: Sequence[str] = ()  # or empty
    other_names: tuple[str, ...] = ()  # the labels of a second labelling (superclasses, species), or empty
    other_targets: Sequence[int] | Ints = ()  # positions in ``other_names``, or empty
    ordered: bool = False  # True where the labels are in rank order
    grey: bool = False  # True where images have one channel
    fit: Fit = "crop"  # how image files become squares, see ``View``
    skipped: tuple[Skipped, ...] = ()  # what the layout lists but cannot be used

    def __len__(self) -> int:
        return len(self.targets)

    def select(self, rows: Sequence[int]) -> "Records":
        """Return these images only, in this order; the labels stay."""
        parts: dict[str, Any] = {}
        for name in _PER_PICTURE:
            piece = getattr(self, name)
            if len(piece):
                whole = not isinstance(piece, list | tuple)
                parts[name] = piece[list(rows)] if whole else [piece[i] for i in rows]
        return replace(self, **parts)

    def keep(self, labels: Sequence[int]) -> "Records":
        """Return the images of these labels only; the labels are counted again."""
        position = {label: i for i, label in enumerate(labels)}
        subset = self.select([row for row, target in enumerate(self.targets) if int(target) in position])
        targets = [position[int(target)] for target in subset.targets]
        return replace(subset, names=tuple(self.names[i] for i in labels), targets=targets)

    def dataset(self, name: str, size: int) -> Dataset:
        """Return the data set: images read as squares of this side, divided into its splits."""
        if not len(self):
            raise DataError(f'"{name}" has no image. Look whether its files arrived whole.')
        whole = Split(
            images=self._images(size),
            targets=np.asarray(self.targets, dtype=np.int64),
            files=tuple(self.files),
            domains=tuple(self.domains),
            groups=tuple(self.groups),
        )
        labels = Labels(names=self.names, order=tuple(range(len(self.names))) if self.ordered else None)
        parts = {split: [i for i, own in enumerate(self.splits) if own == split] for split in SPLITS}
        splits = {split: whole.select(part) for split, part in parts.items() if part}
        data = readable(Dataset(name=name, labels=labels, splits=splits, skipped=self.skipped))
        return replace(data, splits={split: part for split, part in data.splits.items() if len(part)})

    def _images(self, size: int) -> Images:
        pictures, shape = self.pictures, (1 if self.grey else 3, size, size)
        if isinstance(pictures, list):
            if all(isinstance(each, bytes) for each in pictures):
                return Uploads(pictures, shape=shape, fit=self.fit)
            return FileImages(pictures, shape, self.fit)
        values = np.asarray(pictures)
        return FeatureRows(values) if values.ndim == 2 else at_side(ArrayImages(values), size)


_PER_PICTURE = ("pictures", "targets", "splits", "files", "domains", "groups", "other_targets")


def records_of(columns: str, rows: Sequence[tuple[Any, ...]], home: Path | None = None) -> Records:
    """Return the records of a table, without names of labels: a row for each image, ``columns`` as ``Records`` calls them.

    Where the images lie below ``home``, ``files`` are their paths from there.
    """
    names = columns.split()
    pieces: dict[str, Any] = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)) if rows else {}
    records = Records(**{"names": (), "pictures": [], "targets": [], **pieces})
    if home is None:
        return records
    return replace(records, files=[path.relative_to(home).as_posix() for path in pieces.get("pictures", ())])


def tidy(name: str) -> str:
    """Return the name of a class as people write it: without a number in front, with spaces for underscores."""
    number, dot, rest = name.partition(".")
    return (rest if dot and number.isdigit() else name).replace("_", " ").strip()


def text_lines(file: Path) -> list[str]:
    """Return the lines of a text file that are not empty."""
    try:
        return [line for line in read_text(file).splitlines() if line.strip()]
    except OSError as error:
        raise DataError(f'Cannot read "{file}": {error.strerror}. Look whether it arrived whole.') from None
    except UnicodeDecodeError:
        raise DataError(f'"{file}" is not text in UTF-8. Look whether it arrived whole.') from None
