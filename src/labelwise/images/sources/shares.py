"""Picture files read by several processes: each decodes its share, and what is known of the rest comes from the others.

Pixels stay where they were decoded: a process that needs those of another's picture reads the file, as it does with files of the cache.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from labelwise.images.dataset import Skipped
from labelwise.images.decode.readable import check_read
from labelwise.images.lazy import LazyImages, Source
from labelwise.images.sources.known import read_known, reader
from labelwise.images.split.hashes import image_hashes
from labelwise.images.view import Fit
from labelwise.support.cache import pixel_digests
from labelwise.support.processes import all_gather, current_group


def read_shares(
    paths: Sequence[Path], shape: tuple[int, ...], *, fit: Fit, strict: bool
) -> tuple[Tensor, list[int], tuple[Skipped, ...]]:
    """Return what ``read_known`` does, be it this process alone or several that read a share each."""
    if current_group().world == 1:
        return read_known(paths, shape, fit=fit, strict=strict)
    rank, world = current_group().rank, current_group().world
    images, readable, skipped = read_known(
        paths[rank::world], shape, fit=fit, none=True
    )  # of each label and split some
    if isinstance(images, LazyImages):
        digests, at = images.digests, images.source.rows_read()
        pixels = images.source.pixels(at)
    else:
        digests, at, pixels = pixel_digests(images.numpy()), torch.arange(len(images)), images
    parts = all_gather(([rank + world * row for row in readable], digests, image_hashes(images), skipped))
    every = tuple(one for part in parts for one in part[3])
    check_read(every, len(paths), strict=strict)
    rows, keys = [row for part in parts for row in part[0]], [key for part in parts for key in part[1]]
    whole = torch.empty((len(rows), *shape), dtype=torch.uint8)  # memory that is not written to costs nothing
    hashes = torch.cat([part[2] for part in parts])
    source = Source(keys, hashes, reader([paths[row] for row in rows], keys, shape, fit), whole)
    first = sum(len(part[0]) for part in parts[:rank])
    source.share = slice(first, first + len(readable))
    source.put((first + at).tolist(), pixels)
    return LazyImages(source, torch.tensor(rows).argsort()), sorted(rows), every
