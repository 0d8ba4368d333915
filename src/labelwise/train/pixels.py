"""Training images as one tensor: decoded once, held in memory if they fit, else mapped from a temporary file."""

import tempfile
from math import prod

import numpy as np
import torch
from torch import Tensor

from labelwise.images.file_images import fits_in_memory
from labelwise.images.images import Array, ArrayImages, FeatureRows, Images, Skipped, Unreadable, check_read
from labelwise.images.view import Fit
from labelwise.support.cache import user_folder
from labelwise.support.processes import all_gather, current_group, sum_over_processes
from labelwise.support.text import with_bar
from labelwise.support.writable import check_room

PIECE = 256  # images decoded at a time


def pixels(images: Images, shape: tuple[int, ...], fit: Fit = "crop") -> Tensor:
    """Return images as a tensor, uint8 ``[n, c, h, w]``, or features ``[n, a]`` (float32); one that cannot be read is an error."""
    tensor, faults = readable_pixels(images, shape, fit)
    check_read(list(faults.values()), len(images), strict=True)
    return tensor


def readable_pixels(images: Images, shape: tuple[int, ...], fit: Fit = "crop") -> tuple[Tensor, dict[int, Skipped]]:
    """Return the images that can be read as a tensor, and by row those that cannot.

    Several processes that share the work decode a share each.
    """
    if isinstance(images, ArrayImages | FeatureRows) and images.shape == tuple(shape):
        return _gather(images), {}
    is_single = current_group().world == 1 or not fits_in_memory(len(images), shape)
    mine = np.arange(len(images)) if is_single else np.arange(current_group().rank, len(images), current_group().world)
    table, faults = _table(len(images), shape), dict[int, str]()
    starts = range(0, len(mine), PIECE)
    for start in with_bar(starts, len(starts), "Reading images"):
        rows = mine[start : start + PIECE]
        for row, image in zip(rows.tolist(), images.read(rows, shape, fit), strict=True):
            if isinstance(image, Unreadable):
                faults[row] = image.reason
            else:
                table[row] = image
    tensor = torch.from_numpy(table)
    if not is_single:
        faults = {row: reason for part in all_gather(faults) for row, reason in part.items()}
        sum_over_processes(tensor)
    skipped = {row: Skipped(file=images.ids[row], reason=reason) for row, reason in sorted(faults.items())}
    if skipped:
        tensor = tensor[[row for row in range(len(images)) if row not in skipped]]
    return tensor, skipped


def _gather(images: ArrayImages | FeatureRows) -> Tensor:
    """Return images that are there already; rows that do not follow each other are copied, to a file where they are too many."""
    if images.follow or fits_in_memory(len(images), images.shape):
        return torch.from_numpy(_writable(images.values))
    table = _table(len(images), images.shape)
    for start in range(0, len(images), PIECE):
        table[start : start + PIECE] = images.select(np.arange(start, min(start + PIECE, len(images)))).values
    return torch.from_numpy(table)


def _writable(array: Array) -> Array:
    return array if array.flags.writeable else array.copy()


def _table(count: int, shape: tuple[int, ...]) -> Array:
    """Return an empty table ``[count, *shape]``: in memory, or in a temporary file without a name, which ends with the process."""
    if fits_in_memory(count, shape):
        return np.zeros((count, *shape), np.uint8)
    folder = user_folder()
    folder.mkdir(parents=True, exist_ok=True)
    check_room(folder, count * prod(shape))
    with tempfile.TemporaryFile(dir=folder) as file:
        file.truncate(count * prod(shape))
        return np.memmap(file, np.uint8, "r+", shape=(count, *shape))
