"""Atomic writes of files and folders, with checks of permissions, disk space and locks before work begins.

A write that still fails, such as on a full disk, raises a one-sentence error and leaves nothing behind.
"""

import errno
import fcntl
import io
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO, Final

from labelwise.support.errors import LabelwiseError, StoreError, UsageError, is_of_machine

TRIES: Final = 20  # to put a folder in place that other processes replace, too


def check_writable(target: Path) -> None:
    """Raise an error unless a file or folder of this name can be written; test it with a temporary folder next to it."""
    if not target.name or target.name == "..":
        raise UsageError(f'"{target}" is not a file name. Give one, such as birds.lw.')
    try:
        str(target).encode()
    except UnicodeEncodeError:
        raise UsageError(f"The name {str(target)!a} is not valid UTF-8. Choose another one.") from None
    part, old = _temporary_paths(target)
    with _parents(target):
        try:
            part.mkdir()
            part.rename(old)
        except OSError as error:
            raise _refusal(target, error) from None
        finally:
            for folder in (part, old):
                with suppress(OSError):
                    folder.rmdir()


def _temporary_paths(target: Path) -> tuple[Path, Path]:
    """Return the names of the new and of the old version while a folder is replaced.

    That of the old one is new each time: after a crash it may be all there is, and in a container the process has the same number again.
    """
    return target.with_name(f".{target.name}.{os.getpid()}.part"), target.with_name(
        f".{target.name}.{token_hex(4)}.old"
    )


@contextmanager
def _parents(target: Path) -> Iterator[None]:
    """Create the folder of the target for the block; afterwards, remove new folders that are empty."""
    missing = [folder for folder in target.parents if not os.path.exists(folder)]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _refusal(target, error) from None
    try:
        yield
    finally:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Create the folder of a target for the block, and turn write errors into ``StoreError``.

    Afterwards, remove new folders, and the target if it is a folder, if they are empty.
    """
    with _parents(target):
        try:
            yield
        except OSError as error:
            with suppress(OSError):
                target.rmdir()
            raise _failure(target, error) from error


@contextmanager
def writing_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder that replaces the target at the end; a crash leaves the old one or none, never a partial one."""
    part, old = _temporary_paths(target)
    with writing(target):
        try:
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            yield part
            _put_in_place(part, old, target)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _put_in_place(part: Path, old: Path, target: Path) -> None:
    for attempts in reversed(range(TRIES)):
        try:
            with suppress(FileNotFoundError):  # there is none
                target.rename(old)
            part.rename(target)
        except BaseException as error:
            if os.path.lexists(target):
                _remove(old)
            else:
                with suppress(OSError):
                    old.rename(target)
            if not attempts or getattr(error, "errno", None) not in (errno.ENOTEMPTY, errno.EEXIST):
                raise  # else another process wrote it in between, and the last one stays
        else:
            sync_folder(target.parent)
            for leftover in (old, *_leftovers(target)):
                _remove(leftover)
            break


def _leftovers(target: Path) -> list[Path]:
    """Return old versions that could not be removed when they were replaced: the process was killed, or the disk failed."""
    name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}\.old")
    with suppress(OSError):
        return [path for path in target.parent.iterdir() if name.fullmatch(path.name)]
    return []


def _remove(old: Path) -> None:
    """Remove a version that another one has replaced."""
    if old.is_symlink():  # a link was replaced, not its target
        old.unlink()
    else:
        shutil.rmtree(old, ignore_errors=True)


def write_file(target: str | Path, *content: bytes | memoryview) -> None:
    """Write a file atomically; create its folders."""
    with writing(Path(target)):
        write_atomically(Path(target), *content)


def write_by(target: str | Path, save: Callable[[BinaryIO], object]) -> None:
    """Write a file atomically from a function ``save`` that fills a stream."""
    stream = io.BytesIO()
    save(stream)
    write_file(target, stream.getbuffer())


def _refusal(target: Path, error: OSError) -> LabelwiseError:
    if is_of_machine(error):
        return _failure(target, error)
    files = [f'"{place}" is a file' for place in target.parents if os.path.isfile(place)]
    return UsageError(
        f'Cannot write "{target}": {files[0] if files else error.strerror}. Choose another place, or change its permissions.'
    )


def _failure(target: Path, error: OSError) -> StoreError:
    return StoreError(f'Cannot write "{target}": {error.strerror or error}. Free some space, or choose another place.')


def check_room(place: Path, size: int) -> None:
    """Raise an error unless the disk of a path, which need not exist yet, has room for this many bytes."""
    folder_at_hand = next(folder for folder in (place, *place.absolute().parents) if os.path.exists(folder))
    free = shutil.disk_usage(folder_at_hand).free
    if free < size:
        raise StoreError(
            f'Up to {size / 1e6:,.1f} MB are needed in "{place}", and its disk has {free / 1e6:,.1f} MB left. Free some space, or '
            "choose another place."
        )


def create_private_folder(folder: Path) -> None:
    """Create a private folder (0700) if it is missing, and sync all new names to disk."""
    missing = [missing_folder for missing_folder in (folder, *folder.parents) if not os.path.exists(missing_folder)]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _refusal(folder, error) from None
    for missing_folder in missing:
        sync_folder(missing_folder.parent)


def _busy(target: Path, owner: str) -> LabelwiseError:
    return UsageError(
        f'Another process ({owner or "unknown"}) is writing to "{target}". Wait until it ends, or choose another name.'
    )


@contextmanager
def sole_writer(
    target: Path, lock: Path | None = None, busy: Callable[[Path, str], LabelwiseError] = _busy
) -> Iterator[None]:
    """Lock a target within the block; another process that tries gets the error from ``busy`` at once.

    ``lock`` is a file, by default ``.NAME.lock`` next to the target. The lock ends with its process, even after a crash.
    """
    path = lock or target.with_name(f".{target.name}.lock")
    with _parents(path):
        try:
            file = _open_lock(path, partial(busy, target))
        except OSError as error:
            raise _refusal(target, error) from None
        try:
            with suppress(OSError):  # on a full disk the number of the process is not written
                os.ftruncate(file, 0)
                os.write(file, str(os.getpid()).encode())
            yield
        finally:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            os.close(file)


@contextmanager
def turn(lock: Path) -> Iterator[None]:
    """Wait for a lock file, and hold the lock within the block."""
    file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _open_lock(path: Path, busy: Callable[[str], LabelwiseError]) -> int:
    """Open and acquire the lock."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)  # no planted link
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(file, 32).decode(errors="replace").strip()
            os.close(file)
            raise busy(owner) from None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), os.stat(path)):
                return file
        os.close(file)  # its owner removed it and ended: a newer file may be there


def write_atomically(path: Path, *content: bytes | memoryview, keep: Path | None = None) -> None:
    """Write a file so that a reader sees the old or the new content, never a part, even after a crash.

    ``content`` is written piece by piece; the replaced file moves to ``keep``.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    try:
        with part.open("xb") as file:  # a new file: a link that somebody planted is not followed
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        if keep is not None and path.exists():
            os.replace(path, keep)
        os.replace(part, path)
        sync_folder(path.parent)
    finally:
        with suppress(OSError):  # where the disk is read-only there is none
            part.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk, as after a rename; some file systems cannot."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            os.fsync(directory)
    finally:
        os.close(directory)
