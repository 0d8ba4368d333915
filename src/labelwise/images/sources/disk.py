"""Pictures that do not fit in memory: decoded once by worker processes into one file, then mapped into memory.

Training reads the decoded bytes from that file, epoch after epoch, and never decodes again; the operating system keeps
in memory what fits. The file lies in a cache folder and is found again as long as no picture changes.

One process writes it while others that need it wait, and nobody sees it before it is whole. It ends in a record of what it holds:
readable pictures follow each other without gaps, so which ones are missing decides which label belongs to a row.
"""

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from importlib.util import find_spec
from itertools import repeat
from math import prod
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from labelwise.images.dataset import Skipped
from labelwise.images.decode.decoding import QUIET, Frame, UnreadableError
from labelwise.images.decode.workers import decode_safely
from labelwise.images.view import Fit
from labelwise.support.cache import VARIABLE, is_on, user_folder
from labelwise.support.errors import DataError
from labelwise.support.interruption import cancel_on_error, leave_to_parent
from labelwise.support.limits import memory

CHUNK = 64  # pictures that a worker decodes in one go
MEMORY_SHARE = 0.4  # of this machine's memory: larger sets go to disk
FORMAT = "labelwise pictures 2"
REPLACED = ("pictures", "bytes", "json")  # suffixes of this and of version 0.1
LENGTH = 16  # digits at the very end of the file: how long the record before them is
Shape = tuple[int, int, int]
Faults = list[str | None]


def cache_folder() -> Path:
    """Return where decoded pictures are kept: ``LABELWISE_CACHE``, or a folder in the user's cache."""
    return user_folder() if os.environ.get(VARIABLE) and is_on() else user_folder() / "decoded"


def fits_in_memory(n: int, shape: Sequence[int]) -> bool:
    """Return whether n pictures of this shape should be held in memory; ``LABELWISE_MEMORY_MB`` sets the limit."""
    megabytes = os.environ.get("LABELWISE_MEMORY_MB")
    return n * prod(shape) <= (float(megabytes) * 2**20 if megabytes else MEMORY_SHARE * memory())


def decode_to_disk(
    paths: Sequence[Path], shape: Shape, *, fit: Fit = "cut", folder: Path | None = None, workers: int | None = None
) -> tuple[Tensor, list[int], tuple[Skipped, ...]]:
    """Return the pictures ``[m, c, h, w]`` as a tensor mapped from a file, which paths they are, and the unreadable ones.

    The file lies in ``folder``, or in ``cache_folder()``; ``workers`` processes decode, or one for each core.
    """
    folder = folder or cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    key = _key(paths, shape, fit)
    file = (
        folder / f"{key}.pictures"
    )  # which says about itself, with a checksum over names, sizes and dates of the pictures:
    about: dict[str, Any] = {"format": FORMAT, "checksum": key, "pictures": len(paths), "shape": list(shape)}
    about |= {} if fit == "cut" else {"fit": fit}
    about |= {"heif": True} if find_spec("pillow_heif") else {}  # what could not be read without it now can
    faults = _read_record(file, about)
    if faults is None:
        with _lock(folder / f"{key}.lock"):
            faults = _read_record(file, about)  # another process may have written it meanwhile
            if faults is None:
                faults = _write(file, about, paths, workers or os.cpu_count() or 1)
    readable = [i for i, fault in enumerate(faults) if fault is None]
    skipped = tuple(Skipped(file=str(paths[i]), reason=fault) for i, fault in enumerate(faults) if fault is not None)
    return torch.from_numpy(np.memmap(file, np.uint8, "c", shape=(len(readable), *shape))), readable, skipped


def _key(paths: Sequence[Path], shape: Shape, fit: Fit) -> str:
    digest = blake2b((repr(shape) + fit.removeprefix("cut")).encode(), digest_size=12)
    for path in paths:
        try:
            about = path.stat()
            digest.update(f"{path.resolve()}\n{about.st_size}\n{about.st_mtime_ns}\n".encode(errors="surrogateescape"))
        except OSError:
            digest.update(f"{path}\nmissing\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _read_record(file: Path, about: dict[str, Any]) -> Faults | None:
    """Return why each picture is not in the file (None where it is), or None unless the file is whole and is the one meant."""
    try:
        with file.open("rb") as stream:
            end = stream.seek(-LENGTH, os.SEEK_END)
            start = stream.seek(end - int(stream.read(LENGTH)))
            record = json.loads(stream.read(end - start))
    except (OSError, ValueError):  # there is none, or what stands at its end is no record
        return None
    if not isinstance(record, dict) or {name: record.get(name) for name in about} != about:
        return None
    reasons: dict[str, str] = record.get("unreadable", {})
    if start != (about["pictures"] - len(reasons)) * prod(about["shape"]):
        return None
    return [reasons.get(str(i)) for i in range(about["pictures"])]


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock and keep it while open; it ends with the process, however that ends.

    The lock belongs to the process alone: workers that outlive a writer that was killed do not hold it.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("a"))
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if (console := Console(stderr=True)).is_terminal:
                    console.print("Waiting for another process that decodes the same pictures.")
                fcntl.lockf(file, fcntl.LOCK_EX)
        except OSError as error:
            raise DataError(
                f"Decoded pictures cannot be kept in {path.parent}: it cannot be locked for one process to write them "
                f"({error.strerror}). Set LABELWISE_CACHE to a folder of your own on a disk of this machine."
            ) from None
        yield


def _write(file: Path, about: dict[str, Any], paths: Sequence[Path], workers: int) -> Faults:
    """Write the file of these pictures and return why each is not in it; call it with the lock held.

    It has a name of its own until it is whole. What is left of the same pictures goes: of a writer that was killed, a damaged
    file, and the files of version 0.1, whose rows may be those of other pictures.
    """
    shape: Shape = tuple(about["shape"])
    for left in (*file.parent.glob(f".{file.stem}.*.part"), *(file.with_suffix(f".{x}") for x in REPLACED)):
        left.unlink(missing_ok=True)
    _check_room(file.parent, len(paths) * prod(shape))
    part = file.with_name(f".{file.stem}.{secrets.token_hex(8)}.part")
    try:
        frame = Frame(shape[1], shape[2], shape[0], fit=about.get("fit", "cut"))
        faults = _decode_all(paths, frame, part, workers)
        if None not in faults:
            raise DataError(f"None of {len(paths)} pictures can be read. {paths[0]}: {faults[0]}")
        _close_gaps(part, shape, faults)
        reasons = {str(i): fault for i, fault in enumerate(faults) if fault is not None}
        record = json.dumps({**about, "unreadable": reasons}).encode()
        with part.open("ab") as stream:
            stream.write(record + f"{len(record):0{LENGTH}d}".encode())
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)
    return faults


def _check_room(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < size * 1.05:
        raise DataError(
            f"The decoded pictures need {size / 2**30:.1f} GiB in {folder}, where {free / 2**30:.1f} GiB are free. "
            "Make room, choose a smaller --size, or set LABELWISE_CACHE to a folder on a larger disk."
        )


def _decode_all(paths: Sequence[Path], frame: Frame, pixels: Path, workers: int) -> Faults:
    with pixels.open("wb") as file:
        file.truncate(len(paths) * prod(frame.shape))
    starts = range(0, len(paths), CHUNK)
    parts = [list(paths[start : start + CHUNK]) for start in starts]
    console = Console(stderr=True)
    # A forked worker starts at once, a spawned one imports torch first; but what CUDA holds must not be forked.
    forkable = "fork" in get_all_start_methods() and not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    how = get_context("fork" if forkable else "spawn")
    with cancel_on_error(ProcessPoolExecutor(min(workers, len(parts)), how, leave_to_parent)) as pool:
        faults = pool.map(_decode_part, parts, starts, repeat(frame), repeat(pixels))
        bar = track(faults, "Decoding pictures", len(parts), console=console, disable=not console.is_terminal)
        return [fault for part in bar for fault in part]


def _decode_part(paths: list[Path], start: int, frame: Frame, pixels: Path) -> Faults:
    """Decode some pictures into their rows of the file; what a worker runs. Returns why each failed, or None."""
    shape = frame.shape
    rows = np.memmap(pixels, np.uint8, "r+", offset=start * prod(shape), shape=(len(paths), *shape))
    faults: Faults = []
    with QUIET:
        for row, path in enumerate(paths):
            try:
                rows[row] = decode_safely(path, frame)
                faults.append(None)
            except UnreadableError as fault:
                faults.append(str(fault))
    rows.flush()
    return faults


def _close_gaps(pixels: Path, shape: Shape, faults: Faults) -> None:
    """Move the rows after an unreadable picture up, so that the file holds the readable ones without gaps."""
    readable = [i for i, fault in enumerate(faults) if fault is None]
    if len(readable) == len(faults):
        return
    rows = np.memmap(pixels, np.uint8, "r+", shape=(len(faults), *shape))
    for position, row in enumerate(readable):
        if position != row:
            rows[position] = rows[row]
    rows.flush()
    del rows
    os.truncate(pixels, len(readable) * prod(shape))
