"""Targets of images, one tensor of either kind, and what is asked of it.

It holds the position of each image's label ``[n]``, -1 where there is none; or, where several labels may be true of an image, or
none, which of them are ``[n, k]`` (bool). Which of the two it is, is asked here alone.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def several_true(targets: Tensor) -> bool:
    """Return whether several labels may be true of one image."""
    return targets.ndim == 2


def have_label(targets: Tensor) -> Tensor:
    """Return which images have a label, or more ``[n]`` (bool)."""
    return targets.any(1) if several_true(targets) else targets >= 0


def truth_table(targets: Tensor, k: int) -> Tensor:
    """Return which of k labels are true of each image ``[n, k]`` (bool)."""
    return targets if several_true(targets) else targets[:, None] == torch.arange(k, device=targets.device)


def labels_present(targets: Tensor) -> list[int]:
    """Return the labels that some image has, in order."""
    if several_true(targets):
        return targets.any(0).nonzero()[:, 0].tolist()
    return sorted(set(targets.tolist()) - {-1})


def among_labels(targets: Tensor, labels: Sequence[int], k: int) -> Tensor:
    """Return the targets of the same images among some of k labels; those of other labels have none."""
    columns = torch.tensor(labels, dtype=torch.int64, device=targets.device)
    if several_true(targets):
        return targets[:, columns]
    positions = torch.full((k + 1,), -1, device=targets.device)  # the last is where -1 points
    positions[columns] = torch.arange(len(labels), device=targets.device)
    return positions[targets]


def strata(targets: Tensor) -> Tensor:
    """Return what images are divided by ``[n]``: their label, or of several true ones the rarest, so that it is shared out."""
    if not several_true(targets):
        return targets
    counts = torch.where(targets, targets.sum(0), len(targets) + 1)
    return torch.where(targets.any(1), counts.argmin(1), -1)


def label_words(names: Sequence[str], targets: Tensor) -> list[str]:
    """Return the name of each image's label, several joined by semicolons, blank where there is none."""
    if not several_true(targets):
        return [names[target] if target >= 0 else "" for target in targets.tolist()]
    return [";".join(name for name, true in zip(names, row, strict=True) if true) for row in targets.tolist()]
