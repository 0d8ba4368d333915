"""Load data by one word: the name of an embedded set or a benchmark, or a path."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from labelwise.images.dataset import Dataset
from labelwise.images.decode.decoding import Frame, is_url
from labelwise.images.formats.annotations import rows_of
from labelwise.images.formats.find import find_annotations
from labelwise.images.formats.packed import is_archive, packed_rows
from labelwise.images.images import at_side
from labelwise.images.sets.degraded import degraded
from labelwise.images.sets.digits import digits
from labelwise.images.sets.finches import finches, finches_marks, finches_unseen
from labelwise.images.sources.archives import is_zip, zip_rows
from labelwise.images.sources.build import from_files
from labelwise.images.sources.folders import folder, unknown_data
from labelwise.images.sources.image_tables import table
from labelwise.images.sources.packs import features, pack
from labelwise.images.sources.parquet import has_images
from labelwise.images.sources.paths import (
    TAR,
    address,
    holds_images,
    is_hidden,
    is_remote,
    is_shard,
    list_shards,
    may_name_shards,
)
from labelwise.images.sources.rows import Rows
from labelwise.images.sources.shards import shards
from labelwise.images.split.divide import Grouping, check_grouping, group_by
from labelwise.support.errors import DataError, listing, suggest
from labelwise.support.files import at_most
from labelwise.support.plugins import plugin_for, plugin_with, plugins

# Each takes the seed of the split, which matters only if a set has no split.
EMBEDDED: dict[str, Callable[[int], Dataset]] = {
    "digits": lambda _: digits(),
    "finches": lambda _: finches(),
    "finches/marks": lambda _: finches_marks(),
    "finches/quality": lambda _: degraded(finches()),
    "finches/unseen": lambda seed: finches_unseen(seed=seed),
}
TABLES = (".csv", ".parquet")
QUALITY = "/quality"  # after the name of any benchmark of images: graded by quality instead


def load(  # noqa: PLR0913 - what a source may be told
    source: str | Path,
    *,
    size: int | None = None,
    side: int | None = None,
    seed: int = 0,
    strict: bool = False,
    root: str | Path | None = None,
    max_gb: float | None = None,
    group: Grouping | None = None,
    next_frame: Frame | None = None,
) -> Dataset:
    """Return the data set of a path or a name, with the knowledge about labels in a file next to it.

    Args:
        source: an embedded set (``finches``, ``finches/unseen``, ``finches/marks``, ``finches/quality``, ``digits``), a
            benchmark (``pets``, ``pacs/sketch``, and with ordered labels ``pets/quality``), a folder of
            images, one whose layout a plug-in knows (WAV files, xlsa17), a ``.zip`` or ``.tar.gz`` of images, annotations of other tools (a file, or a
            folder with one: COCO, YOLO, ...), a ``.csv`` or ``.parquet`` table, an ``.npz`` pack, ``.npy`` features, or shards: see ``data.shards``.
        size: the side in pixels that images are brought to; None is as ``folder`` says, or what a benchmark says.
        side: the same for packs and benchmarks alone, where ``size`` is None: a person's own files are read at the shape that
            is asked for.
        seed: of the split, where the source has none of its own.
        strict: make unreadable images an error instead of skipping them.
        root: where the paths of a table start, see ``table``; or where benchmarks lie, None is the variable ``LABELWISE_DATA``.
        max_gb: gigabytes of memory that a file may take; None is the variable ``LABELWISE_MAX_GB``, or half of the memory.
        group: what stays together where splits are made, see ``split.grouping``; None is a column of that name, else lookalikes
            of a person's own images, and nothing of other data.
        next_frame: how image files are going to be read, so that one decode serves this pass and that; it changes nothing else.
    """
    if group is not None:
        check_grouping(group)
    path = Path(source)
    with at_most(max_gb):
        rows = packed_rows(path, size, root) if is_archive(path) else None
        if rows is None and names_shards(source):
            return shards(source, size=size, seed=seed, strict=strict, group=group)
        if is_url(str(source)):
            raise DataError(
                f'"{source}" is a web address, and nothing is downloaded. Download it, unpack it if it is an archive, '
                "and give the folder or the table."
            )
        if not os.path.exists(path):
            return group_by(_by_name(str(source), size, side, seed=seed, root=root), group, seed)
        if path.is_dir() and (plugin := plugin_for(path)):
            return group_by(plugin.read(path, seed), group, seed)
        rows = _list_rows(path, size, root) if rows is None else rows
        if rows is not None:
            homes = {label: f'label "{label}"' for label in rows.names}
            rows = replace(rows, by=group)
            return from_files(path, rows, homes, size=size, seed=seed, strict=strict, next_frame=next_frame)
        if path.suffix.lower() in TABLES and path.is_file():
            return table(path, size=size, seed=seed, strict=strict, root=root, group=group, next_frame=next_frame)
        if not path.is_dir():
            return group_by(_read_file(path, size or side, seed), group, seed)
        return folder(path, size=size, seed=seed, strict=strict, group=group, next_frame=next_frame)


def _list_rows(path: Path, size: int | None, root: str | Path | None) -> Rows | None:
    """Return the images of a zip file with label folders, or of an annotation file; None for anything else."""
    if is_zip(path):
        return zip_rows(path, size)
    parts = find_annotations(path)
    return rows_of(parts, None if root is None else Path(root)) if parts else None


def names_shards(source: str | Path) -> bool:
    """Return whether a word names shards: a tar file, an address, a folder of shards, or a Parquet file with images."""
    word = address(source)
    possible = may_name_shards(word)
    if not possible or is_remote(word) or is_shard(word, TAR):
        return possible
    files = list_shards(word)
    return bool(files) and (is_shard(files[0], TAR) or has_images(Path(files[0])))


def _by_name(word: str, size: int | None, side: int | None, *, seed: int, root: str | Path | None) -> Dataset:
    """Return an embedded set or a benchmark."""
    if word in EMBEDDED:
        data = EMBEDDED[word](seed)
        return replace(data, splits={n: replace(s, images=at_side(s.images, size)) for n, s in data.splits.items()})
    name, _, protocol = word.removesuffix(QUALITY).partition("/")
    if plugin := plugin_with(name):
        data = plugin.load(name, root=root, size=size or side, protocol=protocol or None, seed=seed)
        return degraded(data) if word.endswith(QUALITY) else data
    names = [*EMBEDDED, *(name for plugin in plugins() for name in plugin.names())]
    raise DataError(
        f'No data at "{word}": no such file or folder.{suggest(word, names)} Sets by name: {listing(names, 40)}.'
    )


def load_unlabelled(source: str | Path, root: str | Path | None = None) -> Dataset:
    """Load data as ``load`` does, or the images of a folder without label folders."""
    path = Path(source)
    flat = path.is_dir() and not any(child.is_dir() and not is_hidden(child.name) for child in path.iterdir())
    return unknown_data(path) if flat and holds_images(path) else load(source, root=root)


def _read_file(path: Path, size: int | None, seed: int) -> Dataset:
    """Load a file that is not a table."""
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return pack(path, size=size, seed=seed)
    if suffix == ".npy":
        return features(path, seed=seed)
    raise DataError(
        f'Cannot read data from "{path}". Give a folder, a .csv or .parquet table, .tar shards, an .npz pack, or .npy features.'
    )
