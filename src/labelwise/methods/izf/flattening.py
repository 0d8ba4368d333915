"""Reweight label vectors: reduce directions that many labels share, or that images do not show.

Caption vectors vary for many reasons, and most have nothing to do with the image. Where every image has a caption, ridge regression
predicts its vector from images of the other folds. The share of variance that it predicts, direction by direction, is a squared
canonical correlation. A direction is weighted by the root of that share.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from labelwise.core.arrays import Array
from labelwise.methods.shared.head import Centre
from labelwise.support.rows import unit_rows

PARTS = 5  # folds of images; a caption is predicted from those of the other folds
PENALTY = 1.0  # of the ridge regression, in units of the mean squared length of an image embedding
TEXT_FLOOR = 0.05  # of the mean variance of texts, added to that of each direction
FLOOR = 0.1  # of the mean variance of label vectors, added to that of each direction
MOST = 4_000  # images, evenly over all of them


class CaptionRelevance(NamedTuple):
    """Caption vectors of n images, and how each is predicted from the images of other folds."""

    texts: Array  # vectors [n, a]
    predict: Array  # times vectors of the texts: their predictions [n, n]

    @classmethod
    def of(cls, images: Array, texts: Array) -> "CaptionRelevance":
        """Return the relevance from image embeddings ``[n, d]`` and caption vectors ``[n, a]``; of more than ``MOST``, some."""
        rows = np.arange(0, len(images), -(-len(images) // MOST))
        residuals = (images[rows] - images[rows].mean(0)).astype(np.float64)
        products, part = residuals @ residuals.T, np.arange(len(rows)) % PARTS
        ridge, predict = PENALTY * np.diagonal(products).mean(), np.zeros_like(products)
        for number in range(PARTS):
            own, others = np.flatnonzero(part == number), np.flatnonzero(part != number)
            gram = products[np.ix_(others, others)] + ridge * np.eye(len(others))
            predict[np.ix_(own, others)] = np.linalg.solve(gram, products[np.ix_(others, own)]).T
        return cls(texts[rows], predict)

    def weights(self, texts: Array) -> Array:
        """Return the matrix ``[a, a]`` that weights directions of label vectors; ``texts [n, a]`` are prepared as these are."""
        centred_texts = texts - texts.mean(0, dtype=np.float64)
        crossed = centred_texts.T @ (self.predict @ centred_texts)
        values, axes = np.linalg.eigh(centred_texts.T @ centred_texts)
        whiten = (axes / np.sqrt(np.maximum(values, 0) + TEXT_FLOOR * max(float(values.mean()), 1e-12))) @ axes.T
        shares, directions = np.linalg.eigh(whiten @ (crossed + crossed.T) @ whiten / 2)
        weights: Array = whiten @ ((directions * np.sqrt(np.maximum(shares, 0))) @ directions.T)
        return weights


def flatten(rows: Array, power: float, flat: float, relevance: CaptionRelevance | None = None) -> Centre:
    """Return the centring of rows ``[n, a]`` that reduces directions many of them share.

    ``flat`` is the power of the variance in a direction by which it is divided. If rows represent texts, and images have texts of
    their own, directions first weigh by what images tell of them. What is in no direction of these rows is dropped.
    """
    centre = Centre.of(rows, power)
    weights = np.eye(rows.shape[1]) if relevance is None else relevance.weights(centre.even(relevance.texts))
    unit = unit_rows(centre(rows.astype(np.float64)) @ weights)
    values, axes = np.linalg.eigh(unit.T @ unit)
    values = values / max(float(values.sum() / min(rows.shape)), 1e-12)
    scale = np.where(values > 1e-6, (np.maximum(values, 0) + FLOOR) ** -flat, 0)
    return replace(centre, turn=(weights @ (axes * scale) @ axes.T).astype(np.float32))
