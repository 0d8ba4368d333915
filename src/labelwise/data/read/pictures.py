"""Pictures as bytes ``[n, c, h, w]``: files listed and read, and what a user holds turned into a batch."""

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from rich.console import Console
from rich.progress import track
from torch import Tensor

from labelwise.data.dataset import Skipped
from labelwise.data.read.decoding import (
    OTHER_SUFFIXES,
    QUIET,
    RAW_SUFFIXES,
    Frame,
    UnreadableError,
    fitted,
    reason,
)
from labelwise.data.read.decoding import File as File
from labelwise.data.read.workers import decode_safely
from labelwise.errors import DataError, LabelwiseWarning, UsageError
from labelwise.interruption import stoppable
from labelwise.view import Fit

Array = npt.NDArray[np.generic]
Picture = File | Image.Image | Array | Tensor
Pictures = Picture | Iterable[Picture]

_READ = ".jpg .jpeg .jfif .png .gif .bmp .webp .tif .tiff .ppm .pgm .pbm .pnm .avif .jp2 .ico .heic .heif .hif"
# what people call pictures: those that cannot be read are listed, too, and told
IMAGE_SUFFIXES = RAW_SUFFIXES | OTHER_SUFFIXES | set(_READ.split())


def read_files(
    paths: Sequence[File], shape: tuple[int, ...], *, fit: Fit = "cut", strict: bool = False, progress: bool = True
) -> tuple[Tensor, list[int], tuple[Skipped, ...]]:
    """Return the pictures ``[n, c, h, w]``, which of the paths (or contents) they are, and those that could not be read.

    A picture is resized to cover the shape ``(c, h, w)``, and its centre is kept, unless ``fit`` says to squash it.
    It is turned as its EXIF data say; transparent parts are white; of an animation the first frame is taken; 16-bit
    grey is scaled to bytes, and so are 32-bit values, by their range, where they do not lie in 0..255 (or, for
    floats, where they lie in [0, 1]). ``strict`` raises an error unless all can be read; ``progress`` shows a bar on
    a terminal when there are many.
    """
    images, readable, skipped = read_readable(paths, shape, fit, progress=progress)
    check_read(skipped, len(paths), strict=strict)
    return images, readable, skipped


def check_read(skipped: Sequence[Skipped], count: int, *, strict: bool) -> None:
    """Raise an error where pictures could not be read and all should be, or none of so many could."""
    if skipped and (strict or len(skipped) == count):
        some = " ".join(f"{each.file}: {each.reason}" for each in skipped[:3])
        more = f" And {len(skipped) - 3} more." if len(skipped) > 3 else ""
        raise DataError(f"{len(skipped)} of {count} pictures cannot be read. {some}{more}")


def read_readable(
    paths: Sequence[File], shape: tuple[int, ...], fit: Fit, *, progress: bool
) -> tuple[Tensor, list[int], tuple[Skipped, ...]]:
    """Return what ``read_files`` does, be it no picture at all."""
    frame = Frame(shape[1], shape[2], shape[0], fit=fit)
    images = torch.empty((len(paths), frame.channels, frame.height, frame.width), dtype=torch.uint8)
    pixels = images.numpy()

    def read(i: int) -> str | None:
        try:
            pixels[i] = decode_safely(paths[i], frame)
        except UnreadableError as fault:
            return str(fault)
        return None

    console = Console(stderr=True)
    hide = not progress or not console.is_terminal or len(paths) < 500
    with QUIET, stoppable(ThreadPoolExecutor(min(8, os.cpu_count() or 1))) as pool:
        reading = pool.map(read, range(len(paths)))
        faults = list(track(reading, "Reading pictures", len(paths), console=console, transient=True, disable=hide))
    skipped = tuple(
        Skipped(file=f"picture {i}" if isinstance(path, bytes) else str(path), reason=fault)
        for i, (path, fault) in enumerate(zip(paths, faults, strict=True))
        if fault is not None
    )
    readable = [i for i, fault in enumerate(faults) if fault is None]
    return (images[readable] if skipped else images), readable, skipped


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


def as_batch(pictures: Pictures, shape: tuple[int, ...], fit: Fit = "cut") -> Tensor:
    """Return pictures as a model of a shape takes them: bytes ``[n, c, h, w]``, or features ``[n, a]`` (float32).

    A picture is a path, the content of a file, a PIL image, an array or tensor (bytes, or floats in [0, 1]; height,
    width, channels or channels, height, width; with or without a first axis for many), or several of these. What has
    another size is resized and cut as files are (``read_files``); grey becomes colour and colour grey.
    """
    if len(shape) == 1:
        return _features(pictures, shape[0])
    if isinstance(pictures, np.ndarray | Tensor):
        return _fit_arrays(channels_first(pictures, shape), shape, fit)
    frame = Frame(shape[1], shape[2], shape[0], fit=fit)
    if isinstance(pictures, Image.Image):
        try:
            with QUIET:
                return torch.from_numpy(fitted(pictures, frame))[None]
        except Exception as error:
            raise DataError(f"Cannot use this picture (mode {pictures.mode}): {reason(error, frame)}") from None
    if isinstance(pictures, str | Path | bytes):
        pictures = [pictures]
    elif not isinstance(pictures, Iterable):
        raise UsageError(
            f"A picture is a path, a PIL image, an array or a tensor; given {type(pictures).__name__}: {pictures!r:.80}."
        )
    items = list(pictures)
    if not items:
        raise UsageError("No picture was given; give at least one.")
    if all(isinstance(item, str | Path | bytes) for item in items):
        return read_files(items, shape, fit=fit, strict=True, progress=False)[0]
    return torch.cat([_item(i, item, shape, fit) for i, item in enumerate(items)])


def as_bytes(array: Array | Tensor) -> Tensor:
    """Return an array of pixels as a tensor of bytes: floats must lie in [0, 1], whole numbers in 0..255."""
    if isinstance(array, np.ndarray):
        if array.dtype.kind not in "buif":
            raise UsageError(f"Pixels must be numbers; given an array of {array.dtype}.")
        kind = (
            array.dtype if array.dtype in (np.uint8, np.bool_) else np.float32 if array.dtype.kind == "f" else np.int64
        )
        array = torch.from_numpy(np.require(array, kind, ["C", "W"]))
    if not array.numel():
        raise UsageError(f"No picture was given: the array is empty, {list(array.shape)}.")
    if array.dtype == torch.uint8:
        return array
    if array.dtype == torch.bool:
        return array.to(torch.uint8) * 255
    low, high = float(array.min()), float(array.max())
    if array.is_floating_point():
        if not torch.isfinite(array).all():
            raise UsageError("The pictures hold a value that is not a finite number (NaN or infinity).")
        if low < 0 or high > 1:
            hint = "divide by 255?" if low >= 0 and high <= 255 else "give them as they were before normalisation."
            raise UsageError(f"Pictures of floats must lie in [0, 1]; given {low:.4g} to {high:.4g}: {hint}")
        return (array.float() * 255).round().to(torch.uint8)
    if low < 0 or high > 255:
        raise UsageError(f"Pixels must lie in 0..255; given {low:.0f} to {high:.0f}. Scale them to bytes first.")
    return array.to(torch.uint8)


def channels_first(array: Array | Tensor, shape: tuple[int, ...] = ()) -> Tensor:
    """Return one picture or many as bytes ``[n, c, h, w]``, whichever axis the channels are on.

    Where it could be read in two ways, as ``shape`` if it can; else numpy has channels last, torch first.
    """
    x = as_bytes(array)
    if x.ndim == 2:
        return x[None, None]
    if x.ndim == 3 and tuple(x.shape) != shape:
        grey = shape[:1] == (1,) and tuple(x.shape[1:]) == shape[1:]
        if grey or not {x.shape[0], x.shape[2]} & {1, 3, 4}:
            return x[:, None]
    many = x[None] if x.ndim == 3 else x
    if many.ndim == 4:
        axes = (3, 1) if isinstance(array, np.ndarray) else (1, 3)
        channels = [1] if tuple(many.shape[1:]) == shape else [axis for axis in axes if many.shape[axis] in (1, 3, 4)]
        if channels:
            return many if channels[0] == 1 else many.movedim(channels[0], 1)
    raise UsageError(
        "Pictures must be [n, height, width, channels] or [n, channels, height, width] with 1, 3 or 4 channels, "
        f"or [n, height, width]; given {list(x.shape)}."
    )


def _fit_arrays(images: Tensor, shape: tuple[int, ...], fit: Fit) -> Tensor:
    """Return bytes ``[n, *shape]`` from bytes ``[n, c, h, w]``."""
    if tuple(images.shape[1:]) == shape:
        return images
    if shape[0] not in (1, 3) or images.shape[1] not in (1, 3, 4):
        raise UsageError(f"This model takes images of shape {list(shape)}; given {list(images.shape[1:])}.")
    frame = Frame(shape[1], shape[2], shape[0], fit=fit)
    rows = images.movedim(1, 3).cpu().numpy()
    pictures = (Image.fromarray(row[:, :, 0] if row.shape[2] == 1 else row) for row in rows)
    return torch.from_numpy(np.stack([fitted(picture, frame) for picture in pictures]))


def _item(i: int, picture: Picture, shape: tuple[int, ...], fit: Fit) -> Tensor:
    try:
        return as_batch(picture, shape, fit)
    except (UsageError, DataError) as error:
        raise type(error)(f"Picture {i}: {error}") from None


def _features(numbers: object, size: int) -> Tensor:
    """Return features ``[n, size]`` (float32) from numbers ``[n, size]`` or ``[size]``."""
    try:
        if isinstance(numbers, Image.Image):
            raise TypeError("a picture has no features of its own")
        rows = numbers if isinstance(numbers, Tensor) else torch.from_numpy(np.array(numbers, dtype=np.float32))
    except (ValueError, TypeError, RuntimeError):
        raise UsageError(f"This model takes features, numbers [n, {size}]; given {type(numbers).__name__}.") from None
    rows = (rows[None] if rows.ndim == 1 else rows).float()
    if rows.ndim != 2 or rows.shape[1] != size or not len(rows):
        raise UsageError(f"This model takes features, numbers [n, {size}]; given {list(rows.shape)}.")
    if not torch.isfinite(rows).all():
        bad = int((~torch.isfinite(rows)).any(1).nonzero()[0])
        raise UsageError(f"Row {bad} of the features holds a value that is not a finite number (NaN or infinity).")
    return rows
