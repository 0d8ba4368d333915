"""Files written whole or not at all; and whether they can be: the place, the room on its disk, another process that writes there.

That is asked before the work begins. What fails all the same, on a full disk, is one sentence, and nothing is left of it.
"""

import fcntl
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from labelwise.support.errors import LabelwiseError, StoreError, UsageError


def check_writable(target: Path) -> None:
    """Raise an error unless a file or folder of this name can be written: a folder is made next to it, renamed and removed."""
    if not target.name or target.name == "..":
        raise UsageError(f'"{target}" is not a file name. Give one, such as birds.lw.')
    try:
        str(target).encode()
    except UnicodeEncodeError:
        raise UsageError(f"The name {str(target)!a} is not valid UTF-8. Choose another one.") from None
    part, old = (target.with_name(f".{target.name}.{os.getpid()}.{kind}") for kind in ("part", "old"))
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


@contextmanager
def _parents(target: Path) -> Iterator[None]:
    """While open, the folder of the target is there; what had to be made for it and is empty in the end is removed."""
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
    """While open, the folder of a target is there, and what cannot be written is a ``StoreError``.

    A folder that had to be made for it, and the target if it is a folder, are removed if they are empty in the end.
    """
    with _parents(target):
        try:
            yield
        except OSError as error:
            with suppress(OSError):
                target.rmdir()
            reason = error.strerror or error
            raise StoreError(f'Cannot write "{target}": {reason}. Free some space, or choose another place.') from error


@contextmanager
def writing_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder that replaces the target in the end; a crash leaves the old one or none, never a part of the new one."""
    part, old = (target.with_name(f".{target.name}.{os.getpid()}.{kind}") for kind in ("part", "old"))
    with writing(target):
        try:
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            yield part
            _put_in_place(part, old, target)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _put_in_place(part: Path, old: Path, target: Path) -> None:
    shutil.rmtree(old, ignore_errors=True)
    try:
        if target.exists():
            target.rename(old)
        part.rename(target)
    except BaseException:
        if old.exists() and not target.exists():
            old.rename(target)
        raise
    sync_folder(target.parent)
    if old.is_symlink():  # a link was replaced, not what it leads to
        old.unlink()
    else:
        shutil.rmtree(old, ignore_errors=True)


def write_file(target: str | Path, *content: bytes | memoryview) -> None:
    """Write a file whole or not at all, in folders that are made for it."""
    with writing(Path(target)):
        write_atomically(Path(target), *content)


def write_by(target: str | Path, save: Callable[[BinaryIO], object]) -> None:
    """Write a file of what ``save`` puts into a stream, whole or not at all."""
    stream = io.BytesIO()
    save(stream)
    write_file(target, stream.getbuffer())


def _refusal(target: Path, error: OSError) -> UsageError:
    files = [f'"{place}" is a file' for place in target.parents if os.path.isfile(place)]
    return UsageError(
        f'Cannot write "{target}": {files[0] if files else error.strerror}. Choose another place, or change its permissions.'
    )


def check_room(place: Path, size: int) -> None:
    """Raise an error unless the disk of a file or folder, which need not exist yet, has room for so many bytes."""
    here = next(folder for folder in (place, *place.absolute().parents) if os.path.exists(folder))
    free = shutil.disk_usage(here).free
    if free < size:
        raise StoreError(
            f'Up to {size / 1e6:,.1f} MB are needed in "{place}", and its disk has {free / 1e6:,.1f} MB left. Free some space, or '
            "choose another place."
        )


def create_private_folder(folder: Path) -> None:
    """Create a folder for its owner alone (0700) if there is none, and bring the names of all that is new to disk."""
    missing = [one for one in (folder, *folder.parents) if not os.path.exists(one)]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _refusal(folder, error) from None
    for one in missing:
        sync_folder(one.parent)


def _busy(target: Path, owner: str) -> LabelwiseError:
    return UsageError(
        f'Another process ({owner or "unknown"}) is writing to "{target}". Wait until it ends, or choose another name.'
    )


@contextmanager
def sole_writer(
    target: Path, lock: Path | None = None, busy: Callable[[Path, str], LabelwiseError] = _busy
) -> Iterator[None]:
    """While open, no other process can open it for the same target: it gets the error that ``busy`` makes, at once.

    ``lock`` is a file, ``.NAME.lock`` next to the target where left out; it is freed when its process ends, in whatever way.
    """
    path = lock or target.with_name(f".{target.name}.lock")
    with _parents(path):
        try:
            file = _open_lock(path, partial(busy, target))
        except OSError as error:
            raise _refusal(target, error) from None
        try:
            with suppress(OSError):  # on a full disk nobody is told the number of the process
                os.ftruncate(file, 0)
                os.write(file, str(os.getpid()).encode())
            yield
        finally:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            os.close(file)


@contextmanager
def turn(lock: Path) -> Iterator[None]:
    """Wait until no other process is inside with the same file, and keep others waiting while open."""
    file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _open_lock(path: Path, busy: Callable[[str], LabelwiseError]) -> int:
    """Return the open lock, which nobody else has."""
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
        os.close(file)  # its owner removed it and ended: a newer one may lie there


def write_atomically(path: Path, *content: bytes | memoryview, keep: Path | None = None) -> None:
    """Write a file so that a reader sees the old content or the new, never a part, even after a crash.

    ``content`` is written one piece after another; ``keep`` is where the file that is replaced goes.
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
    """Bring the names in a folder to disk, as after a rename; some file systems cannot."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            os.fsync(directory)
    finally:
        os.close(directory)
