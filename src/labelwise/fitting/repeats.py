"""An image that is given twice is one image of weight two."""

from dataclasses import replace
from hashlib import blake2b

import numpy as np

from labelwise.core.arrays import Array
from labelwise.images.dataset import Split


def merge_repeats(split: Split, features: Array) -> tuple[Split, Array, Array]:
    """Return one image for each of equal features ``[n, d]``, label and group, with the weight of all of them.

    Also return the features of these, and the place of each image among them ``[n]``. Images that have weights, or copies, are sorted
    by their content: copies and weights, in any order, then give the same bits.
    """
    weights = np.asarray(split.weights) if split.weights else np.ones(len(split))
    groups = split.groups or ("",) * len(split)
    keys = [_digest(*image) for image in zip(features, split.targets.tolist(), groups, strict=True)]
    _, first, places = np.unique(np.array(keys, "S16"), return_index=True, return_inverse=True)
    if len(first) == len(split) and (weights == 1).all():
        return replace(split, weights=()), features, np.arange(len(split))
    total = np.bincount(places, weights).tolist()
    return replace(split.select(first), weights=tuple(total)), features[first], places


def _digest(features: Array, target: int, group: str) -> bytes:
    return blake2b(features.tobytes() + f"{target} {group}".encode(), digest_size=16).digest()
