"""Hashes of images: tell whether a test image was among those a classifier was made from."""

from hashlib import blake2b

import torch
from torch import Tensor

from labelwise.lazy import LazyImages


def image_hashes(images: Tensor) -> Tensor:
    """Return one whole number per image ``[n]`` (int64), the same for the same bytes."""
    if isinstance(images, LazyImages):
        return images.hashes
    rows = images.detach().cpu().contiguous().flatten(1).numpy()
    hashes = [int.from_bytes(blake2b(row.tobytes(), digest_size=8).digest(), "big", signed=True) for row in rows]
    return torch.tensor(hashes, dtype=torch.int64)
