"""Rows that stand one group after another, without padding."""

import torch
from torch import Tensor


def spans(starts: Tensor, lengths: Tensor) -> Tensor:
    """Return the positions start, start + 1, ... of each of m spans, one span after another ``[sum of lengths]``."""
    shift = (starts - lengths.cumsum(0) + lengths).repeat_interleave(lengths)
    return shift + torch.arange(len(shift), device=shift.device)


def segment_mean(values: Tensor, groups: Tensor, count: int) -> Tensor:
    """Return the mean row of each group ``[count, e]``, at least in single precision; zeros for an empty group.

    From values ``[m, e]`` and the group of each ``[m]``, in any order.
    """
    x = values.to(torch.promote_types(values.dtype, torch.float32))
    sums = x.new_zeros(count, x.shape[1]).index_add(0, groups, x)
    sizes = x.new_zeros(count).index_add(0, groups, x.new_ones(len(x)))
    return sums / sizes.clamp_min(1)[:, None]


def joined(n: int, first: Tensor, second: Tensor) -> Tensor:
    """Return the group of each of n rows ``[n]``, from 0 on in the order of rows, where the rows of each pair ``[p]`` are in one group.

    By hand: what scipy has for it takes longer to import than a fit of a thousand pictures.
    """
    lowest = torch.arange(n, device=first.device)  # row of each one's group, as far as it is known
    while not torch.equal(one := lowest[first], other := lowest[second]):
        low = torch.minimum(one, other)
        lowest = lowest.scatter_reduce(0, one, low, "amin").scatter_reduce(0, other, low, "amin")
        while not torch.equal(lowest, lowest[lowest]):
            lowest = lowest[lowest]
    groups: Tensor = torch.unique(lowest, return_inverse=True)[1]
    return groups
