"""Random numbers for the rows of a batch."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class BatchRng:
    """Random numbers for the rows of one batch, the same however many processes share that batch.

    Numbers are drawn for the whole batch and each process keeps those of its own rows. So augmentation and
    sampled negatives do not change when the batch is spread over devices.
    """

    generator: torch.Generator  # seeded for this very step, on the device of the images
    rows: slice  # which rows of the whole batch are here
    total: int  # how many rows the whole batch has

    @classmethod
    def seeded(cls, seed: int, n: int, device: str | torch.device = "cpu") -> "BatchRng":
        """Return the random numbers of a batch of n rows that is here as a whole."""
        return cls(torch.Generator(device).manual_seed(seed), slice(0, n), n)

    @property
    def device(self) -> torch.device:
        """Where the numbers are made."""
        return self.generator.device

    def uniform(self, *shape: int) -> Tensor:
        """Return numbers in [0, 1), ``[n, *shape]``."""
        return torch.rand((self.total, *shape), generator=self.generator, device=self.device)[self.rows]

    def between(self, low: float, high: float, *shape: int) -> Tensor:
        """Return numbers in [low, high), ``[n, *shape]``."""
        return self.uniform(*shape) * (high - low) + low

    def normal(self, *shape: int) -> Tensor:
        """Return standard normal numbers, ``[n, *shape]``."""
        return torch.randn((self.total, *shape), generator=self.generator, device=self.device)[self.rows]
