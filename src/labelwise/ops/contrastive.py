"""Contrastive losses: views of one image, and images of one label, should lie closer together than others.

And two figures of embeddings that need no label (Wang and Isola, 2020): how close views of one image are, and how evenly all
embeddings are spread over the sphere. All embeddings are brought to unit length here, and computed with in single precision.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import normalize

from labelwise.errors import UsageError

SHORTEST = 1e-6  # embeddings shorter than this are not stretched to unit length, so that gradients stay moderate


def supervised_contrastive(embeddings: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Return the mean over anchors of the loss L_out of Khosla et al. (2020), a float32 scalar.

    Every row is an anchor. Its positives are the other views of its image and all rows of the same target. The loss of
    an anchor is the mean over its positives of minus the log of the probability of that positive among all other
    rows. Anchors without a positive are left out; with none left the loss is zero. Where all targets are -1, only views of
    one image attract each other: with two views this is NT-Xent, the loss of SimCLR.

    Args:
        embeddings: ``[n, v, e]``, v views of each image, or ``[n, e]`` for one; brought to unit length here.
        targets: ``[n]``; -1 where there is no label.
        temperature: tau, divides the cosines.
    """
    if embeddings.ndim not in (2, 3) or targets.shape != embeddings.shape[:1]:
        raise UsageError(
            f"Embeddings are [n, views, size] or [n, size] with targets [n]; given {list(embeddings.shape)} and {list(targets.shape)}."
        )
    _check_temperature(temperature)
    views = embeddings.shape[1] if embeddings.ndim == 3 else 1
    with torch.autocast(embeddings.device.type, enabled=False):
        rows = normalize(embeddings.float().reshape(-1, embeddings.shape[-1]), dim=1, eps=SHORTEST)
        scores = rows @ rows.T / temperature
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
    """Return the loss NT-Xent of SimCLR (Chen et al., 2020), a float32 scalar.

    Each of the 2n rows has to find the other view of its image among the 2n - 1 other rows. One matrix ``[2n, 2n]`` is held,
    and none is added for the gradient.

    Args:
        embeddings: ``[n, 2, e]``, two views of each image.
        temperature: tau, divides the cosines.
    """
    if embeddings.ndim != 3 or embeddings.shape[1] != 2 or not len(embeddings):
        raise UsageError(
            f"Embeddings are [n, 2, size], two views of at least one image each; given {list(embeddings.shape)}."
        )
    _check_temperature(temperature)
    loss: Tensor = _NtXent.apply(_unit(embeddings.transpose(0, 1).flatten(0, 1)), temperature)  # type: ignore[no-untyped-call]
    return loss


class _NtXent(torch.autograd.Function):
    """The loss of rows of unit length ``[2n, e]``, first views and then second ones; the matrix is reused in place."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, temperature: float) -> Tensor:
        """Return the loss, and keep its slope with regard to the scores of all pairs of rows."""
        n = len(rows) // 2
        with torch.autocast(rows.device.type, enabled=False):
            scores = (rows / temperature) @ rows.T
        partners = scores.diagonal(n).mean()
        highest = scores.fill_diagonal_(-torch.inf).amax(1, keepdim=True)
        total = scores.sub_(highest).exp_().sum(1, keepdim=True)
        slope = scores.div_(total)
        slope.diagonal(n).sub_(1)
        slope.diagonal(-n).sub_(1)
        ctx.save_for_backward(rows, slope)
        ctx.share = 1 / (2 * n * temperature)
        return (total.log() + highest).mean() - partners

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the rows: each takes part as an anchor and as one of the others."""
        rows, slope = ctx.saved_tensors
        with torch.autocast(rows.device.type, enabled=False):
            return (slope @ rows + slope.T @ rows) * (grad * ctx.share), None


def momentum_contrast(queries: Tensor, keys: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """Return the loss InfoNCE of MoCo (He et al., 2020), a float32 scalar.

    Each query has to find the key of its own image among that key and the queue. No gradient reaches keys and queue.

    Args:
        queries: ``[n, e]``.
        keys: ``[n, e]``, other views of the same images.
        queue: ``[m, e]``, keys of other images.
        temperature: tau, divides the cosines.
    """
    if queries.ndim != 2 or queries.shape != keys.shape or queue.ndim != 2 or queue.shape[1] != queries.shape[1]:
        shapes = ", ".join(str(list(given.shape)) for given in (queries, keys, queue))
        raise UsageError(f"Queries and keys are [n, size] and the queue is [m, size]; given {shapes}.")
    _check_temperature(temperature)
    rows = _unit(queries) / temperature
    with torch.autocast(rows.device.type, enabled=False):
        others = rows @ _unit(queue.detach()).T
    own = (rows * _unit(keys.detach())).sum(1)
    return (torch.logaddexp(own, others.logsumexp(1)) - own).mean()


def alignment(embeddings: Tensor) -> Tensor:
    """Return the mean squared distance of two views ``[n, 2, e]`` of one image, a float32 scalar: 0 is best, 4 the most."""
    if embeddings.ndim != 3 or embeddings.shape[1] != 2 or not len(embeddings):
        raise UsageError(
            f"Embeddings are [n, 2, size], two views of at least one image; given {list(embeddings.shape)}."
        )
    first, second = _unit(embeddings).unbind(1)
    return (first - second).square().sum(1).mean()


def uniformity(embeddings: Tensor) -> Tensor:
    """Return how unevenly embeddings ``[n, e]`` are spread, a float32 scalar: 0 where all are the same, lower is more even.

    It is the log of the mean of ``exp(-2 distance ** 2)`` over all pairs.
    """
    if embeddings.ndim != 2 or len(embeddings) < 2:
        raise UsageError(f"Embeddings are [n, size], at least two; given {list(embeddings.shape)}.")
    n, rows = len(embeddings), _unit(embeddings)
    with torch.autocast(rows.device.type, enabled=False):
        near = (4 * rows) @ rows.T - 4  # -2 distance ** 2 of embeddings of unit length
    pairs = near.masked_fill(torch.eye(n, dtype=torch.bool, device=rows.device), -torch.inf)
    return pairs.logsumexp((0, 1)) - math.log(n * (n - 1))


def _unit(embeddings: Tensor) -> Tensor:
    return normalize(embeddings.float(), dim=-1, eps=SHORTEST)


def _check_temperature(temperature: float) -> None:
    if temperature <= 0:
        raise UsageError(f"The temperature must be above 0; given {temperature}.")
