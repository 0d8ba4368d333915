"""A data set from arrays in memory."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from labelwise.images.as_images import as_images
from labelwise.images.dataset import Dataset
from labelwise.images.images import Array, Images, join
from labelwise.images.sources.build import build
from labelwise.images.sources.rows import as_labels, label_rows
from labelwise.images.split.make import Shares, split_name
from labelwise.support.errors import DataError, UsageError


def arrays(
    images: Any, targets: Any, *, names: Sequence[str] | None = None, shares: Shares | None = None, seed: int = 0
) -> Dataset:
    """Make a data set from arrays in memory, NumPy or torch.

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
        rows = replace(label_rows(as_labels(targets), names), images=array_images(images))
        return build("arrays", rows, seed=seed, shares=shares)
    if not (isinstance(images, Mapping) and isinstance(targets, Mapping) and set(images) == set(targets) and images):
        raise UsageError("Give images and targets for the same splits, or neither of them by split.")
    parts = {name: (array_images(part), as_labels(targets[name])) for name, part in images.items()}
    if len({part.shape for part, _ in parts.values()}) > 1:
        raise DataError(f"All splits must hold images of one shape; given {[x.shape for x, _ in parts.values()]}.")
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
    whole = join([part for part, _ in parts.values()])
    return build("arrays", replace(rows, images=whole, splits=splits), seed=seed)


def _shapes(arrays: Iterable[Array]) -> list[list[int]]:
    return [list(array.shape) for array in arrays]


def array_images(array: npt.ArrayLike) -> Images:
    """Convert images ``[n, ...]`` or features ``[n, a]`` to ``Images``."""
    ndim, dtype = getattr(array, "ndim", None), getattr(array, "dtype", None)
    if ndim == 2:
        values = np.asarray(array)
        if values.dtype.kind != "f":
            raise UsageError(
                f"Features must be floats [n, size]; given {values.dtype} {list(values.shape)}. Images need their height "
                "and width: [n, height, width]."
            )
        return as_images(values, (values.shape[1],))
    shape = (1, *np.shape(array)[1:]) if ndim == 3 else ()
    if ndim is None or dtype is None:
        raise UsageError(f"Images are arrays or tensors; given {type(array).__name__}.")
    images = as_images(array, shape)
    if images.shape is None or images.shape[0] not in (1, 3):
        raise UsageError(
            f"Images have 1 channel (grey) or 3 (colour); given {(images.shape or (0,))[0]}. Leave out transparency."
        )
    return images
