"""A zip file of label folders, read without unpacking it: nothing is written to disk, so no name in it can lead anywhere.

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
from labelwise.images.images import Skipped, Unreadable
from labelwise.images.sources.paths import SPELLINGS, is_hidden, is_image
from labelwise.images.sources.rows import Rows, named_rows
from labelwise.images.stored import Content, StoredImages, part_of
from labelwise.support.errors import DataError
from labelwise.support.files import MAX_BYTES, check_size, open_regular

_INSIDE = re.compile(r"(.+?\.zip)/(.+)", re.DOTALL | re.IGNORECASE)
_DAMAGED = (BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError, ValueError, zlib.error)
ENTRY = 1_000  # bytes of memory that an entry takes at most, about


class ZipImages(StoredImages):
    """The images of a zip file, each unpacked into memory when it is read."""

    def __init__(self, file: str, names: Sequence[str], shape: tuple[int, ...] | None = None) -> None:
        super().__init__([f"{file}/{name}" for name in names], shape)
        self._archive, self._names = _Archive(file), names

    def contents(self, rows: Sequence[int]) -> Sequence[Content | Unreadable]:
        """Return the content of each, or why there is none, read when it is asked for."""
        return _Members(self._archive, [self._names[row] for row in rows])


class _Archive:
    """A zip file that each process opens once: reading its list takes as long as it has entries."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._opened: dict[int, ZipFile] = {}

    def __reduce__(self) -> tuple[type["_Archive"], tuple[str]]:
        return _Archive, (self.file,)

    def opened(self) -> ZipFile:
        """Return the zip file, which several threads may read."""
        process = os.getpid()
        if process not in self._opened:
            with ExitStack() as stack:
                self._opened[process] = stack.enter_context(open_zip(self.file))
                finalize(self, stack.pop_all().close)
        return self._opened[process]


class _Members(Sequence[Content | Unreadable]):
    """The contents of members of a zip file."""

    def __init__(self, archive: _Archive, names: Sequence[str]) -> None:
        self._archive, self._names = archive, names

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, place: Any) -> Any:
        name = self._names[place]
        return part_of(read_member(self._archive.opened(), file_of(name)), name)


@contextmanager
def open_zip(file: str) -> Iterator[ZipFile]:
    """Open a zip file; what is wrong with it is an error for people."""
    try:
        with open_regular(file, None) as stream, ZipFile(stream) as archive:
            yield archive
    except _DAMAGED as error:
        words = getattr(error, "strerror", None) or error
        raise DataError(f'"{file}" is not a zip file, or it is damaged ({words}). Write it again.') from None


def read_member(archive: ZipFile, name: str) -> bytes | Unreadable:
    """Return what a member holds, or why it cannot be read."""
    try:
        about = archive.getinfo(name)
        with archive.open(about) as stream:
            content = stream.read(about.file_size)
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
    """Return the images of a zip file, or the one that is named so: ``birds.zip/owl/1.jpg``."""
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
    """Return the names of the images of a zip file, sorted; those that cannot be read are added to ``skipped``."""
    with open_zip(file) as archive:
        check_size(file, ENTRY * len(archive.infolist()))
        images = [one for one in archive.infolist() if is_image(one.filename) and is_shown(one.filename)]
    faults = {one.filename: fault for one in images if (fault := _fault(one))}
    skipped += [Skipped(file=f"{file}/{name}", reason=fault) for name, fault in faults.items()]
    return sorted({one.filename for one in images} - set(faults))


def is_shown(name: str) -> bool:
    """Return whether a member is one that people see."""
    return not any(is_hidden(part) for part in name.split("/") if part not in (".", ".."))


def leads_out(name: str) -> bool:
    """Return whether the name of a member leads out of its archive."""
    return ".." in name.split("/") or name.startswith("/")


def _fault(one: ZipInfo) -> str:
    if leads_out(one.filename):
        return "its name leads out of the archive. Write the archive again."
    if one.flag_bits & 1:
        return "it is encrypted. Write the archive without a password."
    too_large = one.file_size > MAX_BYTES
    return f"it has {one.file_size} bytes; the limit is {MAX_BYTES}. Make it smaller." if too_large else ""


def label_places(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return label and split of each image that is in a label folder, by the folders in its name.

    Folders above all labels do not count, and folders of splits may be above the labels.

    >>> label_places(["my birds/train/owl/1.jpg", "my birds/test/wren/night/2.jpg"])
    {'my birds/train/owl/1.jpg': ('owl', 'train'), 'my birds/test/wren/night/2.jpg': ('wren', 'test')}
    """
    parts = {name: [part for part in PurePosixPath(name).parts if part != "."] for name in names}
    while parts and _one_folder({tuple(each[:1]) for each in parts.values()}) and min(map(len, parts.values())) > 2:
        parts = {name: each[1:] for name, each in parts.items()}
    splits = {each[0].casefold() for each in parts.values()}
    if splits <= set(SPELLINGS) and all(len(each) > 2 for each in parts.values()):
        places = {name: (each[1], SPELLINGS[each[0].casefold()]) for name, each in parts.items()}
    else:
        places = {name: (each[0], "") for name, each in parts.items() if len(each) > 1}
    return {name: place for name, place in places.items() if normal_name(place[0]).casefold() not in RESERVED}


def _one_folder(tops: set[tuple[str, ...]]) -> bool:
    return len(tops) == 1 and next(iter(tops))[0].casefold() not in SPELLINGS
