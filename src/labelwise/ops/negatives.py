"""Which wrong labels an image is shown in training."""

import torch
from torch import Tensor


def sample_wrong_labels(uniforms: Tensor, targets: Tensor, count: int, logits: Tensor | None = None) -> Tensor:
    """Return ``[n, count]`` distinct labels per image, never the true one.

    Labels are drawn without replacement in proportion to exp(logits) by the Gumbel top-k trick: adding Gumbel noise
    to the logits and keeping the largest draws exactly so.

    Args:
        uniforms: random numbers in [0, 1) ``[n, k]``.
        targets: the true labels ``[n]``.
        count: how many to draw, at most k - 1.
        logits: ``[n, k]``; None draws uniformly.
    """
    noise = -torch.log(-torch.log(uniforms.clamp(1e-20, 1 - 1e-7)))
    keys = noise if logits is None else noise + logits
    return keys.scatter(1, targets[:, None], -torch.inf).topk(count, sorted=False).indices
