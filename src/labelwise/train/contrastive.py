"""Contrastive losses: two augmented views of an image should be closer than views of other images.

And two figures of embeddings that need no label (Wang and Isola, 2020): how close views of one image are, and how evenly all
embeddings are spread over the sphere. All embeddings are brought to unit length here, and computed with in single precision.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from labelwise.train.augment import Augment
from labelwise.train.tensors import BatchRng

SHORTEST = 1e-6  # shorter embeddings are not normalised, so that gradients stay moderate


@dataclass(frozen=True)
class TwoViews:
    """Augment each image twice, independently."""

    augment: Augment

    def __call__(self, images: Tensor, rng: BatchRng) -> Tensor:
        """Return both views of each image ``[n, 2, c, h, w]``, or of features ``[n, 2, a]``."""
        return torch.stack([self.augment(images, rng), self.augment(images, rng)], 1)


def contrastive_augment(shape: tuple[int, ...]) -> Augment:
    """Return the augmentation of the contrast for images of this shape."""
    if len(shape) == 1:
        return Augment()
    jitter = Augment(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, jitter_probability=0.8, grey=0.2)
    return replace(jitter, scale=(0.2, 1.0), flip=shape[0] == 3)


def nt_xent(embeddings: Tensor, temperature: float) -> Tensor:
    """Return the loss NT-Xent of SimCLR (Chen et al., 2020), a float32 scalar, from two views of each image ``[n, 2, e]``.

    Each of the 2n rows has to find the other view of its image among the 2n - 1 other rows.
    """
    n, rows = len(embeddings), torch.cat(embeddings.unbind(1))
    itself = torch.eye(2 * n, dtype=torch.bool, device=rows.device)
    scores = (cosines(rows, rows) / temperature).masked_fill(itself, -torch.inf)
    return cross_entropy(scores, torch.arange(2 * n, device=rows.device).roll(n))


def momentum_contrast(queries: Tensor, keys: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """Return the loss InfoNCE of MoCo (He et al., 2020), a float32 scalar.

    Each query has to find the key of its own image among that key and the queue. No gradient reaches keys and queue.
    Keys ``[n, e]`` are other views of the images of queries ``[n, e]``, the queue ``[m, e]`` keys of other images.
    """
    negatives = cosines(queries, queue.detach()) / temperature
    own = (_unit(queries) * _unit(keys.detach())).sum(1) / temperature
    return (torch.logaddexp(own, negatives.logsumexp(1)) - own).mean()


def alignment(embeddings: Tensor) -> Tensor:
    """Return the mean squared distance of two views ``[n, 2, e]`` of one image, a float32 scalar: 0 is best, 4 the most."""
    first, second = _unit(embeddings).unbind(1)
    return (first - second).square().sum(1).mean()


def uniformity(embeddings: Tensor) -> Tensor:
    """Return the unevenness of embeddings ``[n, e]``, a float32 scalar: lower is more even, 0 if all are equal.

    It is the log of the mean of ``exp(-2 distance ** 2)`` over all pairs of at least two embeddings.
    """
    n = len(embeddings)
    near = 4 * cosines(embeddings, embeddings) - 4  # -2 distance ** 2 of unit embeddings
    pairs = near.masked_fill(torch.eye(n, dtype=torch.bool, device=near.device), -torch.inf)
    return pairs.logsumexp((0, 1)) - math.log(n * (n - 1))


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """Return the cosine of every pair ``[n, m]`` of rows ``[n, e]`` and ``[m, e]``, in single precision."""
    with torch.autocast(a.device.type, enabled=False):
        return _unit(a) @ _unit(b).T


def _unit(embeddings: Tensor) -> Tensor:
    return normalize(embeddings.float(), dim=-1, eps=SHORTEST)
