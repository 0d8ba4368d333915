"""A data set from arrays in memory."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from labelwise.images.dataset import Dataset
from labelwise.images.decode.pictures import Array, as_batch, channels_first
from labelwise.images.sources.build import build
from labelwise.images.sources.rows import Targets, as_labels, label_rows
from labelwise.images.split.make import Shares, split_name
from labelwise.support.errors import DataError, UsageError


def arrays(
    images: Array | Tensor | Mapping[str, Array | Tensor],
    targets: Targets | Mapping[str, Targets],
    *,
    names: Sequence[str] | None = None,
    shares: Shares | None = None,
    seed: int = 0,
) -> Dataset:
    """Return a data set of arrays in memory, numpy or torch.

    Args:
        images: bytes (or floats in [0, 1]) ``[n, h, w, c]``, ``[n, c, h, w]`` or ``[n, h, w]``, or features ``[n, a]``
            as floats; or these for each split: ``{"train": ..., "test": ...}``.
        targets: n labels, as names or as positions in ``names``; or, where several may be true of an image, yes or no to
            each of them, ``[n, k]`` (bool); for each split where images are.
        names: the names of the labels; without, those that occur, sorted. Needed where several may be true.
        shares: how much train, val and test get where the splits are not given.
        seed: of the division into splits.
    """
    if not isinstance(images, Mapping) and not isinstance(targets, Mapping):
        rows = replace(label_rows(as_labels(targets), names), images=as_images(images))
        return build("arrays", rows, seed=seed, shares=shares)
    if not (isinstance(images, Mapping) and isinstance(targets, Mapping) and set(images) == set(targets) and images):
        raise UsageError("Give images and targets for the same splits, or neither of them by split.")
    parts = {name: (as_images(part), as_labels(targets[name])) for name, part in images.items()}
    if len({part.shape[1:] for part, _ in parts.values()}) > 1:
        raise DataError(f"All splits must hold images of one shape; given {_shapes(x for x, _ in parts.values())}.")
    for name, (part, labels) in parts.items():
        if len(part) != len(labels):
            raise DataError(
                f"There are {len(part)} images but {len(labels)} targets in {name}; give one for each image."
            )
    if len({labels.shape[1:] for _, labels in parts.values()}) > 1:
        raise DataError(
            f"All splits must say yes or no to the same labels; given {_shapes(x for _, x in parts.values())}."
        )
    rows = label_rows(np.concatenate([labels for _, labels in parts.values()]), names)
    splits = [split_name(name, "Images: ") for name, (part, _) in parts.items() for _ in range(len(part))]
    joined = torch.cat([part for part, _ in parts.values()])
    return build("arrays", replace(rows, images=joined, splits=splits), seed=seed)


def _shapes(arrays: Iterable[Array | Tensor]) -> list[list[int]]:
    return [list(array.shape) for array in arrays]


def as_images(array: Array | Tensor) -> Tensor:
    """Return bytes ``[n, c, h, w]`` of pictures, or float32 ``[n, a]`` of features."""
    if array.ndim == 2:
        if not (array.is_floating_point() if isinstance(array, Tensor) else array.dtype.kind == "f"):
            raise UsageError(
                f"Features must be floats [n, size]; given {array.dtype} {list(array.shape)}. Pictures need their height "
                "and width: [n, height, width]."
            )
        return as_batch(array, (array.shape[1],))
    shape = (1, *array.shape[1:]) if array.ndim == 3 else ()
    images = channels_first(array, shape)
    if images.shape[1] not in (1, 3):
        raise UsageError(
            f"Pictures have 1 channel (grey) or 3 (colour); given {images.shape[1]}. Leave out transparency."
        )
    return images
