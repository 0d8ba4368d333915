"""Formulas on tensors, k-means, and seeded random numbers that training and trained methods share."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.core.arrays import FLAT
from labelwise.support.errors import UsageError


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
    def from_seed(cls, seed: int, n: int, device: str | torch.device = "cpu") -> "BatchRng":
        """Return the random numbers of a batch of n rows that is here as a whole."""
        return cls(torch.Generator(device).manual_seed(seed), slice(0, n), n)

    @property
    def device(self) -> torch.device:
        """Where the numbers are made."""
        return self.generator.device

    def uniform(self, *shape: int) -> Tensor:
        """Return numbers in [0, 1), ``[n, *shape]``."""
        return torch.rand((self.total, *shape), generator=self.generator, device=self.device)[self.rows]

    def uniform_between(self, low: float, high: float, *shape: int) -> Tensor:
        """Return numbers in [low, high), ``[n, *shape]``."""
        return self.uniform(*shape) * (high - low) + low

    def normal(self, *shape: int) -> Tensor:
        """Return standard normal numbers, ``[n, *shape]``."""
        return torch.randn((self.total, *shape), generator=self.generator, device=self.device)[self.rows]


class Clusters(NamedTuple):
    """Centres ``[k, d]``, the cluster of each row ``[n]``, and the mean squared distance to the own centre."""

    centres: Tensor
    members: Tensor
    inertia: float


def nearest_centres(embeddings: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Return the nearest centre of each embedding ``[..., n]`` and its squared distance, from ``[n, d]`` and ``[..., k, d]``."""
    near = embeddings @ centres.mT * 2 - centres.square().sum(-1)[..., None, :]
    best, nearest = near.max(-1)
    return nearest, (embeddings.square().sum(-1) - best).clamp_min(0)


def kmeans(embeddings: Tensor, k: int, generator: torch.Generator, *, starts: int = 10, steps: int = 100) -> Clusters:
    """Return the clusters of least inertia among several runs of k-means from spread-out starts (k-means++)."""
    if len(embeddings) < k:
        raise UsageError(f"{len(embeddings)} images cannot make {k} clusters; give at least as many images as labels.")
    runs = [_lloyd(embeddings, _spread_out(embeddings, k, generator), steps) for _ in range(starts)]
    return min(runs, key=lambda one: one.inertia)


def _spread_out(embeddings: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """Return k embeddings ``[k, d]`` drawn one after another with the squared distance to those before."""
    rows = [int(torch.randint(len(embeddings), (), generator=generator))]
    far = (embeddings - embeddings[rows[0]]).square().sum(1)
    for _ in range(k - 1):
        weights = far.double().cpu().cumsum(0)
        at = torch.rand((), generator=generator, dtype=torch.float64) * weights[-1]
        rows.append(min(int(torch.searchsorted(weights, at)), len(embeddings) - 1))
        far = torch.minimum(far, (embeddings - embeddings[rows[-1]]).square().sum(1))
    return embeddings[rows]


def _lloyd(embeddings: Tensor, centres: Tensor, steps: int) -> Clusters:
    """Return where k-means arrives from these centres; a centre without embeddings moves to the embedding farthest from its own."""
    k = len(centres)
    members, far = nearest_centres(embeddings, centres)
    for _ in range(steps):
        centres = segment_mean(embeddings, members, k)
        empty = (torch.bincount(members, minlength=k) == 0).nonzero()[:, 0]
        if len(empty):
            centres[empty] = embeddings[far.topk(len(empty)).indices]
        before = members
        members, far = nearest_centres(embeddings, centres)
        if torch.equal(members, before) and not len(empty):
            break
    return Clusters(centres, members, float(far.double().mean()))
