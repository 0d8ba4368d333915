"""Draws in NumPy are those of torch."""

import numpy as np
import pytest

from labelwise.support.rows import Draws

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("seed", [0, 7, 2**31 + 5])
def test_draws_equal_those_of_torch(seed: int) -> None:
    draws, generator = Draws(seed), torch.Generator().manual_seed(seed)
    for n in (0, 1, 2, 5, 3000):
        assert np.array_equal(draws.permutation(n), torch.randperm(n, generator=generator).numpy())
    for high in (1, 7, 2**28 - 1, 2**28, 10**9, 2**40):
        assert np.array_equal(draws.integers(high, 100), torch.randint(high, (100,), generator=generator).numpy())
    assert np.array_equal(draws.uniform(3, 40, 50), torch.rand(3, 40, 50, generator=generator).numpy())
    assert draws.uniform(0).dtype == np.float32
    assert np.array_equal(draws.permutation(10), torch.randperm(10, generator=generator).numpy())
