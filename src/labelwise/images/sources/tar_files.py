"""WebDataset shards: tar files with consecutive members per sample, ``0001.jpg``, ``0001.cls``, ``0001.json``.

Read with the standard library, not the package webdataset: a row is read again by its position, which that package does not give.
Nothing is ever unpacked to disk. Only regular members count; links, devices and sparse members do not.
"""

import json
import os
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, BinaryIO

import numpy as np

from labelwise.images.images import Skipped
from labelwise.images.sources.paths import is_copied, is_hidden, is_image, open_shard
from labelwise.images.sources.rows import Block, Content, Numbers
from labelwise.support.errors import DataError
from labelwise.support.files import MAX_BYTES

HEADER = 2**20  # largest member header, and largest metadata of an image, in bytes
MARKS = ("label", "labels", "split", "domain", "group")  # keys of a sample's JSON, apart from texts
TEXTS = ("text", "texts", "caption")


@dataclass(frozen=True, kw_only=True)
class TarSample:
    """One sample of a shard."""

    key: str  # its name without suffix
    name: str  # suffix of the image
    start: int  # offset of the image
    size: int  # its bytes
    cells: dict[str, str] = field(default_factory=dict)  # cells: label or labels, split, domain, group, text_0, ...
    number: int | None = None  # numeric label (``.cls``)


@dataclass(frozen=True, eq=False, kw_only=True)
class TarShard:
    """The samples of a tar file."""

    address: str
    samples: tuple[TarSample, ...]
    skipped: tuple[Skipped, ...]
    stamp: tuple[int, ...]  # size and modification time when the file was read

    def block(self) -> Block:
        """Return a function that reads its images; it holds no sample."""
        starts, sizes = (
            np.array([getattr(sample, name) for sample in self.samples], np.int64) for name in ("start", "size")
        )
        return Block(rows=len(starts), fetch=_Fetch(self.address, self.stamp, starts, sizes))


@dataclass(frozen=True, eq=False)
class _Fetch:
    """Open a shard with known offsets and sizes of images; picklable."""

    address: str
    stamp: tuple[int, ...]
    starts: Numbers
    sizes: Numbers

    def __call__(self) -> Content:
        file = open_shard(self.address)
        if stamp_of(file, self.address) != self.stamp:
            file.close()
            raise DataError(f'"{self.address}" was changed while it was being used. Run the command again.')
        disk_bytes = self.stamp[0] if is_copied(self.address) else 0
        return Content(file=file, starts=self.starts, sizes=self.sizes, disk_bytes=disk_bytes)


class _Headers:
    """A file for ``tarfile``: reads headers of limited size, and no member contents."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        if not 0 <= size <= HEADER:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return self._file.read(size)

    def seek(self, place: int) -> int:
        return self._file.seek(place)

    def tell(self) -> int:
        return self._file.tell()


def read_tar(address: str) -> TarShard:
    """Read the samples of a tar file in one pass, without the images."""
    skipped: list[Skipped] = []
    with open_shard(address) as file:
        stamp = stamp_of(file, address)
        samples = list(_samples(file, address, skipped))
    return TarShard(address=address, samples=tuple(samples), skipped=tuple(skipped), stamp=stamp)


def stamp_of(file: BinaryIO, address: str) -> tuple[int, ...]:
    """Return the version of a shard; for a copy, only the size."""
    stat = os.fstat(file.fileno())
    return (stat.st_size,) if is_copied(address) else (stat.st_size, stat.st_mtime_ns)


def _samples(file: BinaryIO, address: str, skipped: list[Skipped]) -> Iterator[TarSample]:
    members: list[tarfile.TarInfo] = []
    names_read: set[str] = set()
    for member in chain(tar_members(file, address, skipped), [None]):
        if members and (member is None or sample_key(member.name) != sample_key(members[0].name)):
            key = sample_key(members[0].name)
            try:
                if key in names_read:
                    raise DataError("its name is in the shard twice. Rename it.")
                yield _sample(file, key, members)
            except DataError as error:
                skipped.append(Skipped(file=f"{address}/{members[0].name}", reason=str(error)))
            names_read.add(key)
            members = []
        if member is not None:
            members.append(member)


def tar_members(file: BinaryIO, address: str, skipped: list[Skipped]) -> Iterator[tarfile.TarInfo]:
    """Yield visible regular members; raise an error for other files, report truncated ones."""
    size = os.fstat(file.fileno()).st_size
    try:
        with tarfile.open(fileobj=_Headers(file), mode="r:", errorlevel=0) as tar:  # type: ignore[call-overload]
            while (member := tar.next()) is not None:
                tar.members = []  # otherwise it would keep all members
                if member.isdir() or any(is_hidden(part) for part in member.name.split("/") if part != "."):
                    continue
                if not member.isreg() or member.issparse():
                    skipped.append(
                        Skipped(file=f"{address}/{member.name}", reason="it is a link or a device, not a file.")
                    )
                elif member.size < 0 or member.offset_data + member.size > size:
                    skipped.append(
                        Skipped(file=f"{address}/{member.name}", reason="the shard ends in the middle of it.")
                    )
                    return
                else:
                    yield member
    except (tarfile.TarError, OSError, ValueError, OverflowError, EOFError, RecursionError) as error:
        raise DataError(f'"{address}" is not a tar file, or it is damaged ({error}). Write it again.') from None


def sample_key(name: str) -> str:
    """Return the name of a sample: the member name up to the first dot of its file name."""
    folder, slash, file = name.rpartition("/")
    return folder + slash + file.partition(".")[0]


def _sample(file: BinaryIO, key: str, members: Sequence[tarfile.TarInfo]) -> TarSample:
    images = [member for member in members if is_image(member.name)]
    if not images:
        raise DataError("no image is among its members.")
    if images[0].size > MAX_BYTES:
        raise DataError(f"it has {images[0].size} bytes; the limit is {MAX_BYTES}. Make it smaller.")
    by_suffix = {member.name[len(key) + 1 :].lower(): member for member in members}
    cells: dict[str, str] = {}
    number = None
    if "txt" in by_suffix:
        cells["text_0"] = _text(file, by_suffix["txt"])
    if "cls" in by_suffix:
        word = _text(file, by_suffix["cls"])
        number = int(word) if word.isascii() and word.isdigit() and len(word) < 10 else None
        cells["label"] = word
    if "json" in by_suffix:
        cells |= _cells(_text(file, by_suffix["json"]))
        cells = {name: cell for name, cell in cells.items() if name != "label" or "labels" not in cells}
    first = images[0]
    return TarSample(key=key, name=first.name, start=first.offset_data, size=first.size, cells=cells, number=number)


def _text(file: BinaryIO, member: tarfile.TarInfo) -> str:
    if member.size > HEADER:
        raise DataError(f'"{member.name}" has {member.size} bytes; the text of an image may have {HEADER} at most.')
    try:
        return os.pread(file.fileno(), member.size, member.offset_data).decode().strip().replace("\0", "")
    except UnicodeDecodeError:
        raise DataError(f'"{member.name}" is not UTF-8 text.') from None


def _cells(text: str) -> dict[str, str]:
    """Return the cells in a sample's JSON; other entries are ignored."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise DataError("its JSON cannot be read.") from None
    if not isinstance(document, dict):
        raise DataError("its JSON is not an object.")
    cells: dict[str, str] = {}
    for name in MARKS:
        value: Any = document.get(name)
        if isinstance(value, list) and name == "labels" and all(isinstance(text_value, str) for text_value in value):
            value = ";".join(value)
        if isinstance(value, str | int) and not isinstance(value, bool):
            cells[name] = str(value).strip().replace("\0", "")
    texts = [
        text_value
        for name in TEXTS
        for text_value in (document[name] if isinstance(document.get(name), list) else [document.get(name)])
    ]
    lines = [text_value for text_value in texts if isinstance(text_value, str) and text_value.strip()]
    return cells | {f"text_{i}": line.strip() for i, line in enumerate(lines)}
