"""How relevant each direction of caption vectors is to what images show; irrelevant directions should weigh nothing.

Caption vectors vary for many reasons, and most have nothing to do with the image. Where every image has a caption, ridge regression
predicts its vector from images of the other folds. The share of variance that it predicts, direction by direction, is a squared
canonical correlation. A direction is weighted by the root of that share.
"""

from typing import NamedTuple

import torch
from torch import Tensor

PARTS = 5  # folds of images; a caption is predicted from those of the other folds
PENALTY = 1.0  # of the ridge regression, in units of the mean squared length of an image embedding
FLOOR = 0.05  # of the mean variance of texts, added to that of each direction
MOST = 4_000  # images, evenly over all of them


class CaptionRelevance(NamedTuple):
    """Caption vectors of n images, and how each is predicted from the images of other folds."""

    texts: Tensor  # vectors [n, a]
    predict: Tensor  # times vectors of the texts: their predictions [n, n]

    @classmethod
    def of(cls, images: Tensor, texts: Tensor) -> "CaptionRelevance":
        """Return the relevance from image embeddings ``[n, d]`` and caption vectors ``[n, a]``; of more than ``MOST``, some."""
        rows = torch.arange(0, len(images), -(-len(images) // MOST), device=images.device)
        centred = (images[rows] - images[rows].mean(0)).double()
        products = centred @ centred.T
        part = torch.arange(len(rows), device=images.device) % PARTS
        predict = torch.zeros_like(products)
        for one in range(PARTS):
            own, others = (part == one).nonzero()[:, 0], (part != one).nonzero()[:, 0]
            known = products[others[:, None], others]
            known.diagonal().add_(PENALTY * products.diagonal().mean())
            predict[own[:, None], others] = torch.linalg.solve(known, products[others[:, None], own]).T
        return cls(texts[rows], predict)

    def weights(self, texts: Tensor) -> Tensor:
        """Return the matrix ``[a, a]`` that weights directions of label vectors; ``texts [n, a]`` are prepared as these are."""
        centred = texts.double() - texts.double().mean(0)
        whole = centred.T @ centred
        crossed = centred.T @ (self.predict @ centred)
        values, axes = torch.linalg.eigh(whole)
        whiten = (axes * (values.clamp_min(0) + FLOOR * values.mean().clamp_min(1e-12)).rsqrt()) @ axes.T
        told, directions = torch.linalg.eigh(whiten @ (crossed + crossed.T) @ whiten / 2)
        return whiten @ ((directions * told.clamp_min(0).sqrt()) @ directions.T)  # type: ignore[no-any-return]
