"""The linear flow in closed form: labels as Gaussians whose means are believed by their vectors and their images.

Image embeddings of a label scatter around its mean with a covariance that all labels share. The covariance, shrunk towards a
multiple of the identity, whitens embeddings; the means of the trained labels, in whitened space, are regressed on label vectors
by kernel ridge. So the mean of any label is known by its vector, up to an error that is measured by leaving each trained label out of the
regression, in closed form. A predicted mean lies in the span of the trained ones. What the mean of a label has outside of the span of all others adds the
same to an image's distance to each of them, and decides nothing; the error inside the span decides, and the whole of it is taken off squared distances to a
label without images: the more, the less is known of vectors like its own, and less what trained labels are off by themselves.

All of it lies in a space of few dimensions, the semantic part; what is orthogonal to it is the free part, where labels do
not differ. One eigendecomposition serves every choice of the settings.
"""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.ops.linear import embedding_statistics


class Choice(NamedTuple):
    """The settings of one solution."""

    shrink: float  # how much of the identity is added to the covariance, in units of its mean variance
    # how fast the likeness of label vectors falls with their squared distance, in units of its mean over the trained
    # labels; 0 is the scalar product
    width: float
    penalty: float  # of the ridge regression
    own: float = 0.0  # the share of what a trained label's images say against its vector that it keeps
    # label vectors are raised to it, with their sign; what is solved takes them as they are, here and below
    vector_power: float = 1.0
    flat: float = 0.125  # how much less directions weigh that many label vectors share, see `centring.Flattening`


SHRINKS, WIDTHS, PENALTIES = (1.0, 3.0, 10.0, 30.0), (0.0, 0.25, 0.5), (0.03, 0.1, 0.3)
OWN, POWERS, FLAT = (0.0, 0.5, 0.75), (1.0, 0.7), (0.0, 0.125, 0.25)
GRID = tuple(Choice(*values) for values in product(SHRINKS, WIDTHS, PENALTIES, OWN, POWERS, FLAT))
PLAIN = Choice(shrink=3.0, width=0.25, penalty=0.1, own=0.5)


class Regression(NamedTuple):
    """Kernel ridge regression from the vectors of k trained labels to anything that is known of them."""

    inverse: Tensor  # [k, k]: the likeness of a label to the trained ones times this is its share in each
    shares: Tensor  # of trained labels in each other [k, k]
    missed: Tensor  # times what is known: what it is off by where a label is left out [k, k]
    unknown: Tensor  # the ``variances`` of labels left out [k]

    @classmethod
    def of(cls, vectors: Tensor, width: float, penalty: float) -> "Regression":
        """Return the regression on vectors ``[k, a]``.

        A label that is left out is seen as one without images is: what its vector has and no other is dropped, see `centring.Flattening`.
        """
        likeness, unit = kernel(vectors, vectors, width), torch.eye(len(vectors)).to(vectors)
        inverse = torch.linalg.inv(likeness + penalty * unit)
        rest = vectors - alone(vectors @ vectors.T) @ vectors
        rest = normalize(rest, dim=1, eps=1e-6) * vectors.norm(dim=1, keepdim=True)
        near = kernel(rest, vectors, width).fill_diagonal_(0)
        shares = near @ inverse
        shares = shares - (shares.diagonal() / inverse.diagonal())[:, None] * inverse
        unknown = _norms(rest, width) - (shares * near).sum(1)
        return cls(inverse, likeness @ inverse, unit - shares, unknown.clamp_min(0))

    def surplus(self, products: Tensor, own: float) -> Tensor:
        """Return by how much squared distances to predicted means are too large: for every label, and for each unit of ``variances``.

        ``products [k, k]`` are scalar products of the trained means. Errors inside the span of the other means count: those of labels left out,
        compared with those that trained labels have, which keep a share ``own`` of what their images say.
        """
        apart, stay = alone(products), (1 - own) * (torch.eye(len(products)).to(products) - self.shares)
        inside = (off - off.diagonal()[:, None] * apart for off in (self.missed, stay))
        left, kept = (((off @ products) * off).sum(1) for off in inside)
        away = self.unknown - self.unknown.mean()
        slope = ((away @ left) / away.square().sum().clamp_min(1e-12)).clamp_min(0)
        return torch.stack([left.mean() - kept.mean() - slope * self.unknown.mean(), slope])


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

    def scores(self, embeddings: Tensor, vectors: Tensor, grid: tuple[Choice, ...]) -> Iterator[tuple[Choice, Tensor]]:
        """Yield each choice and the scores of embeddings ``[n, d]`` against label vectors ``[m, a]`` under it.

        The first of the labels are the trained ones.
        """
        rotated, vectors = (embeddings.double() - self.mean) @ self.axes, vectors.double()
        k = len(self.vectors)
        regressions = {
            one[1:3]: (Regression.of(self.vectors, *one[1:3]), kernel(vectors, self.vectors, one.width)) for one in grid
        }
        for shrink in dict.fromkeys(one.shrink for one in grid):
            scaled = self.means / self._variances(shrink)
            near, norms = rotated @ scaled.T, self.means @ scaled.T
            for pair in dict.fromkeys(one[1:3] for one in grid):
                regression, likeness = regressions[pair]
                shares = likeness @ regression.inverse
                variance = variances(vectors, likeness, regression.inverse, pair[0])
                for one in (one for one in grid if one.shrink == shrink and one[1:3] == pair):
                    share = shares.clone()
                    share[:k] += one.own * (torch.eye(k).to(share) - shares[:k])
                    taken = taken_off(regression.surplus(norms, one.own), variance)
                    taken[:k] = 0
                    yield one, torch.addmm(0.5 * (taken - ((share @ norms) * share).sum(1)), near, share.T)

    def solve(self, choice: Choice) -> dict[str, Tensor]:
        """Return the buffers of a ``FlowModel``: the invertible linear map of embeddings, and where labels lie.

        Embeddings minus the mean times the weight are latents ``[d, d]``: the semantic part first, then the free part. The
        likeness of a label to the trained ones times ``label_map [k, min(k, d)]`` is its semantic part.
        """
        spread = self._variances(choice.shrink).sqrt()
        regression = Regression.of(self.vectors, choice.width, choice.penalty)
        whitened = self.means / spread
        left, sizes, right = torch.linalg.svd(regression.inverse @ whitened, full_matrices=False)
        turn = torch.linalg.qr(right.T, mode="complete")[0]
        turn[:, : len(right)] = right.T
        return {
            "front.weight": (self.axes / spread) @ turn,
            "front.inverse_weight": turn.T @ (self.axes * spread).T,
            "front.mean": self.mean,
            "front.log_det": -spread.log().sum(),
            "label_map": left * sizes,
            "own": choice.own * (whitened - regression.shares @ whitened) @ right.T,
            "likeness_inverse": regression.inverse,
            "surplus": regression.surplus(whitened @ whitened.T, choice.own),
            "anchors": self.vectors,
            "chosen": torch.tensor(choice[:3], dtype=torch.float64),
        }


def alone(products: Tensor) -> Tensor:
    """Return what each of k points has that no affine combination of the others has, times the points ``[k, k]``.

    ``products [k, k]`` are their scalar products. Where points are more than their dimensions, that is next to nothing.
    """
    usual = products.diagonal().mean().clamp_min(1e-12)
    inverse = torch.linalg.inv(products + usual * (1 + 1e-6 * torch.eye(len(products)).to(products)))
    shares: Tensor = inverse / inverse.diagonal()[:, None]
    return shares


def variances(vectors: Tensor, likeness: Tensor, inverse: Tensor, width: float | Tensor) -> Tensor:
    """Return how little is known of vectors like these ``[m, a]`` by their likeness to the trained ones ``[m, k]``: numbers ``[m]``."""
    return (_norms(vectors, width) - ((likeness @ inverse) * likeness).sum(1)).clamp_min(0)


def _norms(vectors: Tensor, width: float | Tensor) -> Tensor:
    """Return how alike vectors ``[m, a]`` are to themselves ``[m]``."""
    return vectors.square().sum(1) if not width else torch.ones_like(vectors[:, 0])


def taken_off(surplus: Tensor, variance: Tensor) -> Tensor:
    """Return what is taken off squared distances to predicted means ``[m]``; see ``Regression.surplus``."""
    return (surplus[0] + surplus[1] * variance).clamp_min(0)


def kernel(vectors: Tensor, anchors: Tensor, width: float | Tensor) -> Tensor:
    """Return how alike vectors ``[m, a]`` and anchors ``[k, a]`` are ``[m, k]``; see ``Choice.width``."""
    products = vectors @ anchors.T
    if not width:
        return products
    own = (anchors * anchors).sum(1)
    squares = (vectors * vectors).sum(1)[:, None] + own - 2 * products
    usual = 2 * own.mean() - 2 * anchors.mean(0).square().sum()  # the mean squared distance of two anchors
    return torch.exp(-width * squares.clamp_min(0) / usual.clamp_min(1e-12))
