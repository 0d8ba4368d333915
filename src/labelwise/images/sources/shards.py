"""A data set from shards, which may exceed memory and disk: WebDataset tar files, or Parquet files with images.

Labels and other data are read at once, images on demand. Splits are named by the data
(``split``), or by the files (``train-00000.tar``, ``test/00001.parquet``). Numbers of labels (``.cls``) have the names that are in
``classnames.txt`` next to the shards, one a line; where nothing says a label, it is the folder of the image.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from labelwise.images.dataset import Dataset
from labelwise.images.decode.crops import file_of
from labelwise.images.describe.knowledge import find_knowledge
from labelwise.images.file_images import Content, StoredImages, part_of
from labelwise.images.images import Skipped, Unreadable
from labelwise.images.sources.archives import label_places
from labelwise.images.sources.build import build, readable
from labelwise.images.sources.csv_files import Columns
from labelwise.images.sources.image_tables import table_rows
from labelwise.images.sources.parquet import read_parquet_shard
from labelwise.images.sources.paths import (
    PARQUET,
    SPELLINGS,
    TAR,
    address,
    in_shard,
    is_remote,
    is_shard,
    list_shards,
    open_stream,
)
from labelwise.images.sources.rows import Block, Blocks
from labelwise.images.sources.tar_files import TarSample, TarShard, read_tar
from labelwise.images.split.divide import Grouping
from labelwise.support.errors import DataError, listing
from labelwise.support.processes import all_gather, current_group

CLASSES = "classnames.txt"
EMPTY = "there is no image in this row, or it is too large."


def shards(
    source: str | Path, *, size: int | None = None, seed: int = 0, strict: bool = False, group: Grouping | None = None
) -> Dataset:
    """Load the images of shards: a tar or Parquet file, a folder or pattern of them, or any address that fsspec supports.

    ``size``, ``seed`` and ``strict`` are as for ``folder``. Images stay together by a ``group`` that the shards name; a search for lookalikes reads
    every image again, so it is optional.
    """
    word = address(source)
    index = _read_index(word)
    if not index.names:
        words = f" {index.skipped[0].file}: {index.skipped[0].reason}" if index.skipped else ""
        raise DataError(f'"{word}" holds no image.{words}')
    images = ShardImages(index, None if size is None else (3, size, size))
    rows = table_rows(Columns(file=word, numbers=range(1, len(index.names) + 1), cells=index.cells))
    rows = replace(rows, images=images, files=tuple(index.names), skipped=tuple(index.skipped), by=group)
    home = Path(word).parent if Path(word).is_file() else Path(word)
    knowledge = find_knowledge(home) if home.is_dir() else None
    data = build(_title(word), rows, knowledge, seed=seed)
    data = replace(data, own_splits=bool(rows.splits), own_images=True)
    return readable(data, strict=True) if strict else data


class ShardImages(StoredImages):
    """The images of shards, read in place."""

    def __init__(self, index: "_Index", shape: tuple[int, ...] | None = None) -> None:
        super().__init__(index.names, shape)
        self._contents = Blocks(index.blocks)

    def contents(self, rows: Sequence[int]) -> list[Content | Unreadable]:
        """Return the file of each image, or that there is none."""
        contents = (content or Unreadable(EMPTY) for content in self._contents.read(rows))
        return [part_of(content, self._every[row]) for content, row in zip(contents, rows, strict=True)]


def shard_images(source: str | Path) -> ShardImages:
    """Return the images of shards, or a single one: ``birds.tar/owl/1.jpg``."""
    shard, name = in_shard(address(source))
    index, part = _read_index(shard), name.removeprefix(file_of(name))
    images = ShardImages(replace(index, names=[f"{image_id}{part}" for image_id in index.names]))
    return images.select([not name or image_id == f"{shard}/{name}" for image_id in images.ids])


def tar_images(shard: TarShard, shape: tuple[int, ...] | None) -> ShardImages:
    """Return the images of a tar file by sample name, which may be a crop."""
    names = [f"{shard.address}/{sample.name}" for sample in shard.samples]
    return ShardImages(_Index(names, blocks=[shard.block()]), shape)


@dataclass(frozen=True, eq=False)
class _Index:
    """The index of images: their data apart from pixels."""

    names: list[str] = field(default_factory=list)
    cells: dict[str, list[str]] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def add(self, other: "_Index") -> None:
        """Append the rows of another index; missing columns become blank."""
        for name in dict.fromkeys([*self.cells, *other.cells]):
            column = self.cells.setdefault(name, [""] * len(self.names))
            column += other.cells.get(name, [""] * len(other.names))
        self.names.extend(other.names)
        self.blocks.extend(other.blocks)
        self.skipped.extend(other.skipped)


def _read_index(word: str) -> _Index:
    addresses = list_shards(word)
    if not addresses:
        raise DataError(
            f'"{word}" names no shard. Give a .tar or .parquet file, a folder of them, or a pattern such as train-*.tar.'
        )
    index, classes = _Index(), _class_names(addresses[0])
    kinds = {suffix for address in addresses for suffix in (TAR, PARQUET) if is_shard(address, suffix)}
    if len(kinds) > 1:
        raise DataError(f"Shards are tar files or Parquet files, not both: {listing(addresses, 4)}.")
    splits = [_split_name(address) for address in addresses]
    own_rows = range(current_group().rank, len(addresses), current_group().world)
    mine = {i: _read_one(addresses[i], classes, splits[i] if all(splits) else None) for i in own_rows}
    every = {i: address for part in all_gather(mine) for i, address in part.items()}  # processes share the reading
    for i in range(len(addresses)):
        index.add(every[i])
    return index


def _read_one(shard: str, classes: Sequence[str], split: str | None) -> _Index:
    """Return the index of one shard; ``split`` applies to images that name none."""
    if is_shard(shard, TAR):
        index = _of_tar(read_tar(shard), classes)
    else:
        table = read_parquet_shard(shard)
        cells = {name: list(column) for name, column in table.columns.cells.items()}
        index = _Index([f"{shard}/{number}" for number in table.columns.numbers], cells, list(table.blocks))
    if split is not None:
        index.cells["split"] = [cell or split for cell in index.cells.get("split", [""] * len(index.names))]
    return index


def _of_tar(shard: TarShard, classes: Sequence[str]) -> _Index:
    samples, skipped = _with_labels(shard, classes)
    names = dict.fromkeys(name for sample in samples for name in sample.cells)
    cells = {name: [sample.cells.get(name, "") for sample in samples] for name in names}
    blocks = [replace(shard, samples=tuple(samples)).block()] if samples else []
    return _Index([f"{shard.address}/{sample.name}" for sample in samples], cells, blocks, [*shard.skipped, *skipped])


def _with_labels(shard: TarShard, classes: Sequence[str]) -> tuple[list[TarSample], list[Skipped]]:
    """Return the samples with label names, and unlabelled samples if others have labels."""
    if not any({"label", "labels"} & set(sample.cells) for sample in shard.samples):
        places = label_places([sample.name for sample in shard.samples])
        if len(places) < len(shard.samples):
            return list(shard.samples), []
        return [_in_folder(sample, *places[sample.name]) for sample in shard.samples], []
    samples, skipped = [], []
    for sample in shard.samples:
        cells = dict(sample.cells)
        if sample.number is not None and cells.get("label") == str(sample.number) and sample.number < len(classes):
            cells["label"] = classes[sample.number]
        if cells.get("label") or "labels" in cells:
            samples.append(replace(sample, cells=cells))
        else:
            skipped.append(Skipped(file=f"{shard.address}/{sample.name}", reason="it has no label (.cls or .json)."))
    return samples, skipped


def _in_folder(sample: TarSample, label: str, split: str) -> TarSample:
    return replace(sample, cells={"label": label, **({"split": split} if split else {}), **sample.cells})


def _class_names(shard: str) -> list[str]:
    """Return the label names in order, from a file next to a shard."""
    home, slash, _ = shard.rpartition("/")
    file = f"{home}{slash}{CLASSES}"
    if not is_remote(file) and not Path(file).is_file():
        return []
    try:
        with open_stream(file) as stream:
            return [line.strip() for line in stream.read(2**24).decode("utf-8-sig").splitlines()]
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f'Cannot read the names of labels in "{file}" ({error}).') from None


def _split_name(shard: str) -> str | None:
    """Return the split in a shard's name: its prefix, or its folder."""
    *_, home, name = ("", *shard.split("/"))
    first = re.split(r"[-_.]", name.casefold())[0]
    return SPELLINGS.get(first) or SPELLINGS.get(home.casefold())


def _title(word: str) -> str:
    name = PurePosixPath(word.rstrip("/")).name
    plain = re.split(r"[-_.]?[*{\[]", name)[0]
    return next((plain[: -len(end)] for end in (*TAR, ".parquet") if plain.endswith(end)), plain) or "shards"
