"""Archives that hold annotations: zip files, and tar files that are no WebDataset shards.

The annotations are read in a temporary folder with their files, and with an empty file for each image, so each format has one reader.
Images stay in the archive; of one without images, they are in its folder. Only regular members with plain names inside the archive count.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, NamedTuple

from labelwise.images.decode.crops import file_of
from labelwise.images.formats.annotations import Annotations, rows_of
from labelwise.images.formats.find import find_annotations
from labelwise.images.images import Images, Skipped
from labelwise.images.sources.archives import ENTRY, ZipImages, is_shown, is_zip, leads_out, open_zip, read_member
from labelwise.images.sources.paths import TAR, is_image, is_shard, open_shard
from labelwise.images.sources.rows import Rows
from labelwise.images.sources.shards import ShardImages, tar_images
from labelwise.images.sources.tar_files import TarSample, TarShard, sample_key, stamp_of, tar_members
from labelwise.support.errors import DataError
from labelwise.support.files import MAX_BYTES, check_size

_LISTS = (".json", ".jsonl", ".xml", ".yaml", ".yml", ".csv", ".tsv", ".txt", ".gz")  # files that readers may ask for
_SIGN = re.compile(
    r".*\.(json|jsonl|xml|ya?ml)|(metadata|media|observations.*)\.csv|photos\.[ct]sv(\.gz)?|(classes|occurrence)\.txt"
)
_MATES = (".cls", ".json", ".txt")  # what shards say of an image, under its name


class _Member(NamedTuple):
    size: int
    start: int = 0  # in a tar file


class _Archive(NamedTuple):
    members: Mapping[str, _Member]
    read: Callable[[str], bytes]
    images: Callable[[list[str], tuple[int, ...] | None], Images]


def is_archive(path: Path) -> bool:
    """Return whether a path is a zip or a tar file on this machine."""
    return (path.suffix.lower() == ".zip" or is_shard(path.name, TAR)) and os.path.isfile(path)


def packed_rows(file: Path, size: int | None, root: str | Path | None) -> Rows | None:
    """Return the images that the annotations in an archive list; None for an archive of plain label folders and for shards."""
    with (_zipped if is_zip(file) else _tarred)(file) as archive:
        if not any(_SIGN.fullmatch(name.rpartition("/")[2].casefold()) for name in archive.members):
            return None
        if root is None and not any(map(is_image, archive.members)):
            root = file.parent
        with TemporaryDirectory(prefix="labelwise-") as folder:
            home = os.path.realpath(folder)
            try:
                _write_outline(Path(home), archive, file)
                parts = _find(Path(home))
                rows = rows_of(parts, None if root is None else Path(root)) if parts else None
            except DataError as error:
                raise DataError(str(error).replace(home, str(file))) from None
        if rows is None or root is not None:
            return rows
        names = [name.removeprefix(home + os.sep) for name in rows.files]
        images = archive.images(names, None if size is None else (3, size, size))
    skipped = tuple(Skipped(file=one.file.replace(home, str(file)), reason=one.reason) for one in rows.skipped)
    return replace(rows, images=images, files=tuple(f"{file}/{name}" for name in names), skipped=skipped)


def _find(home: Path) -> list[Annotations]:
    """Return the annotations in a folder, or in the only folder that is in it, and so on; a JSON file alone may have any name."""
    inside = sorted(home.iterdir())
    documents = list(home.glob("*.json"))
    parts = find_annotations(home) or (find_annotations(documents[0]) if len(documents) == 1 else [])
    return parts or (_find(inside[0]) if len(inside) == 1 and inside[0].is_dir() else [])


def _write_outline(home: Path, archive: _Archive, file: Path) -> None:
    """Write the files of an archive that may be annotations, and empty ones for its images."""
    lists = {name: one for name, one in archive.members.items() if name.casefold().endswith(_LISTS)}
    check_size(file, sum(one.size for one in lists.values()) + ENTRY * len(archive.members))
    for name in archive.members:
        if name not in lists and not is_image(name):
            continue
        try:
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_bytes(archive.read(name) if name in lists else b"")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(
                f'"{file}" holds {name!a:.100}, which no file can be called ({reason}). Rename it.'
            ) from None


def _is_plain(name: str) -> bool:
    return is_shown(name) and not leads_out(name)


@contextmanager
def _zipped(file: Path) -> Iterator[_Archive]:
    with open_zip(str(file)) as archive:
        check_size(file, ENTRY * len(archive.infolist()))
        entries = [one for one in archive.infolist() if not one.is_dir() and _is_plain(one.filename)]
        members = {one.filename: _Member(one.file_size) for one in entries}

        def read(name: str) -> bytes:
            content = read_member(archive, name) if members[name].size else b""
            if not isinstance(content, bytes):
                raise DataError(f'"{file}/{name}": {content.reason}')
            return content

        yield _Archive(members, read, lambda names, shape: ZipImages(str(file), names, shape))


@contextmanager
def _tarred(file: Path) -> Iterator[_Archive]:
    with open_shard(str(file)) as stream:
        members = _tar_index(stream, str(file))

        def read(name: str) -> bytes:
            return os.pread(stream.fileno(), members[name].size, members[name].start)

        def images(names: list[str], shape: tuple[int, ...] | None) -> ShardImages:
            found = [members.get(file_of(name), _Member(0)) for name in names]
            samples = tuple(
                TarSample(key=name, name=name, start=one.start, size=one.size if one.size <= MAX_BYTES else 0)
                for name, one in zip(names, found, strict=True)
            )
            shard = TarShard(address=str(file), samples=samples, skipped=(), stamp=stamp_of(stream, str(file)))
            return tar_images(shard, shape)

        yield _Archive(members, read, images)


def _tar_index(stream: BinaryIO, address: str) -> dict[str, _Member]:
    """Return the members of a tar file; none of a WebDataset shard, whose members say what an image is under its own name."""
    members: dict[str, _Member] = {}
    last = ""
    for one in tar_members(stream, address, []):
        if sample_key(one.name) == sample_key(last) and one.name.endswith(_MATES) != last.endswith(_MATES):
            return {}
        if _is_plain(one.name):
            members[one.name] = _Member(one.size, one.offset_data)
        last = one.name
    return members
