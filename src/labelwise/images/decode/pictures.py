"""Pictures as bytes ``[n, c, h, w]``: files listed and read, and what a user holds turned into a batch."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from labelwise.images.decode.decoding import QUIET, Frame, fitted, reason
from labelwise.images.decode.decoding import File as File
from labelwise.images.decode.readable import check_read as check_read
from labelwise.images.decode.readable import is_hidden as is_hidden
from labelwise.images.decode.readable import is_picture as is_picture
from labelwise.images.decode.readable import list_files as list_files
from labelwise.images.decode.readable import list_pictures as list_pictures
from labelwise.images.decode.readable import read_pixels
from labelwise.images.skipped import Skipped
from labelwise.images.view import Fit
from labelwise.support.errors import DataError, UsageError

Array = npt.NDArray[np.generic]
Picture = File | Image.Image | Array | Tensor
Pictures = Picture | Iterable[Picture]


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


def read_readable(
    paths: Sequence[File], shape: tuple[int, ...], fit: Fit, *, progress: bool
) -> tuple[Tensor, list[int], tuple[Skipped, ...]]:
    """Return what ``read_files`` does, be it no picture at all."""
    pixels, readable, skipped = read_pixels(paths, shape, fit, progress=progress)
    return torch.from_numpy(pixels), readable, skipped


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
