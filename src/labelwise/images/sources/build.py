"""Build a ``Dataset`` from the rows of any source: divide, check, and add label descriptions.

Splits that come with the data are kept. Without any, each class is divided into train, val and test; with train but
no val, a tenth of each class of train, of many images less, becomes val. A class with a single image keeps it in train. Where images have
groups, a group is divided as one image would be. Data to test on alone name a split and have no train.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from labelwise.images.dataset import COLUMNS, SPLITS, UNLABELLED, Array, Dataset, Split, label_words, strata
from labelwise.images.decode.decoding import FINGERPRINTED, Frame
from labelwise.images.describe.knowledge import Knowledge, find_knowledge, with_knowledge
from labelwise.images.describe.labels import Labels
from labelwise.images.file_images import FileImages, StoredImages
from labelwise.images.images import Images, Skipped, check_read, skipped_rows
from labelwise.images.sources.rows import Rows
from labelwise.images.split.divide import group_columns
from labelwise.images.split.lookalikes import fingerprints
from labelwise.images.split.make import Shares, divide_groups, stratify, val_share
from labelwise.images.view import Fit
from labelwise.support.errors import DataError, listing


def build(
    name: str,
    rows: Rows,
    knowledge: Knowledge | None = None,
    *,
    seed: int = 0,
    shares: Shares | None = None,
    parts: Mapping[str, Array] | None = None,
) -> Dataset:
    """Build the data set of these rows, grouped by ``Rows.by``.

    Args:
        name: of the data.
        rows: of all splits.
        knowledge: what files next to the data say about the labels; labels described there need no training image.
        seed: of the division.
        shares: how much train, val and test get where the rows name no split; None is 70 : 10 : 20.
        parts: the rows of each split, where the source has its own way to divide.
    """
    check_two_labels(name, rows, parts)
    rows = _group(rows)
    columns = {column: getattr(rows, column) for column in COLUMNS}
    whole = Split(images=rows.images, targets=rows.targets, **columns)
    division = parts or divide_rows(name, rows, shares or Shares(), seed)
    _check_seen(name, rows, division, knowledge)
    splits = {split: whole.select(part) for split, part in division.items()}
    title = name.encode(errors="surrogateescape").decode(errors="replace")  # file names may not be UTF-8
    own = bool(rows.splits or shares or parts)
    names = rows.names or (UNLABELLED,)
    parents = tuple(rows.parents.get(name, ()) for name in names)
    labels = Labels(names=names, parents=parents if any(parents) else None)
    if not rows.names and knowledge:  # the images of each described label are unknown
        labels, knowledge = knowledge.labels, None
    data = Dataset(
        name=title,
        labels=labels,
        splits=splits,
        skipped=rows.skipped,
        own_splits=own,
        own_val=not rows.splits or "val" in rows.splits or bool(parts),
        grouping=rows.by or "column",
    )
    return with_knowledge(data, knowledge) if knowledge else data


def from_files(  # noqa: PLR0913 - what a source may be told
    source: Path,
    rows: Rows,
    homes: Mapping[str, str],
    *,
    size: int | None,
    seed: int,
    strict: bool,
    next_frame: Frame | None = None,
) -> Dataset:
    """Build the data set of the user's image files, with the label descriptions in a file next to them.

    ``source`` is the folder or the table that lists them, ``rows`` the images, and ``homes`` where those of each label should be.
    Files are read at the side ``size``, or at the shape that the reader asks for; ``next_frame`` as in ``catalogue.load``.
    Without groups, lookalikes form groups.
    """
    folder = source if source.is_dir() else source.parent
    name = source.resolve().name if source.is_dir() else source.stem
    if not len(rows):
        raise DataError(f'"{name}" has no image in its label folders: {listing(homes)}. Put images into at least two.')
    check_two_labels(name, rows)
    knowledge = find_knowledge(folder)
    rows = read_files(rows, size, strict=strict, next_frame=next_frame).without_absent()
    absent = sorted(set(homes) - set(rows.names))
    if absent and (strict or len(rows.names) < 2):
        raise DataError(
            f'"{name}" has no readable image of: {listing(absent)}. Add some or remove the label; at least two labels '
            f"with images are needed (there are: {listing(rows.names)})."
        )
    missing = (Skipped(file=homes[label], reason="no readable image") for label in absent)
    by = rows.by or (None if rows.groups else "lookalike")
    rows = replace(rows, by=by, skipped=(*rows.skipped, *missing))
    return replace(build(name, rows, knowledge, seed=seed), own_splits=bool(rows.splits), own_images=True)


def read_files(rows: Rows, size: int | None, *, strict: bool, next_frame: Frame | None = None) -> Rows:
    """Return the rows with readable files, and their images, which may be in an archive."""
    shape = None if size is None else (3, size, size)
    images = FileImages(rows.files, shape) if rows.images is None else rows.images
    return readable_rows(replace(rows, images=images), strict=strict, frame=next_frame)


def readable_rows(rows: Rows, *, strict: bool = False, frame: Frame | None = None) -> Rows:
    """Return the rows with readable images, after one pass; ``frame`` is the shape in which they will be read."""
    assert rows.images is not None
    faults = unreadable(rows.images, *(() if frame is None else (frame.shape, frame.fit)))
    skipped = skipped_rows(rows.files or rows.images.ids, faults)
    check_read(skipped, len(rows), strict=strict)
    good = [row for row in range(len(rows)) if row not in faults]
    return replace(rows.select(good), skipped=(*rows.skipped, *skipped))


def readable(
    data: Dataset, splits: Sequence[str] = (), shape: tuple[int, ...] | None = None, *, strict: bool = False
) -> Dataset:
    """Return the data without unreadable image files, after one check.

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
    """Return why rows of images cannot be read, for rows not checked before.

    They are remembered at their own shape, or at the requested one.
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


def _group(rows: Rows) -> Rows:
    """Return the rows with the requested groups, or else their own."""
    if rows.by == "column" and not rows.groups:
        raise DataError('These data have no groups. Add a column "group" to their table, or group by lookalike.')
    if rows.by in ("column", "none", None):
        return replace(rows, by=None)
    assert rows.images is not None
    columns = group_columns(rows.by, rows.images, rows.files, label_words(rows.names, rows.targets))
    return replace(replace(rows, groups=()), **columns)  # type: ignore[arg-type]


def check_two_labels(name: str, rows: Rows, parts: Mapping[str, Array] | None = None) -> None:
    """Raise an error if all training images have one label."""
    if rows.names and "train" in (parts or rows.splits or ("train",)) and len(rows.present()) < 2:
        only = listing(rows.names[i] for i in rows.present()) or "none"
        raise DataError(
            f'"{name}" has images of one label only ({only}). At least two are needed: add images of something else, under a '
            'label such as "other". Images to test on alone are named so: a folder "test" over the labels, or a column "split". '
            "If images have no labels yet, group them by what they look like: labelwise group PHOTOS --out groups."
        )


def divide_rows(name: str, rows: Rows, shares: Shares, seed: int) -> dict[str, Array]:
    """Return the rows of each split, in the order of ``SPLITS``, as described at the top of this file."""
    _check_groups(name, rows)
    if not rows.splits:
        return _by_shares(name, strata(rows.targets), rows.groups, shares, seed)
    parts = {split: np.array([i for i, s in enumerate(rows.splits) if s == split]) for split in set(rows.splits)}
    if "train" in parts and "val" not in parts:  # test-only data have neither
        train = parts["train"]
        groups = [rows.groups[i] for i in train.tolist()] if rows.groups else ()
        classes = strata(rows.targets)[train]
        share = val_share(classes)
        shares = Shares(train=1 - share, val=share, test=0)
        parts |= {s: train[part] for s, part in _by_shares(name, classes, groups, shares, seed).items()}
    return {split: parts[split] for split in SPLITS if split in parts}


def _by_shares(name: str, classes: Array, groups: Sequence[str], shares: Shares, seed: int) -> dict[str, Array]:
    """Divide rows into splits without dividing a group."""
    if not groups:
        return stratify(classes, shares, seed)
    try:
        return divide_groups(groups, classes, shares, seed)
    except DataError as error:
        raise DataError(
            f'"{name}": {error} Data to test on alone need no division: say test in the column "split".'
        ) from None


def _check_groups(name: str, rows: Rows) -> None:
    """Raise an error if a group is in more than one split; blanks are not groups."""
    home: dict[str, str] = {}
    for group, split in zip(rows.groups if rows.by is None else (), rows.splits, strict=False):
        first = home.setdefault(group, split)
        if group and first != split:
            raise DataError(
                f'"{name}": group "{group}" is in {first} and in {split}. A group must be in one '
                "split, otherwise test results are too optimistic. Move it to one of them."
            )


def _check_seen(name: str, rows: Rows, parts: Mapping[str, Array], knowledge: Knowledge | None) -> None:
    """Raise an error if a label has neither a training image nor a description."""
    if "train" not in parts:
        return
    names_described = knowledge.names_described if knowledge else frozenset()
    seen_rows = rows.present(parts["train"])
    for split, part in parts.items():
        strange = [
            rows.names[i] for i in sorted(rows.present(part) - seen_rows) if rows.names[i] not in names_described
        ]
        if strange:
            raise DataError(
                f'"{name}" has labels in {split} that train does not have: {listing(strange)}. Add training images of '
                f"them, describe them (labels.csv next to the data), or take them out of {split}."
            )
