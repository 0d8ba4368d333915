"""Label vectors in which directions weigh less that many labels share, or that images do not show.

Caption vectors vary for many reasons, and most have nothing to do with the image. Where every image has a caption, ridge regression
predicts its vector from images of the other folds. The share of variance that it predicts, direction by direction, is a squared
canonical correlation. A direction is weighted by the root of that share.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.methods.shared.centring import Centring, array
from labelwise.methods.shared.head import Centre

PARTS = 5  # folds of images; a caption is predicted from those of the other folds
PENALTY = 1.0  # of the ridge regression, in units of the mean squared length of an image embedding
TEXT_FLOOR = 0.05  # of the mean variance of texts, added to that of each direction
FLOOR = 0.1  # of the mean variance of label vectors, added to that of each direction
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
        whiten = (axes * (values.clamp_min(0) + TEXT_FLOOR * values.mean().clamp_min(1e-12)).rsqrt()) @ axes.T
        told, directions = torch.linalg.eigh(whiten @ (crossed + crossed.T) @ whiten / 2)
        return whiten @ ((directions * told.clamp_min(0).sqrt()) @ directions.T)  # type: ignore[no-any-return]


class Flattening(Centring):
    """Rows of unit length around their mean, in which directions that many rows share weigh less.

    ``flat`` is the power of the variance in a direction by which it is divided. Where rows stand for texts, and images have texts of
    their own, directions first weigh by what images tell of them. What lies in no direction of the rows it was fitted to is dropped.
    Until it is fitted it is a ``Centring``.
    """

    turn: Tensor  # [size, size]

    def __init__(self, size: int, power: float = 1.0) -> None:
        super().__init__(size, power)
        self.flat = 0.125
        self.register_buffer("turn", torch.eye(size))

    @torch.no_grad()
    def fit(self, rows: Tensor, relevance: CaptionRelevance | None = None) -> None:
        """Take the mean and the directions of these rows ``[n, size]``, and what images tell."""
        super().fit(rows)
        unit = super().forward(rows.double())
        told = (
            torch.eye(len(self.turn)).to(unit) if relevance is None else relevance.weights(self.even(relevance.texts))
        )
        unit = normalize(unit @ told, dim=1)
        values, axes = torch.linalg.eigh(unit.T @ unit)
        values = values / (values.sum() / min(rows.shape)).clamp_min(1e-12)
        scale = torch.where(values > 1e-6, (values.clamp_min(0) + FLOOR) ** -self.flat, 0)
        self.turn.copy_(told @ (axes * scale) @ axes.T)

    def forward(self, rows: Tensor) -> Tensor:
        """Return centred rows of unit length ``[n, size]``."""
        return normalize(super().forward(rows) @ self.turn.to(rows.dtype), dim=1)

    def centre(self) -> Centre:
        """Return the same without torch."""
        return replace(super().centre(), turn=array(self.turn))
