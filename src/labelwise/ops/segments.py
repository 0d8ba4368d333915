"""Rows that stand one group after another, without padding."""

import torch
from torch import Tensor


def spans(starts: Tensor, lengths: Tensor) -> Tensor:
    """Return the positions start, start + 1, ... of each span, one span after another ``[t]``.

    Args:
        starts: ``[m]``.
        lengths: ``[m]``; they sum to t.
    """
    shift = (starts - lengths.cumsum(0) + lengths).repeat_interleave(lengths)
    return shift + torch.arange(len(shift), device=shift.device)


def segment_mean(values: Tensor, groups: Tensor, count: int) -> Tensor:
    """Return the mean row of each group ``[count, e]``, at least in single precision; zeros for an empty group.

    Args:
        values: ``[m, e]``.
        groups: the group of each row ``[m]``, in any order, in 0..count-1.
        count: how many groups.
    """
    x = values.to(torch.promote_types(values.dtype, torch.float32))
    sums = x.new_zeros(count, x.shape[1]).index_add(0, groups, x)
    sizes = x.new_zeros(count).index_add(0, groups, x.new_ones(len(x)))
    return sums / sizes.clamp_min(1)[:, None]
