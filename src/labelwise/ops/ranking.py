"""How well scores put true labels before others, and yes and no answers agree with the truth, label by label."""

import torch
from torch import Tensor


def average_precisions(scores: Tensor, truths: Tensor) -> Tensor:
    """Return the average precision of each label ``[k]``; NaN where it is true of no image.

    Images are ranked by their score for the label: at each true one, what share of the images down to it is true? The
    mean of these shares. Images with equal scores are taken together, so their order does not matter.

    Args:
        scores: ``[n, k]``, larger is more of a yes.
        truths: which labels are true ``[n, k]`` (bool).
    """
    ranked, order = scores.double().sort(0, descending=True)
    hits = truths.gather(0, order).double()
    n = len(scores)
    places = torch.arange(1, n + 1, dtype=torch.float64, device=scores.device)[:, None]
    ends = torch.ones_like(hits, dtype=torch.bool)
    ends[:-1] = ranked[1:] != ranked[:-1]
    # The precision at the last of equal scores counts for all of them: look up that place for each row, from the end.
    last = torch.where(ends, places.long() - 1, n).flip(0).cummin(0).values.flip(0)
    precision = (hits.cumsum(0) / places).gather(0, last.clamp_max(max(n - 1, 0)))
    return (precision * hits).sum(0) / hits.sum(0)


def f1_scores(yes: Tensor, truths: Tensor) -> tuple[float, Tensor]:
    """Return F1 over all pairs of image and label (micro), and of each label ``[k]``; 0 where nothing is true or yes.

    Args:
        yes: answers ``[n, k]`` (bool).
        truths: which labels are true ``[n, k]`` (bool).
    """
    both, either = (yes & truths).sum(0).double(), yes.sum(0).double() + truths.sum(0)
    micro = 2 * both.sum() / either.sum().clamp_min(1)
    return float(micro), 2 * both / either.clamp_min(1)
