"""The contrastive loss: views of one image, and images of one label, should lie closer together than others."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.errors import UsageError

SHORTEST = 1e-6  # codes shorter than this are not stretched to unit length, so that gradients stay moderate


def supervised_contrastive(codes: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Return the mean over anchors of the loss L_out of Khosla et al. (2020), a float32 scalar.

    Every row is an anchor. Its positives are the other views of its image and all rows of the same target. The loss of
    an anchor is the mean over its positives of minus the log of the probability of that positive among all other
    rows. Anchors without a positive are left out; with none left the loss is zero. Where all targets are -1, only views of
    one image attract each other: with two views this is NT-Xent, the loss of SimCLR.

    Args:
        codes: ``[n, v, e]``, v views of each image, or ``[n, e]`` for one; brought to unit length here.
        targets: ``[n]``; -1 where there is no label.
        temperature: tau, divides the cosines.
    """
    if codes.ndim not in (2, 3) or targets.shape != codes.shape[:1]:
        raise UsageError(
            f"Codes are [n, views, size] or [n, size] with targets [n]; given {list(codes.shape)} and {list(targets.shape)}."
        )
    if temperature <= 0:
        raise UsageError(f"The temperature must be above 0; given {temperature}.")
    views = codes.shape[1] if codes.ndim == 3 else 1
    with torch.autocast(codes.device.type, enabled=False):
        rows = normalize(codes.float().reshape(-1, codes.shape[-1]), dim=1, eps=SHORTEST)
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
