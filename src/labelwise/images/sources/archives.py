"""Read a zip file of label folders without unpacking: nothing is written to disk, so no member name can escape.

Sizes are checked before a member is read, and again while it is. Tar files are ``shards``; both take labels and splits from the folders.
"""

import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any
from weakref import finalize
from zipfile import BadZipFile, ZipFile, ZipInfo

from labelwise.images.decode.crops import file_of
from labelwise.images.describe.labels import RESERVED, normal_name, unfit_name
from labelwise.images.file_images import Content, StoredImages, part_of
from labelwise.images.images import Skipped, Unreadable
from labelwise.images.sources.paths import SPELLINGS, is_hidden, is_image
from labelwise.images.sources.rows import Rows, named_rows
from labelwise.support.errors import DataError
from labelwise.support.files import MAX_BYTES, check_size, open_regular

_INSIDE = re.compile(r"(.+?\.zip)/(.+)", re.DOTALL | re.IGNORECASE)
_DAMAGED = (BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError, ValueError, zlib.error)
ENTRY = 1_000  # approximate memory limit of an entry in bytes


class ZipImages(StoredImages):
    """The images of a zip file, unpacked in memory when read."""

    def __init__(self, file: str, names: Sequence[str], shape: tuple[int, ...] | None = None) -> None:
        super().__init__([f"{file}/{name}" for name in names], shape)
        self._archive, self._names = _ZipArchive(file), names

    def contents(self, rows: Sequence[int]) -> Sequence[Content | Unreadable]:
        """Return the content of each image when read, or the reason why there is none."""
        return _Members(self._archive, [self._names[row] for row in rows])


class _ZipArchive:
    """A zip file, opened once per process, since reading a long list of members is slow."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._opened: dict[int, ZipFile] = {}

    def __reduce__(self) -> tuple[type["_ZipArchive"], tuple[str]]:
        return _ZipArchive, (self.file,)

    def zip_file(self) -> ZipFile:
        """Return the zip file, which threads share."""
        process = os.getpid()
        if process not in self._opened:
            with ExitStack() as stack:
                self._opened[process] = stack.enter_context(open_zip(self.file))
                finalize(self, stack.pop_all().close)
        return self._opened[process]


class _Members(Sequence[Content | Unreadable]):
    """The contents of members of a zip file."""

    def __init__(self, archive: _ZipArchive, names: Sequence[str]) -> None:
        self._archive, self._names = archive, names

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, place: Any) -> Any:
        name = self._names[place]
        return part_of(read_member(self._archive.zip_file(), file_of(name)), name)


@contextmanager
def open_zip(file: str) -> Iterator[ZipFile]:
    """Open a zip file; raise a ``DataError`` if it is damaged."""
    try:
        with open_regular(file, None) as stream, ZipFile(stream) as archive:
            yield archive
    except _DAMAGED as error:
        words = getattr(error, "strerror", None) or error
        raise DataError(f'"{file}" is not a zip file, or it is damaged ({words}). Write it again.') from None


def read_member(archive: ZipFile, name: str) -> bytes | Unreadable:
    """Return the content of a member, or the reason why it cannot be read."""
    try:
        member = archive.getinfo(name)
        with archive.open(member) as stream:
            content = stream.read(member.file_size)
            if stream.read(1):
                return Unreadable("it is larger than the zip file says. Write the archive again.")
            return content or Unreadable("it is empty (0 bytes). Replace it or remove it.")
    except (*_DAMAGED, KeyError) as error:
        return Unreadable(f"it is damaged or cut off ({error}). Write the archive again.")


def is_zip(word: str | Path) -> bool:
    """Return whether a path is a zip file, or an image in one: ``birds.zip/owl/1.jpg``."""
    file, inside = _parts(str(word))
    return file.lower().endswith(".zip") and Path(file).is_file() and not (inside and Path(str(word)).exists())


def _parts(word: str) -> tuple[str, str]:
    match = _INSIDE.fullmatch(word)
    return (match[1], match[2]) if match else (word, "")


def zip_images(word: str | Path) -> ZipImages:
    """Return the images of a zip file, or a single one: ``birds.zip/owl/1.jpg``."""
    file, inside = _parts(str(word))
    return ZipImages(file, [inside] if inside else _members(file, []))


def zip_rows(file: Path, size: int | None) -> Rows:
    """Return the images of a zip file with the labels and splits of their folders."""
    skipped: list[Skipped] = []
    names = _members(str(file), skipped)
    places = label_places(names)
    skipped += [
        Skipped(file=f"{file}/{name}", reason="it is outside the label folders") for name in names if name not in places
    ]
    labels, splits = zip(*places.values(), strict=True) if places else ((), ())
    for unfit in filter(None, map(unfit_name, dict.fromkeys(labels))):
        raise DataError(f'A folder in "{file}" cannot be a label: {unfit}. Rename it.')
    images = ZipImages(str(file), list(places), None if size is None else (3, size, size))
    rows = named_rows([normal_name(label) for label in labels])
    files = tuple(f"{file}/{name}" for name in places)
    return replace(rows, images=images, files=files, splits=splits if any(splits) else (), skipped=tuple(skipped))


def _members(file: str, skipped: list[Skipped]) -> list[str]:
    """Return the sorted image names of a zip file; unreadable ones are added to ``skipped``."""
    with open_zip(file) as archive:
        check_size(file, ENTRY * len(archive.infolist()))
        images = [member for member in archive.infolist() if is_image(member.filename) and is_shown(member.filename)]
    faults = {member.filename: fault for member in images if (fault := _fault(member))}
    skipped += [Skipped(file=f"{file}/{name}", reason=fault) for name, fault in faults.items()]
    return sorted({member.filename for member in images} - set(faults))


def is_shown(name: str) -> bool:
    """Return whether a member is a visible file."""
    return not any(is_hidden(part) for part in name.split("/") if part not in (".", ".."))


def leads_out(name: str) -> bool:
    """Return whether a member name escapes from its archive."""
    return ".." in name.split("/") or name.startswith("/")


def _fault(member: ZipInfo) -> str:
    if leads_out(member.filename):
        return "its name leads out of the archive. Write the archive again."
    if member.flag_bits & 1:
        return "it is encrypted. Write the archive without a password."
    too_large = member.file_size > MAX_BYTES
    return f"it has {member.file_size} bytes; the limit is {MAX_BYTES}. Make it smaller." if too_large else ""


def label_places(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return label and split of each image in a label folder, from the folders of its name.

    Folders above all labels do not count, and folders of splits may be above the labels.

    >>> label_places(["my birds/train/owl/1.jpg", "my birds/test/wren/night/2.jpg"])
    {'my birds/train/owl/1.jpg': ('owl', 'train'), 'my birds/test/wren/night/2.jpg': ('wren', 'test')}
    """
    parts = {name: [part for part in PurePosixPath(name).parts if part != "."] for name in names}
    while (
        parts
        and _one_folder({tuple(parts_of_path[:1]) for parts_of_path in parts.values()})
        and min(map(len, parts.values())) > 2
    ):
        parts = {name: parts_of_path[1:] for name, parts_of_path in parts.items()}
    splits = {parts_of_path[0].casefold() for parts_of_path in parts.values()}
    if splits <= set(SPELLINGS) and all(len(parts_of_path) > 2 for parts_of_path in parts.values()):
        places = {
            name: (parts_of_path[1], SPELLINGS[parts_of_path[0].casefold()]) for name, parts_of_path in parts.items()
        }
    else:
        places = {name: (parts_of_path[0], "") for name, parts_of_path in parts.items() if len(parts_of_path) > 1}
    return {name: place for name, place in places.items() if normal_name(place[0]).casefold() not in RESERVED}


def _one_folder(tops: set[tuple[str, ...]]) -> bool:
    return len(tops) == 1 and next(iter(tops))[0].casefold() not in SPELLINGS
