"""The order of rows too many for memory: random, and yet near to the order in which they lie, so that few blocks are open at a time.

Blocks (shards) are put in random order, and so are the rows of each. This line of rows is cut into lanes, and each batch takes some rows of every lane: it
mixes as many blocks as there are lanes, and each of several processes, which take a part of every batch, goes through lanes of its own. The order
follows from the seed alone, whatever the number of processes, so a run is resumed in the middle of an epoch without any state.
"""

import torch
from torch import Tensor

LANES = 16


def lane_plan(blocks: Tensor, size: int, steps: int, seed: int) -> list[Tensor]:
    """Return the rows of each of so many batches of a size, of rows that lie in ``blocks [n]``; one batch may have fewer."""
    draw = torch.Generator().manual_seed(seed)
    ranks = torch.randperm(int(blocks.max()) + 1, generator=draw)
    mixed = torch.randperm(len(blocks), generator=draw)
    line = mixed[torch.argsort(ranks[blocks[mixed]], stable=True)]
    size = min(size, len(line))
    ends = [(lane + 1) * size // LANES for lane in range(LANES)]
    counts = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    lanes = torch.split(line[: size * steps], [count * steps for count in counts])
    return [
        torch.cat([lane[step * count : (step + 1) * count] for lane, count in zip(lanes, counts, strict=True)])
        for step in range(steps)
    ]
