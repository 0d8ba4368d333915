"""The linear flow in closed form: labels as Gaussians whose means follow from their vectors.

Image embeddings of a label scatter around its mean with a covariance that all labels share. The covariance, shrunk towards a
multiple of the identity, whitens embeddings; the means of the trained labels, in whitened space, are regressed on label vectors
by kernel ridge. The predicted mean of any label then lies in a space of few dimensions, the semantic part; what is
orthogonal to it is the free part, where labels do not differ. One eigendecomposition serves every choice of the settings.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from labelwise.ops.linear import embedding_statistics


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The settings of one solution.

    Attributes:
        shrink: how much of the identity is added to the covariance, in units of its mean variance.
        width: how fast the likeness of label vectors falls with their squared distance, in units of its mean over the
            trained labels; 0 is the scalar product.
        penalty: of the ridge regression.
    """

    shrink: float
    width: float
    penalty: float


GRID = tuple(
    Choice(shrink=shrink, width=width, penalty=penalty)
    for shrink, width, penalty in product(
        (0.3, 1.0, 3.0, 10.0, 30.0), (0.0, 0.12, 0.25, 0.5, 1.0), (0.01, 0.03, 0.1, 0.3, 1.0)
    )
)
PLAIN = Choice(shrink=3.0, width=0.25, penalty=0.1)


@dataclass(frozen=True, eq=False)
class Solution:
    """An invertible linear map of image embeddings, and where labels lie.

    Attributes:
        forward: embeddings minus ``mean`` times this are latents ``[d, d]``: the semantic part first, then the free part.
        inverse: of ``forward``.
        mean: ``[d]``.
        log_det: of ``forward``, one number.
        labels: the likeness of a label to the trained ones times this is its semantic part ``[k, min(k, d)]``.
    """

    forward: Tensor
    inverse: Tensor
    mean: Tensor
    log_det: Tensor
    labels: Tensor


@dataclass(frozen=True, eq=False)
class Gaussians:
    """What all solutions share.

    Attributes:
        mean: of the means of trained labels ``[d]``.
        values: eigenvalues of the covariance inside a label ``[d]``.
        axes: its eigenvectors ``[d, d]``.
        means: of the trained labels, minus ``mean``, along the axes ``[k, d]``.
        vectors: of the trained labels ``[k, a]``.
    """

    mean: Tensor
    values: Tensor
    axes: Tensor
    means: Tensor
    vectors: Tensor

    @classmethod
    def of(cls, embeddings: Tensor, targets: Tensor, vectors: Tensor) -> "Gaussians":
        """Return what image embeddings ``[n, d]`` with labels ``[n]`` and label vectors ``[k, a]`` say; in single precision."""
        found = embedding_statistics(embeddings, targets, len(vectors))
        here = found.counts > 0
        mean = found.means[here].mean(0)
        values, axes = torch.linalg.eigh(found.within)
        values = values.clamp_min(1e-6 * values.mean().clamp_min(1e-12))
        means = torch.where(here[:, None], found.means - mean, 0) @ axes
        return cls(mean, values, axes, means, vectors.double())

    def variances(self, shrink: float) -> Tensor:
        """Return the shrunk variances along the axes ``[d]``."""
        return self.values + shrink * self.values.mean()

    def ridge(self, choice: Choice) -> Tensor:
        """Return the inverse ``[k, k]`` by which means are regressed."""
        likeness = kernel(self.vectors, self.vectors, choice.width)
        found: Tensor = torch.linalg.inv(likeness + choice.penalty * torch.eye(len(likeness)).to(likeness))
        return found

    def scores(self, embeddings: Tensor, vectors: Tensor, grid: tuple[Choice, ...]) -> Iterator[tuple[Choice, Tensor]]:
        """Yield each choice and the scores of embeddings ``[n, d]`` against label vectors ``[m, a]`` under it."""
        rotated, vectors = (embeddings.double() - self.mean) @ self.axes, vectors.double()
        regressed = {
            (one.width, one.penalty): kernel(vectors, self.vectors, one.width) @ self.ridge(one) for one in grid
        }
        for shrink in dict.fromkeys(one.shrink for one in grid):
            scaled = self.means / self.variances(shrink)
            near, norms = rotated @ scaled.T, self.means @ scaled.T
            for one in (one for one in grid if one.shrink == shrink):
                share = regressed[one.width, one.penalty]
                yield one, torch.addmm(-0.5 * ((share @ norms) * share).sum(1), near, share.T)

    def solve(self, choice: Choice) -> Solution:
        """Return the solution of one choice."""
        spread = self.variances(choice.shrink).sqrt()
        left, sizes, right = torch.linalg.svd(self.ridge(choice) @ (self.means / spread), full_matrices=False)
        turn = torch.linalg.qr(right.T, mode="complete")[0]
        turn[:, : len(right)] = right.T
        return Solution(
            forward=(self.axes / spread) @ turn,
            inverse=turn.T @ (self.axes * spread).T,
            mean=self.mean,
            log_det=-spread.log().sum(),
            labels=left * sizes,
        )


def kernel(vectors: Tensor, anchors: Tensor, width: float | Tensor) -> Tensor:
    """Return how alike vectors ``[m, a]`` and anchors ``[k, a]`` are ``[m, k]``; see ``Choice.width``."""
    products = vectors @ anchors.T
    if not width:
        return products
    own = (anchors * anchors).sum(1)
    squares = (vectors * vectors).sum(1)[:, None] + own - 2 * products
    usual = 2 * own.mean() - 2 * anchors.mean(0).square().sum()  # the mean squared distance of two anchors
    return torch.exp(-width * squares.clamp_min(0) / usual.clamp_min(1e-12))
