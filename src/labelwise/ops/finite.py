"""Numbers that are not finite, found by name."""

from collections.abc import Collection, Mapping

from torch import Tensor


def first_not_finite(tensors: Mapping[str, Tensor], infinite: Collection[str] = ()) -> str | None:
    """Return the name of the first tensor that holds NaN, or an infinity where it may not be ``infinite``; else None."""
    for name, tensor in tensors.items():
        if bool((tensor.isnan() if name in infinite else ~tensor.isfinite()).any()):
            return name
    return None
