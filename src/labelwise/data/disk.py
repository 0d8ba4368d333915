"""Pictures that do not fit in memory: decoded once by worker processes into one file, then mapped into memory.

Training reads the decoded bytes from that file, epoch after epoch, and never decodes again; the operating system keeps
in memory what fits. The file lies in a cache folder and is found again as long as no picture changes.
"""

import json
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from hashlib import blake2b
from itertools import repeat
from math import prod
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from labelwise.checkpoint import write_atomically
from labelwise.data.dataset import Skipped
from labelwise.data.decoding import QUIET, Frame, UnreadableError, decode
from labelwise.errors import DataError
from labelwise.interruption import leave_to_parent, stoppable

CHUNK = 64  # pictures that a worker decodes in one go
MEMORY_SHARE = 0.4  # of this machine's memory: larger sets go to disk


def cache_folder() -> Path:
    """Return where decoded pictures are kept: ``LABELWISE_CACHE``, or a folder in the user's cache."""
    given = os.environ.get("LABELWISE_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "labelwise" / "decoded"


def fits_in_memory(n: int, shape: Sequence[int]) -> bool:
    """Return whether n pictures of this shape should be held in memory; ``LABELWISE_MEMORY_MB`` sets the limit."""
    given = os.environ.get("LABELWISE_MEMORY_MB")
    limit = float(given) * 2**20 if given else MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return n * prod(shape) <= limit


def decode_to_disk(
    paths: Sequence[Path], shape: tuple[int, int, int], *, folder: Path | None = None, workers: int | None = None
) -> tuple[Tensor, list[int], tuple[Skipped, ...]]:
    """Return the pictures ``[m, c, h, w]`` as a tensor mapped from a file, which paths they are, and the unreadable ones.

    Args:
        paths: where the pictures are.
        shape: what each is brought to.
        folder: the cache; None is ``cache_folder()``.
        workers: processes that decode; None is one for each core.
    """
    folder = folder or cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    key = _key(paths, shape)
    pixels, about = folder / f"{key}.bytes", folder / f"{key}.json"
    if not (about.exists() and pixels.exists()):
        _check_room(folder, len(paths) * prod(shape))
        faults = _decode_all(paths, shape, pixels, workers or os.cpu_count() or 1)
        _close_gaps(pixels, shape, faults)
        write_atomically(about, json.dumps(faults).encode())
    known: list[str | None] = json.loads(about.read_text())
    kept = [i for i, fault in enumerate(known) if fault is None]
    skipped = tuple(Skipped(file=str(paths[i]), reason=fault) for i, fault in enumerate(known) if fault is not None)
    if not kept:
        raise DataError(f"None of {len(paths)} pictures can be read. {paths[0]}: {known[0]}")
    return torch.from_numpy(np.memmap(pixels, np.uint8, "c", shape=(len(kept), *shape))), kept, skipped


def _key(paths: Sequence[Path], shape: tuple[int, int, int]) -> str:
    digest = blake2b(repr(shape).encode(), digest_size=12)
    for path in paths:
        try:
            about = path.stat()
            digest.update(f"{path.resolve()}\n{about.st_size}\n{about.st_mtime_ns}\n".encode())
        except OSError:
            digest.update(f"{path}\nmissing\n".encode())
    return digest.hexdigest()


def _check_room(folder: Path, size: int) -> None:
    about = os.statvfs(folder)
    free = about.f_bavail * about.f_frsize
    if free < size * 1.05:
        raise DataError(
            f"The decoded pictures need {size / 2**30:.1f} GiB in {folder}, where {free / 2**30:.1f} GiB are free. "
            "Make room, choose a smaller --size, or set LABELWISE_CACHE to a folder on a larger disk."
        )


def _decode_all(paths: Sequence[Path], shape: tuple[int, int, int], pixels: Path, workers: int) -> list[str | None]:
    with pixels.open("wb") as file:
        file.truncate(len(paths) * prod(shape))
    starts = range(0, len(paths), CHUNK)
    parts = [list(paths[start : start + CHUNK]) for start in starts]
    console = Console(stderr=True)
    # A forked worker starts at once, a spawned one imports torch first; but what CUDA holds must not be forked.
    forkable = "fork" in get_all_start_methods() and not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    how = get_context("fork" if forkable else "spawn")
    with stoppable(ProcessPoolExecutor(min(workers, len(parts)), how, leave_to_parent)) as pool:
        found = pool.map(_decode_part, parts, starts, repeat(shape), repeat(pixels))
        shown = track(found, "Decoding pictures", len(parts), console=console, disable=not console.is_terminal)
        return [fault for part in shown for fault in part]


def _decode_part(paths: list[Path], start: int, shape: tuple[int, int, int], pixels: Path) -> list[str | None]:
    """Decode some pictures into their rows of the file; what a worker runs. Returns why each failed, or None."""
    frame = Frame(shape[1], shape[2], shape[0])
    rows = np.memmap(pixels, np.uint8, "r+", offset=start * prod(shape), shape=(len(paths), *shape))
    faults: list[str | None] = []
    with QUIET:
        for place, path in enumerate(paths):
            try:
                rows[place] = decode(path, frame)
                faults.append(None)
            except UnreadableError as fault:
                faults.append(str(fault))
    rows.flush()
    return faults


def _close_gaps(pixels: Path, shape: tuple[int, int, int], faults: list[str | None]) -> None:
    """Move the rows after an unreadable picture up, so that the file holds the readable ones without gaps."""
    kept = [i for i, fault in enumerate(faults) if fault is None]
    if len(kept) == len(faults):
        return
    rows = np.memmap(pixels, np.uint8, "r+", shape=(len(faults), *shape))
    for place, row in enumerate(kept):
        if place != row:
            rows[place] = rows[row]
    rows.flush()
    del rows
    os.truncate(pixels, max(1, len(kept)) * prod(shape))
