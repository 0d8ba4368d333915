"""Data sets: images and targets by split, labels, and unreadable files."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from labelwise.images.describe.labels import Labels
from labelwise.images.images import ArrayImages, FeatureRows, Images, Rows, Skipped, join, positions
from labelwise.support.errors import DataError, listing

Array = npt.NDArray[Any]


def several_true(targets: Any) -> bool:
    """Return whether targets are multi-label."""
    return bool(targets.ndim == 2)


def have_label(targets: Any) -> Array:
    """Return which images have a label ``[n]`` (bool)."""
    return np.asarray(targets.any(1) if several_true(targets) else targets >= 0)


def truth_table(targets: Any, k: int) -> Array:
    """Return the true labels of each image ``[n, k]`` (bool)."""
    return np.asarray(targets if several_true(targets) else targets[:, None] == np.arange(k))


def labels_present(targets: Any) -> list[int]:
    """Return the labels that occur, in order."""
    if several_true(targets):
        return np.flatnonzero(targets.any(0)).tolist()
    return sorted(set(targets.tolist()) - {-1})


def among_labels(targets: Any, labels: Sequence[int], k: int) -> Array:
    """Restrict targets to some of k labels; images of other labels become unlabelled."""
    columns = np.asarray(labels, np.int64)
    if several_true(targets):
        return np.asarray(targets[:, columns])
    positions = np.full(k + 1, -1)  # index -1 is the last entry
    positions[columns] = np.arange(len(columns))
    return np.asarray(positions[targets])


def strata(targets: Any) -> Array:
    """Return the strata of images ``[n]``: their label, or in multi-label data the rarest of their labels."""
    if not several_true(targets):
        return np.asarray(targets)
    counts = np.where(targets, targets.sum(0), len(targets) + 1)
    return np.where(targets.any(1), counts.argmin(1), -1)


def label_words(names: Sequence[str], targets: Any) -> list[str]:
    """Return the name of each image's label, several joined by semicolons, blank if there is none."""
    if not several_true(targets):
        return [names[target] if target >= 0 else "" for target in targets.tolist()]
    return [";".join(name for name, true in zip(names, row, strict=True) if true) for row in targets.tolist()]


SPLITS = ("train", "val", "test")
PER_IMAGE = ("files", "texts", "domains", "groups", "moments")  # columns that sources provide per image
COLUMNS = (*PER_IMAGE, "weights")
UNLABELLED = "unlabelled"  # the label of data without labels


@dataclass(frozen=True, eq=False, kw_only=True)
class Split:
    """Images with their targets; row i of every piece belongs to the same image."""

    # arrays and tensors become images: bytes ``[n, c, h, w]``, or features ``[n, a]``
    images: Any  # ``Images``
    # label positions ``[n]`` (int64), -1 if an image has no label; in multi-label data, a table ``[n, k]`` (bool).
    # Tensors become arrays.
    targets: Any
    files: tuple[str, ...] = ()  # where each image came from, n names, or empty
    texts: tuple[tuple[str, ...], ...] = ()  # sentences that describe each image, n tuples, or empty
    domains: tuple[str, ...] = ()  # where or how each image was taken (a camera, a style), n names, or empty
    # the group of each image (an animal, a day): no group is in two splits; or empty
    groups: tuple[str, ...] = ()
    moments: tuple[str, ...] = ()  # when and by which camera each image was taken, n words (blank: unknown), or empty
    # how many images each counts as in a closed-form fit, at least 0; empty: one
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "images", split_images(self.images))
        object.__setattr__(self, "targets", np.asarray(self.targets))
        n = len(self.images)
        for column in ("targets", *COLUMNS):
            piece = getattr(self, column)
            if len(piece) != n and (column == "targets" or len(piece)):
                raise DataError(f"There are {n} images but {len(piece)} {column}; give one for each image.")
        kind, shape = self.targets.dtype, list(self.targets.shape)
        numbers = len(shape) == 1 and kind.kind in "iu"
        answers = len(shape) == 2 and shape[1] > 0 and kind == np.bool_
        if not (numbers or answers):
            raise DataError(
                "Targets must be positions of labels, whole numbers [n], or yes or no (bool) to each label, [n, k]; given "
                f"{kind} {shape}."
            )
        if numbers:
            object.__setattr__(self, "targets", self.targets.astype(np.int64, copy=False))

    def __repr__(self) -> str:
        pieces = ["several labels each" if self.multilabel else f"{len(self.present)} labels"]
        pieces += [column for column in COLUMNS if getattr(self, column)]
        return f"<Split: {len(self)} images{shape_words(self.shape)}; {listing(pieces)}>"

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of one image; None for files, which are read in any shape."""
        shape: tuple[int, ...] | None = self.images.shape
        return shape

    @property
    def multilabel(self) -> bool:
        """Whether several labels, or none, may be true of an image."""
        return several_true(self.targets)

    @property
    def weighty(self) -> Array:
        """Which images have a weight above 0 ``[n]`` (bool)."""
        return np.array(self.weights) > 0 if self.weights else np.ones(len(self), bool)

    @property
    def labelled(self) -> Array:
        """Which images have a label ``[n]`` (bool)."""
        return have_label(self.targets)

    @property
    def present(self) -> list[int]:
        """The labels that occur, in order."""
        return labels_present(self.targets)

    @property
    def strata(self) -> Array:
        """The strata of images ``[n]``: their label, or the rarest of several."""
        return strata(self.targets)

    def table(self, labels: int) -> Array:
        """Return the true labels of each image ``[n, labels]`` (bool)."""
        return truth_table(self.targets, labels)

    def words(self, names: tuple[str, ...]) -> list[str]:
        """Return the name of each image's label, several joined by semicolons, blank if there is none."""
        return label_words(names, self.targets)

    def select(self, rows: Rows) -> "Split":
        """Return these rows, in this order; ``rows`` may be a mask."""
        index = positions(rows)
        if np.array_equal(index, np.arange(len(self))):
            return self
        order = index.tolist()
        columns = {
            column: tuple(getattr(self, column)[i] for i in order) for column in COLUMNS if getattr(self, column)
        }
        return Split(images=self.images.select(index), targets=self.targets[index], **columns)

    def join(self, other: "Split") -> "Split":
        """Concatenate two splits; drop the fields that only one of them has."""
        if self.multilabel != other.multilabel:
            raise DataError("Images that have one label cannot be joined with images of which several may be true.")
        joined = {what: getattr(self, what) + getattr(other, what) for what in COLUMNS}
        columns = {what: column for what, column in joined.items() if len(column) == len(self) + len(other)}
        targets = np.concatenate([self.targets, other.targets])
        return Split(images=join([self.images, other.images]), targets=targets, **columns)


def split_images(images: Any) -> Images:
    """Convert arrays and tensors to ``Images``: bytes ``[n, c, h, w]``, or floats ``[n, a]`` as features."""
    if isinstance(images, Images):
        return images
    values = images.detach().cpu().numpy() if hasattr(images, "detach") else np.asarray(images)
    return FeatureRows(values) if values.ndim == 2 else ArrayImages(values)


def shape_words(shape: tuple[int, ...] | None) -> str:
    """Describe a shape in words, with a leading space; empty for files."""
    return "" if shape is None else f" {' x '.join(map(str, shape))}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Dataset:
    """A named data set: labels and splits. Only evaluation reads ``test``; training receives ``TrainData``."""

    name: str  # name of the data
    labels: Labels  # the labels of the targets
    splits: Mapping[str, Split]  # images by split
    skipped: tuple[Skipped, ...] = field(default=())  # files that could not be read
    # the data define splits; False if the library made them
    own_splits: bool = True
    own_val: bool = True  # val comes with the data rather than from their train split
    own_images: bool = False  # the images are the user's own files, named in ``Split.files``
    is_drawing: bool = False  # the images are computer drawings: encoders for photos do not help
    # origin of ``Split.groups``: the data, or a kind of grouping (``split.grouping``)
    grouping: str = "column"
    # origin of the labels if not a person: "answers" of a classifier, or "groups" of lookalikes
    labels_by: str = ""

    def __post_init__(self) -> None:
        wrong = [name for name in self.splits if name not in SPLITS]
        if wrong or not self.splits:
            raise DataError(f"Splits are called train, val and test; given: {listing(wrong) or 'none'}.")
        shapes = {split.shape for split in self.splits.values() if len(split)} - {
            None
        }  # files can be read in any shape
        if len(shapes) > 1:
            raise DataError(f"All splits must hold images of one shape; given {sorted(map(str, shapes))}.")
        if len({split.multilabel for split in self.splits.values() if len(split)}) > 1:
            raise DataError(
                "Several labels may be true of the images in some splits only; say yes or no in all or none."
            )
        for name, split in self.splits.items():
            targets, k = split.targets, len(self.labels)
            if split.multilabel and targets.shape[1] != k:
                raise DataError(
                    f"There are {k} labels, but targets of split {name} say yes or no to {targets.shape[1]}."
                )
            if not split.multilabel and len(split) and not -1 <= int(targets.min()) <= int(targets.max()) < k:
                raise DataError(f"Targets of split {name} must be in -1..{k - 1} (-1: no label).")

    def __repr__(self) -> str:
        counts = listing(f"{len(split)} {name}" for name, split in self.splits.items())
        skipped_words = f", {len(self.skipped)} files skipped" if self.skipped else ""
        shape = f",{shape_words(self.shape)}" if self.shape else ""
        return f"<Dataset {self.name}: {self.labels!r:.200}, images {counts}{shape}{skipped_words}>"

    def split(self, name: str) -> Split:
        """Return a split, or raise an error that lists the existing ones."""
        if name not in self.splits:
            todo = ' Name what to train on "train".' if name == "train" else ""
            raise DataError(f'"{self.name}" has no {name} split. It has: {listing(self.splits)}.{todo}')
        return self.splits[name]

    @property
    def multilabel(self) -> bool:
        """Whether several labels, or none, may be true of an image."""
        return any(split.multilabel for split in self.splits.values())

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of one image; None for files, which are read in any shape."""
        return next(
            (split.shape for split in self.splits.values() if len(split)), next(iter(self.splits.values())).shape
        )

    @property
    def features(self) -> int | None:
        """The size of precomputed features; None for images."""
        shape = self.shape
        return shape[0] if shape is not None and len(shape) == 1 else None

    def weighty(self) -> "Dataset":
        """Return the data without images of weight 0."""
        return replace(self, splits={name: split.select(split.weighty) for name, split in self.splits.items()})

    @property
    def home(self) -> str:
        """The common folder of the user's image files; empty for any other images."""
        files = [file for split in self.splits.values() for file in split.files] if self.own_images else []
        folders = {os.path.dirname(file) or os.curdir for file in files}
        is_mixed = len({os.path.isabs(folder) for folder in folders}) > 1
        if not folders:
            return ""
        return os.path.commonpath(map(os.path.abspath, folders) if is_mixed else folders) or os.curdir

    def below_home(self) -> "Dataset":
        """Return the data with file names relative to ``home``, without private folders."""
        home = self.home
        if not home:
            return self
        splits = {
            name: replace(split, files=tuple(os.path.relpath(file, home) for file in split.files))
            for name, split in self.splits.items()
        }
        skipped = tuple(replace(skip, file=os.path.relpath(skip.file, home)) for skip in self.skipped)
        return replace(self, splits=splits, skipped=skipped)
