"""Numbers that are not finite, found by name."""

from collections.abc import Collection, Mapping
from itertools import compress

import torch
from torch import Tensor


def first_not_finite(tensors: Mapping[str, Tensor], infinite: Collection[str] = ()) -> str | None:
    """Return the name of the first tensor that holds NaN, or an infinity where it may not be ``infinite``; else None.

    All tensors lie on one device, which is waited for once.
    """
    checked = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.numel()}
    if not checked:
        return None
    largest = [
        torch.linalg.vector_norm(tensor, torch.inf) for tensor in checked.values()
    ]  # NaN where a tensor holds one
    bad = [one.isnan() if name in infinite else ~one.isfinite() for name, one in zip(checked, largest, strict=True)]
    return next(compress(checked, torch.stack(bad).tolist()), None)
