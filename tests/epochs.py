"""The batches of an epoch, as training makes them of what was drawn."""

from collections.abc import Iterator

import torch

from labelwise.train.batches import Batch, Batches, Shard


def batches_of(batches: Batches, seed: int, start: int = 0, shard: Shard | None = None) -> Iterator[Batch]:
    for draw in batches.epoch(seed, start, shard or Shard()):
        yield batches.batch(draw.rows, draw.images, draw.rng(torch.Generator()))
