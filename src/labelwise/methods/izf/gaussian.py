"""The linear flow in closed form: Gaussian labels whose means are estimated from label vectors and images.

Image embeddings of a label scatter around its mean with a covariance that all labels share. The covariance, shrunk towards a
multiple of the identity, whitens embeddings; the means of the trained labels, in whitened space, are regressed on label vectors
by kernel ridge. So the mean of any label is known by its vector, up to an error that is measured by leaving each trained label out of the
regression, in closed form. The same error serves three times: images scatter around a predicted mean by a share of it more, a label
without images has a share of it taken off its squared distances, the more, the less is known of vectors like its own, and a trained
label keeps a share of what its images say against its vector.

All of it is in a space of few dimensions, the semantic part; what is orthogonal to it is the free part, where labels do
not differ. One eigendecomposition serves every choice of the settings.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from labelwise.methods.izf.head import TAKEN_OFF, LabelMap
from labelwise.methods.shared.linear import array
from labelwise.methods.shared.statistics import embedding_statistics

# Shares of the squared error of a predicted mean, chosen on labels held out of CUB and Flowers. They estimate the part of it in the span of the
# other means, where alone it can change an answer: docs/results/izf.md.
SPREAD_SHARE = 0.3  # by which embeddings scatter more around it


class GaussianSettings(NamedTuple):
    """The settings of one solution."""

    shrink: float  # how much of the identity is added to the covariance, in units of its mean variance
    # how fast the likeness of label vectors falls with their squared distance, in units of its mean over the trained
    # labels; 0 is the scalar product
    width: float
    penalty: float  # of the ridge regression
    own: float = 0.0  # the share of the difference between a trained label's images and its vector to keep
    # label vectors are raised to it, with their sign; what is solved takes them unchanged, here and below
    vector_power: float = 1.0
    flat: float = 0.125  # how much less directions weigh that many label vectors share, see `flattening.flatten`


SHRINKS, WIDTHS, PENALTIES = (1.0, 3.0, 10.0, 30.0), (0.0, 0.25, 0.5), (0.03, 0.1, 0.3)
OWN, POWERS, FLAT = (0.0, 0.5, 0.75), (1.0, 0.7), (0.0, 0.125, 0.25)
GRID = tuple(GaussianSettings(*values) for values in product(SHRINKS, WIDTHS, PENALTIES, OWN, POWERS, FLAT))
PLAIN = GaussianSettings(shrink=3.0, width=0.25, penalty=0.1, own=0.5)


class Regression(NamedTuple):
    """Kernel ridge regression from the vectors of k trained labels to any quantity known for them."""

    inverse: Tensor  # [k, k]: the likeness of a label to the trained ones times this is its share in each
    shares: Tensor  # of trained labels in each other [k, k]
    missed: Tensor  # times the known values: the error for each left-out label [k, k]

    @classmethod
    def of(cls, vectors: Tensor, width: float, penalty: float) -> "Regression":
        """Return the regression on vectors ``[k, a]``."""
        likeness, unit = kernel(vectors, vectors, width), torch.eye(len(vectors)).to(vectors)
        inverse = torch.linalg.inv(likeness + penalty * unit)
        shares = likeness @ inverse
        return cls(inverse, shares, (unit - shares) / (1 - shares.diagonal()).clamp_min(1e-6)[:, None])

    def doubt(self, penalty: float, norms: Tensor) -> Tensor:
        """Return the squared error of a predicted mean: a constant, and a slope per unit of ``variances``.

        Both are fitted to trained labels that are left out; ``norms [k, k]`` are scalar products of their means.
        """
        errors = ((self.missed @ norms) * self.missed).sum(1)
        held_out = 1 / self.inverse.diagonal() - penalty
        centred = held_out - held_out.mean()
        slope = ((centred @ errors) / centred.square().sum().clamp_min(1e-12)).clamp_min(0)
        return torch.stack([errors.mean() - slope * held_out.mean(), slope])


class Gaussians(NamedTuple):
    """What all solutions share."""

    mean: Tensor  # of the means of trained labels [d]
    values: Tensor  # eigenvalues of the covariance inside a label [d]
    axes: Tensor  # its eigenvectors [d, d]
    means: Tensor  # of the trained labels, minus `mean`, along the axes [k, d]
    vectors: Tensor  # of the trained labels [k, a]

    @classmethod
    def of(cls, embeddings: Tensor, targets: Tensor, vectors: Tensor) -> "Gaussians":
        """Return the statistics of image embeddings ``[n, d]`` with labels ``[n]`` and label vectors ``[k, a]``."""
        statistics = embedding_statistics(embeddings.cpu().numpy(), targets.cpu().numpy(), len(vectors))
        parts = (statistics.counts, statistics.means, statistics.within)
        counts, means, covariance = (torch.from_numpy(part).to(vectors.device) for part in parts)
        present = counts > 0
        mean = means[present].mean(0)
        values, axes = torch.linalg.eigh(covariance)
        values = values.clamp_min(1e-6 * values.mean().clamp_min(1e-12))
        means = torch.where(present[:, None], means - mean, 0) @ axes
        return cls(mean, values, axes, means, vectors.double())

    def _variances(self, shrink: float) -> Tensor:
        """Return the shrunk variances along the axes ``[d]``."""
        return self.values + shrink * self.values.mean()

    def scores(
        self, embeddings: Tensor, vectors: Tensor, grid: tuple[GaussianSettings, ...]
    ) -> Iterator[tuple[GaussianSettings, Tensor]]:
        """Yield each choice and the scores of embeddings ``[n, d]`` against label vectors ``[m, a]`` under it.

        The first of the labels are the trained ones.
        """
        rotated_images, vectors = (embeddings.double() - self.mean) @ self.axes, vectors.double()
        k = len(self.vectors)
        pairs = dict.fromkeys(one[1:3] for one in grid)
        regressions = [(Regression.of(self.vectors, *pair), kernel(vectors, self.vectors, pair[0])) for pair in pairs]
        for shrink in dict.fromkeys(one.shrink for one in grid):
            scaled_means = self.means / self._variances(shrink)
            products = rotated_images @ scaled_means.T, self.means @ scaled_means.T
            for pair, (regression, likeness) in zip(pairs, regressions, strict=True):
                doubt = regression.doubt(pair[1], products[1])
                near, norms = (_less_sure(each, products[1], regression.missed) for each in products)
                shares = likeness @ regression.inverse
                penalties = TAKEN_OFF * errors(doubt, variances(vectors, likeness, regression.inverse, pair[0]))
                penalties[:k] = 0
                for one in (one for one in grid if one.shrink == shrink and one[1:3] == pair):
                    share = shares.clone()
                    share[:k] += one.own * (torch.eye(k).to(share) - shares[:k])
                    yield one, torch.addmm(0.5 * (penalties - ((share @ norms) * share).sum(1)), near, share.T)

    def solve(self, choice: GaussianSettings) -> tuple[dict[str, Tensor], LabelMap]:
        """Return the invertible linear map of embeddings, the buffers of a ``Front``, and the means of labels.

        Embeddings minus the mean times the weight are latents ``[d, d]``: the semantic part first, then the free part.
        """
        deviations = self._variances(choice.shrink).sqrt()
        regression = Regression.of(self.vectors, choice.width, choice.penalty)
        whitened = self.means / deviations
        left, sizes, right = torch.linalg.svd(regression.inverse @ whitened, full_matrices=False)
        turn = torch.linalg.qr(right.T, mode="complete")[0]
        turn[:, : len(right)] = right.T
        held_out = regression.missed @ whitened @ right.T
        values, axes = torch.linalg.eigh(held_out.T @ held_out * (SPREAD_SHARE / len(held_out)))
        wider = (1 + values.clamp_min(0)).sqrt()
        q, narrow = len(right), (axes / wider) @ axes.T
        weight, inverse = (self.axes / deviations) @ turn, turn.T @ (self.axes * deviations).T
        weight[:, :q], inverse[:q] = weight[:, :q] @ narrow, (axes * wider) @ axes.T @ inverse[:q]
        log_det = -deviations.log().sum() - wider.log().sum()
        labels = {
            "anchors": self.vectors,
            "weights": (left * sizes) @ narrow,
            "own": choice.own * (whitened - regression.shares @ whitened) @ right.T @ narrow,
            "likeness_inverse": regression.inverse,
            "doubt": regression.doubt(choice.penalty, whitened @ whitened.T),
        }
        arrays: dict[str, Any] = {name: array(tensor.float()) for name, tensor in labels.items()}
        front = {"weight": weight, "inverse_weight": inverse, "mean": self.mean, "log_det": log_det}
        return front, LabelMap(**arrays, kernel_width=choice.width)


def _less_sure(products: Tensor, norms: Tensor, missed: Tensor) -> Tensor:
    """Return scalar products with means of trained labels ``[n, k]`` where embeddings scatter more around predicted means.

    That is by a covariance of ``SPREAD_SHARE`` of the errors of means left out, ``missed [k, k]`` times the means, whose own products
    are ``norms [k, k]``. By Woodbury's formula.
    """
    correction = missed @ norms
    wider = len(norms) / SPREAD_SHARE * torch.eye(len(norms)).to(norms) + correction @ missed.T
    shrunken: Tensor = products - products @ missed.T @ torch.linalg.solve(wider, correction)
    return shrunken


def variances(vectors: Tensor, likeness: Tensor, inverse: Tensor, width: float | Tensor) -> Tensor:
    """Return the predictive variance ``[m]`` of vectors, given their kernel with the trained ones ``[m, k]``."""
    self_similarity = vectors.square().sum(1) if not width else torch.ones_like(likeness[:, 0])
    return (self_similarity - ((likeness @ inverse) * likeness).sum(1)).clamp_min(0)


def errors(doubt: Tensor, variance: Tensor) -> Tensor:
    """Return the squared errors ``[m]`` that are expected of predicted means; see ``Regression.doubt``."""
    return (doubt[0] + doubt[1] * variance).clamp_min(0)


def kernel(vectors: Tensor, anchors: Tensor, width: float | Tensor) -> Tensor:
    """Return the similarities ``[m, k]`` of vectors ``[m, a]`` and anchors ``[k, a]``; see ``Choice.width``."""
    products = vectors @ anchors.T
    if not width:
        return products
    own = (anchors * anchors).sum(1)
    squares = (vectors * vectors).sum(1)[:, None] + own - 2 * products
    usual = 2 * own.mean() - 2 * anchors.mean(0).square().sum()  # the mean squared distance of two anchors
    return torch.exp(-width * squares.clamp_min(0) / usual.clamp_min(1e-12))
