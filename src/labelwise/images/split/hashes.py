"""Hashes of images: tell whether a test image was among those a classifier was made from."""

from torch import Tensor

from labelwise.images.lazy import LazyImages
from labelwise.images.streams import byte_hashes


def image_hashes(images: Tensor) -> Tensor:
    """Return one whole number per image ``[n]`` (int64), the same for the same bytes."""
    return images.hashes if isinstance(images, LazyImages) else byte_hashes(images)
