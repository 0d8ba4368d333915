"""The common output of sources: rows of a table in blocks, and targets from label names, numbers or masks."""

import math
import os
import threading
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from labelwise.images.dataset import COLUMNS, Array, among_labels, labels_present
from labelwise.images.images import Images, Skipped
from labelwise.images.split.divide import Grouping
from labelwise.support.errors import DataError, UsageError, listing, suggest
from labelwise.support.files import check_size

Targets = npt.ArrayLike


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows:
    """n images as columns; ``build`` makes a data set of them."""

    names: tuple[str, ...]  # label names; empty if there are none, and all targets are -1
    targets: Any  # as in ``Split``; optional, as are files, texts, domains, groups, moments and weights
    images: Images | None = None  # None for files
    splits: Sequence[str] = ()  # split of each row, if the source defines splits
    files: tuple[str, ...] = ()
    texts: tuple[tuple[str, ...], ...] = ()
    domains: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    moments: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    by: Grouping | None = None  # what to group by; None: the groups of the source, and lookalikes of image files
    skipped: tuple[Skipped, ...] = ()  # what could not be read
    parents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # parents of the labels, nearest first

    def __post_init__(self) -> None:
        object.__setattr__(self, "targets", np.asarray(self.targets))
        n = len(self.targets) if self.images is None else len(self.images)
        for what in ("targets", "splits", *COLUMNS):
            column = getattr(self, what)
            if len(column) != n and (what == "targets" or len(column)):
                raise DataError(f"There are {n} images but {len(column)} {what}; give one for each image.")

    def __len__(self) -> int:
        return len(self.targets)

    def select(self, rows: Sequence[int]) -> "Rows":
        """Select rows, in this order; the labels stay."""
        columns: dict[str, Any] = {
            column: tuple(getattr(self, column)[i] for i in rows) for column in COLUMNS if getattr(self, column)
        }
        return replace(
            self,
            targets=self.targets[rows],
            images=None if self.images is None else self.images.select(rows),
            splits=[self.splits[i] for i in rows] if self.splits else (),
            **columns,
        )

    def present(self, rows: Sequence[int] | Array | slice = slice(None)) -> set[int]:
        """Return the labels with rows."""
        return set(labels_present(self.targets[rows]))

    def without_absent(self) -> "Rows":
        """Drop labels without rows."""
        present = sorted(self.present())
        if len(present) == len(self.names):
            return self
        targets = among_labels(self.targets, present, len(self.names))
        return replace(self, names=tuple(self.names[i] for i in present), targets=targets)


def named_rows(labels: Sequence[str | None], several: Sequence[tuple[str, ...]] = ()) -> Rows:
    """Build rows of images with these labels (None: unlabelled), or of ``several`` labels each; names are sorted."""
    names = tuple(
        sorted({name for row_names in several for name in row_names} | {name for name in labels if name is not None})
    )
    position: dict[str | None, int] = {name: i for i, name in enumerate(names)}
    if not several or not names:
        return Rows(names=names, targets=np.array([position.get(label, -1) for label in labels], np.int64))
    check_size(f"{len(several)} images with {len(names)} labels", len(several) * len(names))
    targets = np.zeros((len(several), len(names)), np.bool_)
    pairs = [(row, position[name]) for row, row_names in enumerate(several) for name in row_names]
    targets[tuple(np.array(pairs).T)] = True
    return Rows(names=names, targets=targets)


def as_labels(labels: Targets) -> Array:
    """Return labels ``[n]`` as integers or text, or ``[n, k]`` as bools; bools ``[n]`` become text."""
    given: Any = labels if hasattr(labels, "__len__") else list(labels)  # type: ignore[arg-type] # a generator
    _check_all_labelled(given)
    values: Array = np.asarray(given)
    if values.dtype.kind == "O" and all(isinstance(value, str) for value in values.flat):
        values = values.astype(np.str_)
    if values.ndim == 1 and values.dtype.kind == "b":
        values = values.astype(np.str_)
    several = values.ndim == 2 and values.dtype.kind == "b" and values.shape[1] > 0
    if not values.size or not (several or (values.ndim == 1 and values.dtype.kind in "iuU")):
        raise UsageError(
            f"Labels must be whole numbers or names, one for each image; given {values.dtype} {list(values.shape)}. Where "
            "several may be true of an image, they are yes and no (bool) to each, [n, labels]."
        )
    return values


def _check_all_labelled(labels: Any) -> None:
    """Raise an error if some images have no label: None, NaN, or what pandas has in their place."""
    if isinstance(labels, np.ndarray) and labels.dtype.kind not in "fO":
        return
    blank = [row for row, value in enumerate(labels) if _is_missing(value)]
    if blank:
        raise UsageError(
            f"{len(blank)} of {len(labels)} images have no label (None or NaN), the first in row {blank[0]}. Leave these images out."
        )


def _is_missing(value: object) -> bool:
    return type(value).__name__ in ("NoneType", "NAType", "NaTType") or (isinstance(value, float) and math.isnan(value))


def label_rows(values: Array, names: Sequence[str] | None) -> Rows:
    """Build rows of images with labels from ``as_labels``: positions in ``names``, or names."""
    if values.dtype.kind == "b":
        if names is None or len(names) != values.shape[1]:
            raise UsageError(
                f"Yes and no are given for {values.shape[1]} labels of each image; name each of them. Names given: "
                f"{0 if names is None else len(names)}."
            )
        label_names = tuple(unicodedata.normalize("NFC", str(name)) for name in names)
        return Rows(names=label_names, targets=np.array(values))
    if values.dtype.kind == "U":
        texts = [unicodedata.normalize("NFC", text) for text in values.tolist()]
        label_names = (
            tuple(sorted(set(texts))) if names is None else tuple(unicodedata.normalize("NFC", n) for n in names)
        )
        position = {name: i for i, name in enumerate(label_names)}
        strange = next((text for text in texts if text not in position), None)
        if strange is not None:
            raise UsageError(
                f'Label "{strange}" is not among the names.{suggest(strange, label_names)} Names: {listing(label_names)}.'
            )
        return Rows(names=label_names, targets=np.array([position[text] for text in texts]))
    low, high = int(values.min()), int(values.max())
    if low < 0 or (names is not None and high >= len(names)):
        most = "" if names is None else f" and at most {len(names) - 1}, as there are {len(names)} names"
        raise UsageError(f"Labels as numbers must be at least 0{most}; given {low} to {high}.")
    if names is not None:
        return Rows(names=tuple(str(name) for name in names), targets=values.astype(np.int64))
    numbers, positions = np.unique(values, return_inverse=True)
    names = tuple(str(number) for number in numbers.tolist())
    return Rows(names=names, targets=positions.astype(np.int64))


Numbers = npt.NDArray[np.int64]
VARIABLE = "LABELWISE_SHARDS_GB"
DISK = 8.0  # default limit in gigabytes for copies of shards
FILES = 64  # most open blocks


@dataclass(frozen=True, eq=False, kw_only=True)
class Block:
    """Rows fetched together."""

    rows: int
    fetch: Callable[[], "Content"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Content:
    """A local file and the position of each row's image in it; size -1 without an image."""

    file: BinaryIO
    starts: Numbers
    sizes: Numbers
    disk_bytes: int = 0  # disk space, if it is a copy


class Blocks:
    """The contents of the rows of several blocks, thread-safe."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = blocks
        self._first = np.cumsum([0, *(block.rows for block in blocks)])
        self._open: OrderedDict[int, Content] = OrderedDict()
        self._lock = threading.Lock()
        words = os.environ.get(VARIABLE)
        self._most = DISK * 1e9
        if words:
            with suppress(ValueError):
                self._most = float(words) * 1e9 if float(words) > 0 else 0.0
            if not self._most:
                raise UsageError(f"{VARIABLE} must be a number of gigabytes above 0; given {words!r:.40}.")

    def __reduce__(self) -> "tuple[type[Blocks], tuple[Sequence[Block]]]":
        return Blocks, (self._blocks,)  # other processes open blocks themselves

    def read(self, rows: Sequence[int]) -> list[bytes]:
        """Return the content of each image; empty without an image."""
        at = np.asarray(rows, np.int64)
        places = np.searchsorted(self._first, at, "right") - 1
        contents = [b""] * len(at)
        for place in np.unique(places).tolist():
            with self._lock:
                block = self._content(place)
                for i in np.flatnonzero(places == place).tolist():
                    row = int(at[i] - self._first[place])
                    if block.sizes[row] > 0:
                        contents[i] = os.pread(block.file.fileno(), int(block.sizes[row]), int(block.starts[row]))
        return contents

    def _content(self, place: int) -> Content:
        """Open a block; the least recently used ones are closed if there are too many."""
        if place in self._open:
            self._open.move_to_end(place)
            return self._open[place]
        content = self._blocks[place].fetch()
        if len(content.sizes) != self._blocks[place].rows:
            content.file.close()
            raise DataError("A shard was changed while it was being used. Run the command again.")
        self._open[place] = content
        while len(self._open) > 1 and (
            len(self._open) > FILES or sum(each.disk_bytes for each in self._open.values()) > self._most
        ):
            self._open.popitem(last=False)[1].file.close()
        return content

    def __del__(self) -> None:
        for content in self._open.values():
            content.file.close()
