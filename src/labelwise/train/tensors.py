"""Formulas on tensors and seeded random numbers that training and trained methods share."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.core.arrays import FLAT


def root_features(features: Tensor) -> Tensor:
    """Return the signed roots of features ``[n, d]``, each row at unit length; all zeros stay zeros."""
    even = features / features.abs().mean(1, keepdim=True).clamp_min(FLAT)
    return normalize(even / ((even.abs() + FLAT) ** 0.5 + FLAT**0.5), dim=1)  # sign(e) (sqrt(|e| + f) - sqrt(f))


def linear_scores(image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
    """Return ``[n, k]`` scores from image embeddings ``[n, d]`` and label embeddings ``[k, d + 1]`` (weights, then bias)."""
    rows = label_embeddings.to(image_embeddings.dtype)
    return rows[:, -1].addmm(image_embeddings, rows[:, :-1].T)


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
