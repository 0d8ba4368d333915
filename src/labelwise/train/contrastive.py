"""Contrastive losses: views of one image, and images of one label, should lie closer together than others.

And two figures of embeddings that need no label (Wang and Isola, 2020): how close views of one image are, and how evenly all
embeddings are spread over the sphere. All embeddings are brought to unit length here, and computed with in single precision.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

SHORTEST = 1e-6  # embeddings shorter than this are not stretched to unit length, so that gradients stay moderate


def supervised_contrastive(embeddings: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Return the mean over anchors of the loss L_out of Khosla et al. (2020), a float32 scalar.

    Every row is an anchor. Its positives are the other views of its image and all rows of the same target. The loss of
    an anchor is the mean over its positives of minus the log of the probability of that positive among all other
    rows. Anchors without a positive are left out; with none left the loss is zero.

    Embeddings are ``[n, v, e]``, v views of each image; targets ``[n]``, -1 where there is no label: then only views of one
    image attract each other.
    """
    views = embeddings.shape[1]
    scores = _cosines(rows := embeddings.flatten(0, 1), rows) / temperature
    itself = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    images = torch.arange(len(targets), device=rows.device)
    positive = (images[:, None] == images) | ((targets[:, None] == targets) & (targets >= 0))
    positive = positive.repeat_interleave(views, 0).repeat_interleave(views, 1) & ~itself
    counts = positive.sum(1)
    # The lowest float, not minus infinity: a row that is alone then has a gradient of zero.
    total = scores.masked_fill(itself, torch.finfo(scores.dtype).min).logsumexp(1)
    mean = (scores * positive).sum(1) / counts.clamp_min(1)
    anchor = counts > 0
    return ((total - mean) * anchor).sum() / anchor.sum().clamp_min(1)


def nt_xent(embeddings: Tensor, temperature: float) -> Tensor:
    """Return the loss NT-Xent of SimCLR (Chen et al., 2020), a float32 scalar, from two views of each image ``[n, 2, e]``.

    Each of the 2n rows has to find the other view of its image among the 2n - 1 other rows.
    """
    n, rows = len(embeddings), torch.cat(embeddings.unbind(1))
    itself = torch.eye(2 * n, dtype=torch.bool, device=rows.device)
    scores = (_cosines(rows, rows) / temperature).masked_fill(itself, -torch.inf)
    return cross_entropy(scores, torch.arange(2 * n, device=rows.device).roll(n))


def momentum_contrast(queries: Tensor, keys: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """Return the loss InfoNCE of MoCo (He et al., 2020), a float32 scalar.

    Each query has to find the key of its own image among that key and the queue. No gradient reaches keys and queue.
    Keys ``[n, e]`` are other views of the images of queries ``[n, e]``, the queue ``[m, e]`` keys of other images.
    """
    others = _cosines(queries, queue.detach()) / temperature
    own = (_unit(queries) * _unit(keys.detach())).sum(1) / temperature
    return (torch.logaddexp(own, others.logsumexp(1)) - own).mean()


def alignment(embeddings: Tensor) -> Tensor:
    """Return the mean squared distance of two views ``[n, 2, e]`` of one image, a float32 scalar: 0 is best, 4 the most."""
    first, second = _unit(embeddings).unbind(1)
    return (first - second).square().sum(1).mean()


def uniformity(embeddings: Tensor) -> Tensor:
    """Return how unevenly embeddings ``[n, e]`` are spread, a float32 scalar: 0 where all are the same, lower is more even.

    It is the log of the mean of ``exp(-2 distance ** 2)`` over all pairs of at least two embeddings.
    """
    n = len(embeddings)
    near = 4 * _cosines(embeddings, embeddings) - 4  # -2 distance ** 2 of embeddings of unit length
    pairs = near.masked_fill(torch.eye(n, dtype=torch.bool, device=near.device), -torch.inf)
    return pairs.logsumexp((0, 1)) - math.log(n * (n - 1))


def _cosines(a: Tensor, b: Tensor) -> Tensor:
    with torch.autocast(a.device.type, enabled=False):
        return _unit(a) @ _unit(b).T


def _unit(embeddings: Tensor) -> Tensor:
    return normalize(embeddings.float(), dim=-1, eps=SHORTEST)
