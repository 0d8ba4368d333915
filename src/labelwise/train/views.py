"""Two changed views of each image, which contrast tells from those of other images."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from labelwise.train.augment import Augment
from labelwise.train.rng import BatchRng


@dataclass(frozen=True)
class TwoViews:
    """Changes each image twice, with random numbers of its own each time."""

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
