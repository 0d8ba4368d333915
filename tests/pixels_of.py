"""The images of a split as a tensor, for tests that look at numbers."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from labelwise.images.images import read_all


def px(split: Any, shape: tuple[int, ...] | None = None) -> Tensor:
    """Pixels ``[n, c, h, w]`` or features ``[n, a]`` of a split, read at their own shape unless another is given."""
    images = getattr(split, "images", split)
    if isinstance(images, Tensor):
        return images
    return torch.from_numpy(np.array(read_all(images, shape or images.shape)))
