"""Convert user input to ``Images``: paths, folders, file contents, PIL images, arrays, tensors, table columns."""

import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from labelwise.images.decode.crops import is_video
from labelwise.images.file_images import Content, FileImages, StoredImages
from labelwise.images.formats.boxes import boxes
from labelwise.images.formats.find import is_annotations
from labelwise.images.images import Array, ArrayImages, FeatureRows, Images, join, read_all
from labelwise.images.sources.archives import is_zip, zip_images
from labelwise.images.sources.hub_datasets import dataset_images, is_dataset
from labelwise.images.sources.paths import may_name_shards
from labelwise.images.sources.videos import images_and_frames
from labelwise.images.view import Fit
from labelwise.support.errors import DataError, UsageError, listing

ImageLike = str | Path | bytes | Image.Image | Array
ImagesLike = Any  # an image, several of them, a tensor of torch, or ``Images``


class Uploads(StoredImages):
    """Image files in memory: their bytes, or images opened with Pillow."""

    def __init__(
        self,
        items: Sequence[bytes | Image.Image],
        ids: Sequence[str] = (),
        shape: tuple[int, ...] | None = None,
        fit: Fit | None = None,
    ) -> None:
        super().__init__(ids or [f"image {i}" for i in range(len(items))], shape, fit)
        self._items = items

    def contents(self, rows: Sequence[int]) -> list[Content]:
        """Return the content of each."""
        return [self._items[row] for row in rows]


def as_images(images: ImagesLike, shape: tuple[int, ...] = ()) -> Images:
    """Convert a path, a folder, a shard, an open file or its content, a PIL image, an array, or several of these to images.

    Arrays (and tensors of torch) hold bytes, or floats in [0, 1], ``[h, w, c]`` or ``[c, h, w]``, with or without a first axis for
    many. If this is ambiguous, they are read as images of ``shape`` if possible; else arrays have channels last, tensors
    first. Floats ``[n, a]`` without a ``shape``, and numbers where it is ``(a,)``, are features.
    """
    if isinstance(images, Images):
        return images
    if len(shape) == 1:
        return FeatureRows(_features(images, shape[0]))
    if isinstance(images, str | Path):
        return _path_images([images])
    if isinstance(images, bytes | Image.Image):
        return Uploads([images])
    if isinstance(images, io.BufferedIOBase):
        return Uploads([images.read()])
    if _is_tensor(images):
        return _arrays(images.detach().cpu().numpy(), shape, last=False)
    if isinstance(images, np.ndarray) and images.dtype.kind != "O" and not _are_paths(images):
        return _arrays(images, shape, last=True)
    if is_dataset(images):
        return dataset_images(images)
    if not isinstance(images, Iterable) or isinstance(images, io.IOBase):
        hint = ' Take the images of one split: data.split("test").images.' if hasattr(images, "splits") else ""
        raise UsageError(
            f"An image is a path, bytes, a PIL image, an array or a tensor; given {type(images).__name__}: {images!r:.80}.{hint}"
        )
    items = list(images)
    if not items:
        raise UsageError("Give at least one image.")
    if all(isinstance(item, str | Path) for item in items):
        return _path_images(items)
    if all(isinstance(item, bytes | Image.Image) for item in items):
        return Uploads(items)
    return join([_item(i, item, shape) for i, item in enumerate(items)])


def as_batch(images: ImagesLike, shape: tuple[int, ...], fit: Fit = "crop") -> Array:
    """Return a batch for a model of this shape: bytes ``[n, c, h, w]``, or features ``[n, a]`` (float32)."""
    return read_all(as_images(images, tuple(shape)), tuple(shape), fit)


def as_bytes(array: Array) -> Array:
    """Return an array of pixels as bytes: floats must be in [0, 1], whole numbers in 0..255."""
    kind = array.dtype.kind
    if kind not in "buif":
        raise UsageError(f"Pixels must be numbers; given an array of {array.dtype}.")
    if not array.size:
        raise UsageError(f"No image was given: the array is empty, {list(array.shape)}.")
    if array.dtype == np.uint8:
        return array
    if kind == "b":
        return array.astype(np.uint8) * np.uint8(255)
    low, high = float(array.min()), float(array.max())
    if kind == "f":
        if not np.isfinite(array).all():
            raise UsageError("The images hold a value that is not a finite number (NaN or infinity).")
        if low < 0 or high > 1:
            hint = "divide by 255?" if low >= 0 and high <= 255 else "give them as they were before normalisation."
            raise UsageError(f"Float images must be in [0, 1]; given {low:.4g} to {high:.4g}: {hint}")
        return np.rint(array.astype(np.float32) * 255).astype(np.uint8)
    if low < 0 or high > 255:
        raise UsageError(f"Pixels must be in 0..255; given {low:.0f} to {high:.0f}. Scale them to bytes first.")
    return array.astype(np.uint8)


def channels_first(array: Array, shape: tuple[int, ...] = (), *, last: bool = True) -> Array:
    """Return one image or many as bytes ``[n, c, h, w]``, whichever axis the channels are on.

    If this is ambiguous, use ``shape`` if possible; else ``last`` decides.
    """
    x = as_bytes(array)
    if x.ndim == 2:
        return x[None, None]
    if x.ndim == 3 and x.shape != shape:
        grey = shape[:1] == (1,) and x.shape[1:] == shape[1:]
        if grey or not {x.shape[0], x.shape[2]} & {1, 3, 4}:
            return x[:, None]
    batch = x[None] if x.ndim == 3 else x
    if batch.ndim == 4:
        axes = (3, 1) if last else (1, 3)
        channels = [1] if batch.shape[1:] == shape else [axis for axis in axes if batch.shape[axis] in (1, 3, 4)]
        if channels:
            return batch if channels[0] == 1 else np.moveaxis(batch, channels[0], 1)
    raise UsageError(
        "Images must be [n, height, width, channels] or [n, channels, height, width] with 1, 3 or 4 channels, "
        f"or [n, height, width]; given {list(x.shape)}."
    )


def _path_images(paths: Sequence[str | Path]) -> Images:
    """Return the images at paths: files, all images below folders, images in shards, and boxes of annotations."""
    parts: list[Images] = []
    files: list[str | Path] = []
    for path in paths:
        if may_name_shards(path):
            from labelwise.images.sources.shards import shard_images

            parts += [FileImages(files), shard_images(path)]
            files = []
        elif is_zip(path):
            parts += [FileImages(files), zip_images(path)]
            files = []
        elif is_annotations(path):
            files += boxes(path).to_classify
        elif is_video(str(path)) or os.path.isdir(path):
            files += [address for address, _ in images_and_frames(path)]
        else:
            files.append(path)
    images = join([*parts, FileImages(files)])
    if not len(images):
        raise DataError(f"No image found in {listing(map(str, paths))}.")
    return images


def _is_tensor(value: object) -> bool:
    return hasattr(value, "detach") and any(
        kind.__module__.partition(".")[0] == "torch" for kind in type(value).__mro__
    )


def _are_paths(array: Array) -> bool:
    return array.dtype.kind == "U" and array.ndim == 1


def _arrays(array: Array, shape: tuple[int, ...], *, last: bool) -> Images:
    if not shape and array.ndim == 2 and array.dtype.kind == "f":
        return FeatureRows(array)
    return ArrayImages(channels_first(array, shape, last=last))


def _item(i: int, image: ImageLike, shape: tuple[int, ...]) -> Images:
    try:
        return as_images(image, shape)
    except (UsageError, DataError) as error:
        raise type(error)(f"Image {i}: {error}") from None


def _features(numbers: object, size: int) -> Array:
    """Return features ``[n, size]`` (float32) from numbers ``[n, size]`` or ``[size]``."""
    try:
        if isinstance(numbers, Image.Image):
            raise TypeError("an image has no features of its own")
        rows = np.array(numbers.detach().cpu().numpy() if _is_tensor(numbers) else numbers, dtype=np.float32)  # type: ignore[attr-defined]
    except (ValueError, TypeError, RuntimeError):
        raise UsageError(f"This model takes features, numbers [n, {size}]; given {type(numbers).__name__}.") from None
    rows = rows[None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or rows.shape[1] != size or not len(rows):
        raise UsageError(f"This model takes features, numbers [n, {size}]; given {list(rows.shape)}.")
    if not np.isfinite(rows).all():
        bad = int(np.flatnonzero(~np.isfinite(rows).all(1))[0])
        raise UsageError(f"Row {bad} of the features holds a value that is not a finite number (NaN or infinity).")
    return rows
