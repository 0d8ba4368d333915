"""How well scores put true labels before others, and yes and no answers agree with the truth, label by label."""

import math

import torch
from torch import Tensor


def average_precisions(scores: Tensor, truths: Tensor) -> Tensor:
    """Return the average precision of each label ``[k]``, from scores and truths ``[n, k]``; NaN where it is true of no image.

    Images are ranked by their score for the label: at each true one, what share of the images down to it is true? The
    mean of these shares. Images with equal scores are taken together, so their order does not matter.
    """
    from sklearn.metrics import average_precision_score

    columns = zip(truths.T.cpu().numpy(), scores.double().T.cpu().numpy(), strict=True)
    values = [average_precision_score(true, own) if true.any() else math.nan for true, own in columns]
    return torch.tensor(values, dtype=torch.float64, device=scores.device)


def f1_scores(yes: Tensor, truths: Tensor) -> tuple[float, Tensor]:
    """Return F1 over all pairs of image and label (micro), and of each label ``[k]``, from answers and truths ``[n, k]`` (bool).

    It is 0 where nothing is true or yes.
    """
    both, either = (yes & truths).sum(0).double(), yes.sum(0).double() + truths.sum(0)
    micro = 2 * both.sum() / either.sum().clamp_min(1)
    return float(micro), 2 * both / either.clamp_min(1)
