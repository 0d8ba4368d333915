"""Archives unpacked safely: only plain files and folders, and nothing outside the folder they are unpacked into."""

import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from labelwise.errors import DataError


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar or zip archive into a folder; it is there whole or not at all.

    Every member is checked before the first is written. Links, devices, absolute paths and paths that lead out of the
    folder are refused.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".unpacking-") as temporary:
            _unpack_whole(archive, Path(temporary))
            for each in sorted(Path(temporary).iterdir()):
                _move_into(each, folder / each.name)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataError(f'"{archive}" is damaged ({error}). Remove it and download it again.') from None
    except OSError as error:
        raise DataError(f'Cannot unpack "{archive}" into "{folder}": {error.strerror or error}.') from None


def check_room(folder: Path, size: int) -> None:
    """Raise an error unless the disk of a folder has room for so many bytes."""
    free = shutil.disk_usage(folder).free
    if size > free:
        raise DataError(
            f'"{folder}" needs {size / 1e6:,.0f} MB but its disk has {free / 1e6:,.0f} MB left. Free some, or choose '
            "another folder with LABELWISE_DATA."
        )


def _unpack_whole(archive: Path, folder: Path) -> None:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                _check(archive, info.filename, plain=kind in (0, stat.S_IFREG, stat.S_IFDIR))
            check_room(folder, sum(info.file_size for info in packed.infolist()))
            packed.extractall(folder)
        return
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
        for member in members:
            _check(archive, member.name, plain=member.isfile() or member.isdir())
        check_room(folder, sum(member.size for member in members))
        tar.extractall(folder, filter="data")


def _check(archive: Path, name: str, *, plain: bool) -> None:
    """Raise an error for a member that is no plain file or folder, or that would land outside."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or name[1:2] == ":":
        raise DataError(f'"{archive}" is refused: its member "{name}" leads out of the folder. Nothing was unpacked.')
    if not plain:
        raise DataError(f'"{archive}" is refused: its member "{name}" is a link or a device. Nothing was unpacked.')


def _move_into(source: Path, target: Path) -> None:
    """Move a file or folder; a folder that is there already takes up what it lacks."""
    if source.is_dir() and target.is_dir():
        for each in sorted(source.iterdir()):
            _move_into(each, target / each.name)
    else:
        os.replace(source, target)
