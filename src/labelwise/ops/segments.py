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
