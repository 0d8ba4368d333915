"""A person's own image files: those that cannot be read are left out, lookalikes are grouped."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from labelwise.images.dataset import Dataset, Skipped
from labelwise.images.decode.decoding import FINGERPRINTED, Frame
from labelwise.images.describe.knowledge import find_knowledge
from labelwise.images.skipped import check_read, skipped_rows
from labelwise.images.sources.build import build, check_two_labels
from labelwise.images.sources.rows import Rows
from labelwise.images.split.grouping import group_columns
from labelwise.images.split.lookalikes import Prints, fingerprints
from labelwise.images.stored import FileImages
from labelwise.images.targets import label_words
from labelwise.support.errors import DataError, listing


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
    """Return the data set of a person's own image files, with what a file next to them says about the labels.

    ``source`` is the folder or the table that lists them, ``rows`` the images, and ``homes`` where those of each label should be.
    Files are read at the side ``size``, or at the shape that the reader asks for; ``next_frame`` as in ``catalogue.load``.
    """
    folder = source if source.is_dir() else source.parent
    name = source.resolve().name if source.is_dir() else source.stem
    if not len(rows):
        raise DataError(f'"{name}" has no image in its class folders: {listing(homes)}. Put some in at least two.')
    check_two_labels(name, rows)
    knowledge = find_knowledge(folder)
    rows, prints = read_rows(rows, size, strict=strict, next_frame=next_frame)
    rows = _grouped(rows.without_absent(), prints)
    absent = sorted(set(homes) - set(rows.names))
    if absent and (strict or len(rows.names) < 2):
        raise DataError(
            f'"{name}" has no readable image of: {listing(absent)}. Add some or remove the label; at least two labels '
            f"with images are needed (there are: {listing(rows.names)})."
        )
    missing = (Skipped(file=homes[label], reason="no readable image") for label in absent)
    data = build(name, replace(rows, skipped=(*rows.skipped, *missing)), knowledge, seed=seed)
    return replace(data, own_splits=bool(rows.splits), own_images=True)


def read_rows(rows: Rows, size: int | None, *, strict: bool, next_frame: Frame | None = None) -> tuple[Rows, Prints]:
    """Return the rows whose files can be read, with their images, and what these look like: one pass over all files."""
    images = FileImages(rows.files, None if size is None else (3, size, size))
    frame = next_frame or FINGERPRINTED
    images.remember(images.shape or frame.shape, frame.fit)
    prints, faults = fingerprints(images)
    skipped = skipped_rows(rows.files, faults)
    check_read(skipped, len(rows), strict=strict)
    good = np.array([row for row in range(len(rows)) if row not in faults], np.int64)
    images.note_readable(good)
    return replace(replace(rows, images=images).select(good.tolist()), skipped=skipped), prints[good]


def _grouped(rows: Rows, prints: Prints) -> Rows:
    """Return the rows with what keeps them together: as they say, else lookalikes."""
    if rows.by == "column" and not rows.groups:
        raise DataError('These data have no groups. Add a column "group" to their table, or group by lookalike.')
    if rows.by in ("column", "none") or (rows.groups and rows.by is None):
        return replace(rows, by=None)
    by = rows.by or "lookalike"
    columns = group_columns(by, prints, rows.files, label_words(rows.names, rows.targets))
    return replace(replace(rows, groups=(), by=by), **columns)  # type: ignore[arg-type]
