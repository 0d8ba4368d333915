"""Comparison of arrays and tensors alike."""

from typing import Any

import numpy as np
from torch import Tensor


def assert_close(actual: Any, expected: Any, *, rtol: float = 1.3e-6, atol: float = 1e-5) -> None:
    """Raise an error unless both hold nearly the same numbers in the same shape; NaN equals NaN."""
    actual, expected = (x.detach() if isinstance(x, Tensor) else x for x in (actual, expected))
    assert np.shape(actual) == np.shape(expected)
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=rtol, atol=atol)
