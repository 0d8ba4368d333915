"""The linear flow in closed form: labels as Gaussians whose means follow from their vectors.

Image embeddings of a label scatter around its mean with a covariance that all labels share. The covariance, shrunk towards a
multiple of the identity, whitens embeddings; the means of the trained labels, in whitened space, are regressed on label vectors
by kernel ridge. The predicted mean of any label then lies in a space of few dimensions, the semantic part; what is
orthogonal to it is the free part, where labels do not differ. One eigendecomposition serves every choice of the settings.
"""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from labelwise.ops.linear import embedding_statistics


class Choice(NamedTuple):
    """The settings of one solution."""

    shrink: float  # how much of the identity is added to the covariance, in units of its mean variance
    # how fast the likeness of label vectors falls with their squared distance, in units of its mean over the trained
    # labels; 0 is the scalar product
    width: float
    penalty: float  # of the ridge regression


SHRINKS, WIDTHS, PENALTIES = (0.3, 1.0, 3.0, 10.0, 30.0), (0.0, 0.12, 0.25, 0.5, 1.0), (0.01, 0.03, 0.1, 0.3, 1.0)
GRID = tuple(Choice(*values) for values in product(SHRINKS, WIDTHS, PENALTIES))
PLAIN = Choice(shrink=3.0, width=0.25, penalty=0.1)


class Gaussians(NamedTuple):
    """What all solutions share."""

    mean: Tensor  # of the means of trained labels [d]
    values: Tensor  # eigenvalues of the covariance inside a label [d]
    axes: Tensor  # its eigenvectors [d, d]
    means: Tensor  # of the trained labels, minus `mean`, along the axes [k, d]
    vectors: Tensor  # of the trained labels [k, a]

    @classmethod
    def of(cls, embeddings: Tensor, targets: Tensor, vectors: Tensor) -> "Gaussians":
        """Return what image embeddings ``[n, d]`` with labels ``[n]`` and label vectors ``[k, a]`` say."""
        statistics = embedding_statistics(embeddings, targets, len(vectors))
        here = statistics.counts > 0
        mean = statistics.means[here].mean(0)
        values, axes = torch.linalg.eigh(statistics.within)
        values = values.clamp_min(1e-6 * values.mean().clamp_min(1e-12))
        means = torch.where(here[:, None], statistics.means - mean, 0) @ axes
        return cls(mean, values, axes, means, vectors.double())

    def _variances(self, shrink: float) -> Tensor:
        """Return the shrunk variances along the axes ``[d]``."""
        return self.values + shrink * self.values.mean()

    def _ridge(self, width: float, penalty: float) -> Tensor:
        """Return the inverse ``[k, k]`` by which means are regressed."""
        likeness = kernel(self.vectors, self.vectors, width)
        inverse: Tensor = torch.linalg.inv(likeness + penalty * torch.eye(len(likeness)).to(likeness))
        return inverse

    def scores(self, embeddings: Tensor, vectors: Tensor, grid: tuple[Choice, ...]) -> Iterator[tuple[Choice, Tensor]]:
        """Yield each choice and the scores of embeddings ``[n, d]`` against label vectors ``[m, a]`` under it."""
        rotated, vectors = (embeddings.double() - self.mean) @ self.axes, vectors.double()
        shares = {
            (width, penalty): kernel(vectors, self.vectors, width) @ self._ridge(width, penalty)
            for _, width, penalty in grid
        }
        for shrink in dict.fromkeys(one.shrink for one in grid):
            scaled = self.means / self._variances(shrink)
            near, norms = rotated @ scaled.T, self.means @ scaled.T
            for one in (one for one in grid if one.shrink == shrink):
                share = shares[one.width, one.penalty]
                yield one, torch.addmm(-0.5 * ((share @ norms) * share).sum(1), near, share.T)

    def solve(self, choice: Choice) -> dict[str, Tensor]:
        """Return the buffers of a ``FlowModel``: the invertible linear map of embeddings, and where labels lie.

        Embeddings minus the mean times the weight are latents ``[d, d]``: the semantic part first, then the free part. The
        likeness of a label to the trained ones times ``label_map [k, min(k, d)]`` is its semantic part.
        """
        spread = self._variances(choice.shrink).sqrt()
        ridge = self._ridge(choice.width, choice.penalty)
        left, sizes, right = torch.linalg.svd(ridge @ (self.means / spread), full_matrices=False)
        turn = torch.linalg.qr(right.T, mode="complete")[0]
        turn[:, : len(right)] = right.T
        return {
            "front.weight": (self.axes / spread) @ turn,
            "front.inverse_weight": turn.T @ (self.axes * spread).T,
            "front.mean": self.mean,
            "front.log_det": -spread.log().sum(),
            "label_map": left * sizes,
            "anchors": self.vectors,
            "chosen": torch.tensor(choice, dtype=torch.float64),
        }


def kernel(vectors: Tensor, anchors: Tensor, width: float | Tensor) -> Tensor:
    """Return how alike vectors ``[m, a]`` and anchors ``[k, a]`` are ``[m, k]``; see ``Choice.width``."""
    products = vectors @ anchors.T
    if not width:
        return products
    own = (anchors * anchors).sum(1)
    squares = (vectors * vectors).sum(1)[:, None] + own - 2 * products
    usual = 2 * own.mean() - 2 * anchors.mean(0).square().sum()  # the mean squared distance of two anchors
    return torch.exp(-width * squares.clamp_min(0) / usual.clamp_min(1e-12))
