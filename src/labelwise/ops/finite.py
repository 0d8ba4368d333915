"""Numbers that are not finite, found by name."""

from collections.abc import Collection, Mapping

from torch import Tensor


def first_not_finite(tensors: Mapping[str, Tensor], infinite: Collection[str] = ()) -> str | None:
    """Return the name of the first tensor that holds NaN or an infinity, or None.

    Args:
        tensors: by name; only those of floats are looked at.
        infinite: names of tensors that may hold infinities, though never NaN.
    """
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            continue
        sound = ~tensor.isnan() if name in infinite else tensor.isfinite()
        if not bool(sound.all()):
            return name
    return None
