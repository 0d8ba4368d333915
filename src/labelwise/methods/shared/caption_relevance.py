"""What images tell of the texts that belong to them: directions of texts that images say nothing of should weigh nothing.

Vectors of texts vary for many reasons, and most have nothing to do with what is seen. Where every image has a text of its own, ridge
regression predicts the vector of an image's text from images of other parts of the data. The share of the variance of texts that is told
so, direction by direction, is a squared canonical correlation; its root is how much a direction weighs.
"""

from typing import NamedTuple

import torch
from torch import Tensor

PARTS = 5  # of the images; a text is predicted by those of the other parts
PENALTY = 1.0  # of the ridge regression, in units of the mean squared length of an image embedding
FLOOR = 0.05  # of the mean variance of texts, added to that of each direction
MOST = 4_000  # images, evenly over all of them


class Telling(NamedTuple):
    """Texts of n images, and how each text is predicted by the images of other parts."""

    texts: Tensor  # vectors [n, a]
    predict: Tensor  # times vectors of the texts: their predictions [n, n]

    @classmethod
    def of(cls, images: Tensor, texts: Tensor) -> "Telling":
        """Return what image embeddings ``[n, d]`` say of the vectors of their texts ``[n, a]``, of the first so many by ``MOST``."""
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
        """Return the matrix ``[a, a]`` that texts are multiplied by; ``texts [n, a]`` are ours, prepared as those it is meant for."""
        centred = texts.double() - texts.double().mean(0)
        whole = centred.T @ centred
        crossed = centred.T @ (self.predict @ centred)
        values, axes = torch.linalg.eigh(whole)
        whiten = (axes * (values.clamp_min(0) + FLOOR * values.mean().clamp_min(1e-12)).rsqrt()) @ axes.T
        told, directions = torch.linalg.eigh(whiten @ (crossed + crossed.T) @ whiten / 2)
        return whiten @ ((directions * told.clamp_min(0).sqrt()) @ directions.T)  # type: ignore[no-any-return]
