"""Features of images that were made before: in this process, as long as the images live, and in the user's cache."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from labelwise.images.lazy import LazyImages
from labelwise.support.cache import Cache, pixel_digests

KEPT = 1000  # images whose features go to the cache at a time


class WeakTensorCache(WeakTensorKeyDictionary):
    """What was made of tensors, as long as these live; a pickle holds none of it, for these tensors stay behind."""

    def __reduce__(self) -> tuple[type["WeakTensorCache"], tuple[()]]:
        return WeakTensorCache, ()


def cached_features(images: Tensor, owner: bytes, name: str, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """Return features ``[n, d]`` of images (bytes), those that the cache has of an encoder from there; others are kept as they are computed."""
    cache = Cache()
    keys = images.digests if isinstance(images, LazyImages) else pixel_digests(images.numpy())
    known = cache.read(owner, keys)
    places = {key: row for row, key in reversed(list(enumerate(keys))) if key not in known}
    for part in torch.split(torch.tensor(sorted(places.values()), dtype=torch.int64), KEPT):
        some = images[part]
        some = some.pixels() if isinstance(some, LazyImages) else some  # read together, not a few at a time
        fresh = compute(some).numpy() if len(part) else ()
        more = {keys[row]: each.tobytes() for row, each in zip(part.tolist(), fresh, strict=True)}
        cache.write(owner, more, name)
        known |= more
    rows = b"".join(known[key] for key in keys)
    return torch.frombuffer(bytearray(rows), dtype=torch.float32).view(len(keys), -1)
