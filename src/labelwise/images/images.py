"""Lazy sequences of images, read on demand at the requested shape.

Files and uploads (``stored``), packs and shards (``sources``), arrays and features all implement ``Images``. Selecting or
joining images reads nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
from PIL import Image

from labelwise.images.decode.decoding import NO_FILE, QUIET, Frame
from labelwise.images.decode.framing import fit_image
from labelwise.images.view import Fit
from labelwise.support.cache import digest
from labelwise.support.errors import DataError, UsageError, listing

Array = npt.NDArray[Any]
Rows = npt.ArrayLike  # row numbers, or a mask


@dataclass(frozen=True)
class Unreadable:
    """A placeholder for an unreadable image."""

    reason: str  # in plain English


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """An unreadable file, with the reason in words."""

    file: str
    reason: str


@runtime_checkable
class Images(Protocol):
    """A lazy sequence of images."""

    @property
    def ids(self) -> Sequence[str]:
        """The name of each image: a path, an upload name, or its row number."""

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The common shape: ``(c, h, w)`` of bytes, ``(a,)`` of features; None for files, whose shapes differ."""

    def __len__(self) -> int: ...

    def digests(self) -> Sequence[bytes]:
        """Return a 16-byte content digest per image: equal content, equal digest."""

    def read(self, rows: Rows, shape: tuple[int, ...], fit: Fit = "crop") -> list[Array | Unreadable]:
        """Return images of a shape, uint8 ``[c, h, w]``, or features, float32 ``[a]``."""

    def select(self, rows: Rows) -> "Images":
        """Select rows, in this order; ``rows`` may be a mask."""


class Selection(ABC):
    """Base of images that are rows of a shared store; digests are cached."""

    def __init__(self, base: object, rows: Rows) -> None:
        self.base = base  # shared by all selections of the same images
        self.rows = positions(rows)  # rows of the store
        self._known: dict[int, bytes] = {}  # digests by row of the store

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self)} images>"

    @property
    def ids(self) -> Sequence[str]:
        """The row number of each image."""
        return [f"image {row}" for row in self.rows.tolist()]

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...] | None:
        """The common shape."""

    @abstractmethod
    def read(self, rows: Rows, shape: tuple[int, ...], fit: Fit = "crop") -> list[Array | Unreadable]:
        """Return images of a shape."""

    @abstractmethod
    def _digests_of(self, rows: list[int]) -> list[bytes]:
        """Return the digests of some rows of the base."""

    @property
    def follow(self) -> bool:
        """Whether the rows are consecutive in the base."""
        return len(self.rows) > 0 and bool((np.diff(self.rows) == 1).all())

    def digests(self) -> Sequence[bytes]:
        """Return a 16-byte content digest per image."""
        missing = [row for row in dict.fromkeys(self.rows.tolist()) if row not in self._known]
        if missing:
            self._known.update(zip(missing, self._digests_of(missing), strict=True))
        return [self._known[row] for row in self.rows.tolist()]

    def select(self, rows: Rows) -> Self:
        """Select rows, in this order."""
        return self.of(self.rows[positions(rows)])

    def __getitem__(self, rows: "int | slice | Rows") -> Self:
        """Select rows; an integer selects one image."""
        return self.of(np.atleast_1d(self.rows[rows if isinstance(rows, slice) else np.asarray(rows)]))

    def of(self, rows: Array) -> Self:
        """Return other rows of the same base."""
        duplicate = copy(self)
        duplicate.rows = rows
        return duplicate


class _Rows(Selection):
    """Rows of an array, in memory or mapped from a file."""

    def __init__(self, array: Array, digests: Sequence[bytes] = ()) -> None:
        super().__init__(array, range(len(array)))
        self._array = array
        self._known.update(enumerate(digests))  # names of the files they come from

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return tuple(self._array.shape[1:])

    @property
    def values(self) -> Array:
        """The rows ``[n, ...]``; a view if they are consecutive."""
        return self._array[self.rows[0] : self.rows[-1] + 1] if self.follow else self._array[self.rows]

    def _digests_of(self, rows: list[int]) -> list[bytes]:
        kind = repr((self.shape, self._array.dtype.str)).encode()
        return [digest(kind, np.ascontiguousarray(self._array[row]).tobytes()) for row in rows]


class ArrayImages(_Rows):
    """Pixels: bytes ``[n, c, h, w]``."""

    def __init__(self, pixels: Array, ids: Sequence[str] = (), digests: Sequence[bytes] = ()) -> None:
        if pixels.ndim != 4 or pixels.dtype != np.uint8:
            raise DataError(
                f"Images must be bytes (uint8) [n, channels, height, width]; given {pixels.dtype} {list(pixels.shape)}."
            )
        super().__init__(pixels, digests)
        self._ids = ids

    @property
    def ids(self) -> Sequence[str]:
        """The name of each image, or its row."""
        return [self._ids[row] for row in self.rows.tolist()] if self._ids else super().ids

    def read(self, rows: Rows, shape: tuple[int, ...], fit: Fit = "crop") -> list[Array | Unreadable]:
        """Return images of a shape, resized and converted between grey and colour if necessary."""
        images = self._array[self.rows[positions(rows)]]
        return list(images if self.shape == tuple(shape) else resize_images(images, shape, fit))


class FeatureRows(_Rows):
    """Features instead of images: float32 ``[n, a]``, finite numbers."""

    def __init__(self, features: Array, digests: Sequence[bytes] = ()) -> None:
        if features.ndim != 2 or features.dtype.kind != "f":
            raise DataError(f"Features must be floats [n, size]; given {features.dtype} {list(features.shape)}.")
        super().__init__(features if features.dtype == np.float32 else features.astype(np.float32), digests)
        check_finite(self._array)

    def read(self, rows: Rows, shape: tuple[int, ...], fit: Fit = "crop") -> list[Array | Unreadable]:  # noqa: ARG002
        """Return the features of some rows; the shape must match."""
        if tuple(shape) != self.shape:
            expected = f"features, numbers [n, {shape[0]}]" if len(shape) == 1 else f"images of shape {list(shape)}"
            raise UsageError(f"This model takes {expected}; given {[len(self), *self.shape]}.")
        return list(self._array[self.rows[positions(rows)]])


class JoinedImages(Selection):
    """Images of several kinds, concatenated."""

    def __init__(self, parts: Sequence[Images]) -> None:
        self._parts, self._ends = parts, np.cumsum([len(part) for part in parts])
        super().__init__(parts, range(int(self._ends[-1])))

    @property
    def ids(self) -> Sequence[str]:
        """The name of each image."""
        every = [name for part in self._parts for name in part.ids]
        return [every[row] for row in self.rows.tolist()]

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The common shape of all parts, or None."""
        shapes = {part.shape for part in self._parts}
        return shapes.pop() if len(shapes) == 1 else None

    def read(self, rows: Rows, shape: tuple[int, ...], fit: Fit = "crop") -> list[Array | Unreadable]:
        """Return images of a shape, read from their parts."""
        at = self.rows[positions(rows)]
        places = np.searchsorted(self._ends, at, "right")
        images: list[Array | Unreadable] = [Unreadable("")] * len(at)
        for place in np.unique(places).tolist():
            rows_of_part, part = np.flatnonzero(places == place), self._parts[place]
            own = at[rows_of_part] - (self._ends[place] - len(part))
            for i, image in zip(rows_of_part.tolist(), part.read(own, shape, fit), strict=True):
                images[i] = image
        return images

    def _digests_of(self, rows: list[int]) -> list[bytes]:
        every = [digest for part in self._parts for digest in part.digests()]
        return [every[row] for row in rows]


def join(parts: Sequence[Images]) -> Images:
    """Concatenate images."""
    nonempty = [part for part in parts if len(part)] or list(parts[:1])
    first = nonempty[0]
    if isinstance(first, Selection) and all(
        isinstance(part, Selection) and part.base is first.base for part in nonempty
    ):
        return first.of(np.concatenate([part.rows for part in nonempty if isinstance(part, Selection)]))
    if isinstance(first, FeatureRows):
        same = [part.values for part in nonempty if isinstance(part, FeatureRows) and part.shape == first.shape]
        if len(same) == len(nonempty):
            return FeatureRows(np.concatenate(same))
    return JoinedImages(nonempty)


def read_all(images: Images, shape: tuple[int, ...], fit: Fit = "crop") -> Array:
    """Read all images at a shape ``[n, *shape]``; raise an error if one is unreadable."""
    if isinstance(images, ArrayImages | FeatureRows) and images.shape == tuple(shape):
        return images.values
    values = images.read(range(len(images)), shape, fit)
    faults = {row: value.reason for row, value in enumerate(values) if isinstance(value, Unreadable)}
    check_read(skipped_rows(images.ids, faults), len(images), strict=True)
    kind = np.float32 if len(shape) == 1 else np.uint8
    return (
        np.stack([value for value in values if not isinstance(value, Unreadable)])
        if values
        else np.empty((0, *shape), kind)
    )


def at_side(images: Images, side: int | None) -> Images:
    """Resize images to squares of this side; features, and files, are unchanged."""
    if side is None or images.shape is None or len(images.shape) != 3:
        return images
    return ArrayImages(read_all(images, (images.shape[0], side, side)))


def resize_images(images: Array, shape: tuple[int, ...], fit: Fit) -> Array:
    """Resize and crop bytes ``[n, c, h, w]`` to ``[n, *shape]``, as for files."""
    if len(shape) != 3 or shape[0] not in (1, 3) or images.shape[1] not in (1, 3, 4):
        raise UsageError(f"This model takes images of shape {list(shape)}; given {list(images.shape[1:])}.")
    frame = Frame.of(shape, fit)
    small = np.empty((len(images), *shape), np.uint8)
    with QUIET:
        for i, image in enumerate(np.moveaxis(images, 1, 3)):
            plain = image[:, :, 0] if image.shape[2] == 1 else image
            small[i] = fit_image(Image.fromarray(np.ascontiguousarray(plain)), frame)
    return small


def check_finite(features: Array) -> None:
    """Raise an error that names the first row of features ``[n, a]`` with a value that is not finite."""
    if features.size and not np.isfinite([features.min(), features.max()]).all():
        bad = int(np.flatnonzero(~np.isfinite(features).all(1))[0])
        raise DataError(f"Row {bad} of the features holds a value that is not a finite number (NaN or infinity).")


def positions(rows: Rows) -> Array:
    """Return row numbers ``[m]`` (int64) from numbers or a mask."""
    array = np.asarray(rows)
    return np.flatnonzero(array) if array.dtype == np.bool_ else array.astype(np.int64).reshape(-1)


def skipped_lines(skipped: Sequence[Skipped]) -> list[str]:
    """Return a line for each of at most ten reasons, with three files each, and a total if there are more reasons."""
    reasons: dict[str, list[str]] = {}
    for skip in skipped:
        reasons.setdefault(skip.reason, []).append(skip.file)
    lines = [f"{listing(files, 3)}: {reason}" for reason, files in list(reasons.items())[:10]]
    return lines if len(reasons) <= 10 else [*lines, f"{len(skipped)} files in all."]


def skipped_rows(names: Sequence[str], faults: Mapping[int, str]) -> tuple[Skipped, ...]:
    """Return the unreadable files, in row order; ``faults`` has the reasons."""
    return tuple(Skipped(file=names[row], reason=reason) for row, reason in sorted(faults.items()))


def check_read(skipped: Sequence[Skipped], count: int, *, strict: bool) -> None:
    """Raise an error if images are unreadable and all are required, or if none of ``count`` is readable."""
    if skipped and (strict or len(skipped) == count):
        some = " ".join(f"{skip.file}: {skip.reason}" for skip in skipped[:3])
        ending = f" And {len(skipped) - 3} more." if len(skipped) > 3 else ""
        if count > 1 and {skip.reason for skip in skipped} == {NO_FILE}:
            ending += " Paths in a table start at its folder; --data-root FOLDER names another one."
        raise DataError(f"{len(skipped)} of {count} images cannot be read. {some}{ending}")
