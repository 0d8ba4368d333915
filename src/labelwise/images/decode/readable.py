"""Picture files listed, and read into an array, without torch."""

import os
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track

from labelwise.images.decode.decoding import OTHER_SUFFIXES, QUIET, RAW_SUFFIXES, File, Frame, UnreadableError
from labelwise.images.decode.workers import decode_safely
from labelwise.images.skipped import Skipped
from labelwise.support.errors import DataError, LabelwiseWarning
from labelwise.support.interruption import cancel_on_error

if TYPE_CHECKING:
    from labelwise.images.view import Fit

_READ = ".jpg .jpeg .jfif .png .gif .bmp .webp .tif .tiff .ppm .pgm .pbm .pnm .avif .jp2 .ico .heic .heif .hif"
# what people call pictures: those that cannot be read are listed, too, and told
IMAGE_SUFFIXES = RAW_SUFFIXES | OTHER_SUFFIXES | set(_READ.split())
FIRST, QUICK = 5, 0.25e-3  # pictures that are timed, and the seconds for one below which further threads only cost


def check_read(skipped: Sequence[Skipped], count: int, *, strict: bool) -> None:
    """Raise an error where pictures could not be read and all should be, or none of so many could."""
    if skipped and (strict or len(skipped) == count):
        some = " ".join(f"{each.file}: {each.reason}" for each in skipped[:3])
        more = f" And {len(skipped) - 3} more." if len(skipped) > 3 else ""
        raise DataError(f"{len(skipped)} of {count} pictures cannot be read. {some}{more}")


def read_pixels(
    paths: Sequence[File], shape: tuple[int, ...], fit: "Fit", *, progress: bool, threads: int | None = None
) -> tuple[npt.NDArray[np.uint8], list[int], tuple[Skipped, ...]]:
    """Return what ``pictures.read_files`` does, be it no picture at all, as an array ``[n, c, h, w]``.

    By so many threads at most, None is one for each core. Small pictures are read by one: threads that take turns at the interpreter are twice as slow.
    """
    frame = Frame(shape[1], shape[2], shape[0], fit=fit)
    pixels = np.empty((len(paths), *frame.shape), np.uint8)

    def read(i: int) -> str | None:
        try:
            pixels[i] = decode_safely(paths[i], frame)
        except UnreadableError as fault:
            return str(fault)
        return None

    console = Console(stderr=True)
    hide = not progress or not console.is_terminal or len(paths) < 500
    threads = min(8, threads or os.cpu_count() or 1)
    with QUIET, cancel_on_error(ThreadPoolExecutor(threads)) as pool:
        first, seconds = _timed(read, min(FIRST, len(paths)))
        alone = threads == 1 or seconds < QUICK
        reading = chain(first, (map if alone else pool.map)(read, range(len(first), len(paths))))
        faults = list(track(reading, "Reading pictures", len(paths), console=console, transient=True, disable=hide))
    skipped = tuple(
        Skipped(file=f"picture {i}" if isinstance(path, bytes) else str(path), reason=fault)
        for i, (path, fault) in enumerate(zip(paths, faults, strict=True))
        if fault is not None
    )
    readable = [i for i, fault in enumerate(faults) if fault is None]
    return (pixels[readable] if skipped else pixels), readable, skipped


def _timed(read: Callable[[int], str | None], count: int) -> tuple[list[str | None], float]:
    """Return what reading the first pictures says, and the median of the seconds that each took; of none 0."""
    results, times = [], [time.perf_counter()]
    for i in range(count):
        results.append(read(i))
        times.append(time.perf_counter())
    return results, sorted([end - begun for begun, end in pairwise(times)] or [0.0])[count // 2]


def list_pictures(folder: str | Path) -> list[Path]:
    """Return the picture files in a folder and the folders below it, sorted; hidden files and folders are left out."""
    return list_files(folder, is_picture)


def list_files(folder: str | Path, wanted: Callable[[str], bool]) -> list[Path]:
    """Return the files of names that are wanted in a folder and the folders below it, as ``list_pictures`` does.

    Links are followed, but not to where the walk has been or to a folder above: the files there are those of other labels.
    """
    paths: list[str] = []
    whole = Path(os.path.realpath(folder))
    seen = {_identity(above) for above in whole.parents}

    def refuse(error: OSError) -> None:
        if isinstance(error, FileNotFoundError) and error.filename != os.fspath(folder):
            return  # it was removed meanwhile
        raise DataError(f'Cannot list the folder "{error.filename}": {error.strerror}. Check the path and its rights.')

    for here, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        identity = _identity(here)
        if identity is None or identity in seen:
            folders.clear()
            if identity:
                words = f'"{here}" is a link to a folder that is read already, or that it lies in. It is not followed.'
                warnings.warn(words, LabelwiseWarning, stacklevel=2)
            continue
        seen.add(identity)
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        paths += [os.path.join(here, name) for name in files if not is_hidden(name) and wanted(name)]
    return [
        Path(path) for path in sorted(paths, key=lambda path: path.split(os.sep))
    ]  # as paths are sorted, and faster


def _identity(path: str | Path) -> tuple[int, int] | None:
    try:
        at = os.stat(path)
    except OSError:
        return None
    return at.st_dev, at.st_ino


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is one that people do not see, such as ``.DS_Store`` and ``__MACOSX``."""
    return name.startswith(".") or name == "__MACOSX"


def is_picture(name: str) -> bool:
    """Return whether a file is a picture, by its name."""
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES
