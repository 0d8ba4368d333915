"""Pictures that look alike: copies, crops, bursts of a camera."""

from collections.abc import Sequence

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch.nn.functional import normalize

ALIKE = 0.9  # cosine of embeddings around their mean above which two pictures are lookalikes
CHUNK = 2**24  # cosines held at a time


def lookalike_groups(embeddings: Tensor, groups: Tensor | None = None, alike: float = ALIKE) -> Tensor:
    """Return the group of each image ``[n]``: images whose embeddings ``[n, d]`` are alike, or alike to others of the group.

    Images of one of the ``groups [n]``, where these are known, stay together.
    """
    n = len(embeddings)
    unit = normalize(embeddings.float() - embeddings.float().mean(0), dim=1)
    pairs = [np.empty((0, 2), np.int64)]
    for start in range(0, n, step := max(1, CHUNK // max(1, n))):
        rows = (unit[start : start + step] @ unit[start:].T > alike).nonzero()
        pairs.append((rows + start).cpu().numpy())
    if groups is not None:
        first = torch.full((int(groups.max()) + 1,), n, device=groups.device)
        first.scatter_reduce_(0, groups, torch.arange(n, device=groups.device), "amin")
        pairs.append(torch.stack([torch.arange(n, device=groups.device), first[groups]], 1).cpu().numpy())
    both = np.concatenate(pairs)
    graph = coo_array((np.ones(len(both)), (both[:, 0], both[:, 1])), shape=(n, n))
    return torch.from_numpy(connected_components(graph, directed=False)[1].astype(np.int64)).to(embeddings.device)


def together(embeddings: Tensor, groups: Sequence[str]) -> Tensor:
    """Return the set of each image ``[n]`` that is left out with it: lookalikes, and what the data say belongs together."""
    named = {name: place for place, name in enumerate(dict.fromkeys(groups))}
    known = torch.tensor([named[name] for name in groups], device=embeddings.device) if groups else None
    return lookalike_groups(embeddings, known)
