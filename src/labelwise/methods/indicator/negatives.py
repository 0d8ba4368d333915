"""Sampling of the wrong labels that an image is compared with in training."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.functional import pad

from labelwise.images.dataset import several_true

STEP = 2.0**-24  # between two neighbouring uniform numbers in single precision


def sample_uniformly(uniforms: Tensor, targets: Tensor, k: int) -> Tensor:
    """Return ``[n, count]`` distinct labels per image, never the true one, every set of them equally likely.

    This is Floyd's algorithm for all images at once: of the m wrong labels, the draw at place j = m - count ... m - 1 is
    a number from 0 to j, or j itself where that number was taken before. Time and memory do not grow with k. A number is
    taken if an earlier draw equals it, or if it is the place of an earlier draw that was itself replaced; the second
    kind forms chains, which are followed in jumps of doubling length.

    Two ``uniforms [n, count, 2]`` in [0, 1) make one number that is fine enough for millions of labels; k is more than count.
    """
    count = uniforms.shape[1]
    first = k - 1 - count
    places = torch.arange(count, device=uniforms.device).expand(len(uniforms), -1)
    fine = uniforms[..., 0].double() + uniforms[..., 1].double() * STEP
    positions = (fine * (places + first + 1)).long()
    values, order = positions.sort(stable=True)
    repeated = torch.zeros_like(positions, dtype=torch.bool).scatter(
        1, order, pad(values[:, 1:] == values[:, :-1], (1, 0))
    )
    source = torch.where(positions >= first, positions - first, places)
    for _ in range((count - 1).bit_length()):
        repeated = repeated | repeated.gather(1, source)
        source = source.gather(1, source)
    wrong = torch.where(repeated, places + first, positions)
    return wrong + (wrong >= targets[:, None])


def sample_by_score(parts: Iterable[tuple[Tensor, Tensor]], targets: Tensor, count: int) -> Tensor:
    """Return ``[n, count]`` distinct labels per image, never a true one, drawn in proportion to exp(logits).

    Adding Gumbel noise to the logits and keeping the largest draws exactly so, without replacement (the Gumbel top-k
    trick). The labels may come in parts, so that not all logits are held at a time.
    A part is random numbers in [0, 1) and logits, both ``[n, part]``. Where several labels may be true (targets ``[n, k]``), -1
    fills up the rows of images that have fewer than ``count`` wrong ones.
    """
    best = torch.empty(len(targets), 0, device=targets.device)
    labels = torch.empty(len(targets), 0, dtype=torch.int64, device=targets.device)
    start = 0
    for uniforms, logits in parts:
        keys = _gumbel(uniforms).add_(logits)
        if several_true(targets):
            keys = keys.masked_fill_(targets[:, start : start + keys.shape[1]], -torch.inf)
        else:
            keys = _mask_columns(keys, targets - start)
        candidates = keys.topk(min(count, keys.shape[1]), sorted=False)
        best, labels = torch.cat([best, candidates.values], 1), torch.cat([labels, candidates.indices + start], 1)
        best_of_candidates = best.topk(min(count, best.shape[1]), sorted=False)
        best, labels = best_of_candidates.values, labels.gather(1, best_of_candidates.indices)
        start += keys.shape[1]
    return labels.masked_fill(best == -torch.inf, -1) if several_true(targets) else labels


def sample_wrong_labels(uniforms: Tensor, targets: Tensor, count: int, logits: Tensor | None = None) -> Tensor:
    """Return the result of ``sample_by_score`` for one part with all labels ``[n, k]``; without logits it is uniform."""
    return sample_by_score([(uniforms, torch.zeros_like(uniforms) if logits is None else logits)], targets, count)


def _gumbel(uniforms: Tensor) -> Tensor:
    """Return Gumbel noise from uniform numbers, each at the middle of its step, so that it is finite."""
    return (uniforms + STEP / 2).clamp_(max=1 - STEP).neg_().log1p_().neg_().log_().neg_()


def _mask_columns(keys: Tensor, columns: Tensor) -> Tensor:
    """Return the keys ``[n, part]`` with minus infinity at one column of each row, if the part has that column."""
    places = columns.clamp(0, keys.shape[1] - 1)[:, None]
    masked = keys.gather(1, places).masked_fill(places == columns[:, None], -torch.inf)
    return keys.scatter_(1, places, masked)
