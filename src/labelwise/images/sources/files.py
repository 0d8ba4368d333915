"""Picture files read into memory, or to disk where they are too many for it; and read again at another size."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor

from labelwise.images.dataset import Dataset, Skipped, Split
from labelwise.images.decode.pictures import read_files
from labelwise.images.describe.knowledge import find_knowledge
from labelwise.images.lazy import LazyImages
from labelwise.images.sources.build import build, check_two_labels
from labelwise.images.sources.disk import decode_to_disk, fits_in_memory
from labelwise.images.sources.known import unread
from labelwise.images.sources.rows import Rows
from labelwise.images.sources.shares import read_shares
from labelwise.images.split.grouping import group_columns
from labelwise.images.streams import stream_of
from labelwise.images.targets import label_words
from labelwise.images.view import Fit
from labelwise.support.errors import DataError, listing
from labelwise.train.networks.encoder import pretrained_encoder, side_for


def from_files(
    source: Path, rows: Rows, homes: Mapping[str, str], *, size: int | None, seed: int, strict: bool
) -> Dataset:
    """Return the data set of a person's own picture files, with what a file beside them says about the labels.

    ``source`` is the folder or the table that lists them, ``rows`` the pictures, yet to be read, and ``homes`` where
    those of each label should be. The side is ``size``, or that of the encoder that ``fit`` chooses by itself.
    """
    folder = source if source.is_dir() else source.parent
    name = source.resolve().name if source.is_dir() else source.stem
    if not len(rows):
        raise DataError(f'"{name}" has no picture in its class folders: {listing(homes)}. Put some in at least two.')
    check_two_labels(name, rows)
    knowledge = find_knowledge(folder)
    pictures = _read_rows(rows, size or side_for(pretrained_encoder()), strict=strict).without_absent()
    absent = sorted(set(homes) - set(pictures.names))
    if absent and (strict or len(pictures.names) < 2):
        raise DataError(
            f'"{name}" has no readable picture of: {listing(absent)}. Add some or remove the label; at least two labels '
            f"with pictures are needed (there are: {listing(pictures.names)})."
        )
    missing = (Skipped(file=homes[label], reason="no readable picture") for label in absent)
    data = build(name, replace(pictures, skipped=(*pictures.skipped, *missing)), knowledge, seed=seed)
    return replace(data, own_splits=bool(rows.splits), own_pictures=True, side_open=size is None)


def _read_rows(rows: Rows, side: int, *, strict: bool) -> Rows:
    """Return the rows whose pictures can be read, with these."""
    images, readable, skipped = read_paths([Path(file) for file in rows.files], (3, side, side), strict=strict)
    owned = not isinstance(images, LazyImages)  # of these only rows are chosen
    return _grouped(replace(rows.select(readable), images=images, skipped=skipped, owned=owned))


def _grouped(rows: Rows) -> Rows:
    """Return the rows with what keeps them together: as they say, else lookalikes."""
    if rows.by == "column" and not rows.groups:
        raise DataError('These data have no groups. Add a column "group" to their table, or group by lookalike.')
    if rows.by in ("column", "none") or (rows.groups and rows.by is None):
        return replace(rows, by=None)
    by = rows.by or "lookalike"
    columns = group_columns(by, rows.images, rows.files, label_words(rows.names, rows.targets))
    return replace(replace(rows, groups=(), by=by), **columns)  # type: ignore[arg-type]


def read_paths(
    paths: Sequence[Path], shape: tuple[int, int, int], *, strict: bool, fit: Fit = "cut"
) -> tuple[Tensor, list[int], tuple[Skipped, ...]]:
    """Return what ``read_files`` returns; from disk where the pictures are too many for memory."""
    if fits_in_memory(len(paths), shape):
        return read_shares(paths, shape, fit=fit, strict=strict)
    images, readable, skipped = decode_to_disk(paths, shape, fit=fit)
    if strict and skipped:
        first = skipped[0]
        raise DataError(f"{len(skipped)} of {len(paths)} pictures cannot be read. {first.file}: {first.reason}")
    return unread(images), readable, skipped  # so that neither splits nor what is chosen of them are copies


def at_side(data: Dataset, side: int | None = None, fit: Fit = "cut") -> Dataset:
    """Return the data with its pictures read again from their files, as squares of this side, as ``fit`` says (see ``View``).

    Their side stays where it is None and where somebody asked for it. They stay as they are without files, and where they
    are no longer what these hold: a change of pixels is not undone. To squash such pictures is an error.
    """
    parts = {name: split for name, split in data.splits.items() if len(split)}
    if any(stream_of(split.images) for split in parts.values()):
        return _streams_at_side(data, side if data.side_open else None, fit)
    if len(data.shape) != 3 or not all(split.files for split in parts.values()):
        return data
    side = side if data.side_open else None
    shape = (data.shape[0], *(data.shape[1:] if side is None else (side, side)))
    if shape == data.shape and fit == "cut":
        return data
    before = next((way for way in get_args(Fit) if all(_as_read(split, way) for split in parts.values())), None)
    if before is None and fit == "squash":
        raise DataError(
            f'"{data.name}" holds pictures that are not what their files hold, or whose files are gone, so they cannot be read '
            "again and squashed. Leave out view.fit=squash, or give a folder or a table of pictures."
        )
    if before is None or (shape, fit) == (data.shape, before):
        return data
    files = [Path(file) for split in parts.values() for file in split.files]
    images, _, _ = read_paths(files, shape, strict=True, fit=fit)
    pieces = torch.split(images, [len(split) for split in parts.values()])
    again = {name: replace(split, images=piece) for (name, split), piece in zip(parts.items(), pieces, strict=True)}
    return replace(data, splits={**data.splits, **again})


def _streams_at_side(data: Dataset, side: int | None, fit: Fit) -> Dataset:
    """Return the data of shards in another size: nothing is read for it."""
    shape = data.shape if side is None else (data.shape[0], side, side)
    parts = {}
    for name, split in data.splits.items():
        if (stream := stream_of(split.images)) is not None:
            assert isinstance(split.images, LazyImages)
            split = replace(split, images=LazyImages(stream.again(shape, fit), split.images.rows))
        parts[name] = split
    return replace(data, splits=parts)


def _as_read(split: Split, fit: Fit) -> bool:
    """Return whether the first picture is what its file holds; the others are taken to be, too."""
    try:
        first, _, _ = read_files(split.files[:1], split.shape, fit=fit, strict=True)
    except DataError:
        return False
    return torch.equal(first, split.images[:1])
