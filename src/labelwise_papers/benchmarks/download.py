"""Download benchmarks from their official addresses: resume broken transfers, check, then unpack.

Archives are unpacked safely: only plain files and folders, and nothing outside the folder they are unpacked into.
"""

import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from http.client import HTTPException, HTTPMessage
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from labelwise.support.errors import DataError
from labelwise.support.files import open_regular, regular_path
from labelwise_papers.benchmarks.entries import Entry, Remote
from labelwise_papers.benchmarks.registry import find_official

CHUNK = 1 << 18
ATTEMPTS = 4
TIMEOUT = 30.0
_UNPACKED = 2.2  # room for an archive and what it holds, as a multiple of the archive

Advance = Callable[[int, int | None], None]


def download(entry: Entry, root: Path, progress: bool = True) -> Path:
    """Return the folder of a benchmark after its files were fetched into it, checked and unpacked.

    Nothing is fetched where the official layout is there already, nor a file that is there with the right checksum.
    Archives are removed once all of them are unpacked.
    """
    if not entry.remotes:
        raise DataError(f'"{entry.name}" cannot be downloaded from here. {entry.get} Official page: {entry.homepage}')
    folder = root / entry.folder
    if find_official(entry, root) is not None:
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f'Cannot make the folder "{folder}": {error.strerror}. Choose another root.') from None
    size = sum((remote.megabytes or 0) * (_UNPACKED if remote.unpack else 1) for remote in entry.remotes)
    check_room(folder, int(size * 1e6))
    for remote in entry.remotes:
        file = folder / remote.file
        if not (file.exists() and (remote.md5 is None or _md5(file) == remote.md5)):
            _fetch(remote, file, progress)
    archives = [folder / remote.file for remote in entry.remotes if remote.unpack]
    for archive in archives:
        unpack(archive, folder)
    for archive in archives:
        archive.unlink()
    return folder


def _fetch(remote: Remote, file: Path, progress: bool) -> None:
    """Fetch one file: into ``.part`` first, then checked, then under its own name."""
    part = file.with_name(file.name + ".part")
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not (progress and console.is_terminal)) as bar:
        task = bar.add_task(remote.file, total=None)
        _transfer(remote.url, part, lambda done, total: bar.update(task, completed=done, total=total))
    checksum = _md5(part)
    if remote.md5 is not None and checksum != remote.md5:
        aside = file.with_name(file.name + ".wrong")
        os.replace(part, aside)
        raise DataError(
            f'"{remote.url}" arrived with the checksum {checksum}, not {remote.md5}. It was put aside as "{aside}". Download '
            "again; if it stays so, the file at the address has changed."
        )
    os.replace(part, file)


def _transfer(url: str, part: Path, advance: Advance) -> None:
    """Append to ``part`` until the whole file is there; a broken transfer is taken up where it stopped."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise DataError(f'"{url}" is no address of the web. Give one with http or https.')
    broken = ""
    for _ in range(ATTEMPTS):
        try:
            if _append(url, part, advance):
                return
            broken = "the connection closed before the end"
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416 and part.exists():  # nothing is left to fetch, or what is there belongs elsewhere
                if error.headers.get("Content-Range", "").endswith(f"/{part.stat().st_size}"):
                    return
                part.unlink()
                continue
            if error.code < 500:
                raise DataError(
                    f'"{url}" answers {error.code} {error.reason}: the file is no longer there, or not for everyone.'
                ) from None
            broken = f"the server answers {error.code} {error.reason}"
        except urllib.error.URLError as error:
            raise DataError(
                f'Cannot reach "{urlsplit(url).netloc}" ({error.reason}). Are you offline? What arrived so far is kept.'
            ) from None
        except (HTTPException, TimeoutError, ConnectionError) as error:
            broken = str(error) or type(error).__name__
        except OSError as error:
            raise DataError(f'Cannot write "{part}": {error.strerror or error}.') from None
    raise DataError(f'"{url}" broke off {ATTEMPTS} times ({broken}). What arrived is kept; download again to go on.')


def _append(url: str, part: Path, advance: Advance) -> bool:
    """Fetch what ``part`` lacks and return whether it is whole now."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "labelwise", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        have, total = _place(answer, have)
        if total is not None:
            check_room(part.parent, total - have)
        with part.open("r+b" if have else "wb") as stream:
            stream.seek(have)
            while chunk := answer.read(CHUNK):
                stream.write(chunk)
                have += len(chunk)
                advance(have, total)
            stream.truncate()
            stream.flush()
            os.fsync(stream.fileno())
    return total is None or have >= total


def _place(answer: Any, have: int) -> tuple[int, int | None]:
    """Return at which byte the answer begins and how long the whole file is, where the server says so."""
    headers: HTTPMessage = answer.headers
    span, _, whole = headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
    if answer.status == 206:
        if span.partition("-")[0] != str(have):
            raise HTTPException(f"asked for bytes from {have} on, given {span or 'others'}")
        return have, int(whole) if whole.isdigit() else None
    length = headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def _md5(file: Path) -> str:
    with open_regular(file, None) as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


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
    if zipfile.is_zipfile(regular_path(archive)):
        with open_regular(archive, None) as stream, zipfile.ZipFile(stream) as packed:
            for info in packed.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                _check(archive, info.filename, plain=kind in (0, stat.S_IFREG, stat.S_IFDIR))
            check_room(folder, sum(info.file_size for info in packed.infolist()))
            packed.extractall(folder)
        return
    with tarfile.open(regular_path(archive)) as tar:
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
