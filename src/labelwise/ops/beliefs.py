"""A label as a belief about its mean: where it lies, and how wrong that may be. Rows are whitened, see ``ops.discriminant``."""

from dataclasses import dataclass

import torch
from torch import Tensor

PENALTIES = tuple(
    10.0 ** (step / 2) for step in range(-4, 7)
)  # on regression from vectors of labels, of their mean square
PRIOR_LABELS = 100.0  # as many labels as the belief that means spread alike in all directions is worth


@dataclass(frozen=True, eq=False)
class Spread:
    """How means of labels spread around what is expected of them, direction by direction."""

    axes: Tensor  # orthonormal rows [q, d]
    values: Tensor  # variance along each [q]
    other: Tensor  # variance along any other direction, a number
    noise: Tensor  # variance of one picture around the mean of its label along any direction, a number

    @property
    def total(self) -> Tensor:
        """The squared error of what is expected, where there is no example: a number."""
        return self.values.sum() + (self.axes.shape[1] - len(self.axes)) * self.other

    def drawn(self, examples: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return means ``[g, d]`` and their squared errors ``[g]`` from mean examples, as far from what was expected ``[g, d]``.

        A mean of n examples is drawn towards the expected one the more, the less labels spread in a direction and the noisier
        the mean is: B (B + I v / n)^-1. ``weights [g]`` are the n, above 0.
        """
        noise = (self.noise / weights)[:, None]
        share, other = self.values / (self.values + noise), self.other / (self.other + noise)
        means = other * examples + ((share - other) * (examples @ self.axes.T)) @ self.axes
        rest = self.axes.shape[1] - len(self.axes)
        return means, (noise[:, 0] * (share.sum(1) + rest * other[:, 0]))


def label_spread(away: Tensor, weights: Tensor, noise: float) -> Spread:
    """Return how means of k labels spread from how far they are away ``[k, d]`` from what was expected of them.

    Each is a mean of so many pictures ``weights [k]``, whose squared distance from it is ``noise`` on average; that much less is the
    spread of the labels themselves. As k labels say nothing of most directions, a hundred imagined ones spread alike in all of them.
    """
    k, d = away.shape
    values, turns = torch.linalg.eigh(away @ away.T if k < d else away.T @ away)
    axes = (away.T @ turns / values.clamp_min(1e-12).sqrt()).T if k < d else turns.T
    axes = (
        axes * (values > 1e-9 * values[-1].clamp_min(1e-12))[:, None]
    )  # the mean of means has no direction of its own
    each = noise / d
    spread = (values / max(1, k - 1) - each * (1 / weights).mean()).clamp_min(0)
    other = PRIOR_LABELS * spread.sum() / d / (k - 1 + PRIOR_LABELS)
    return Spread(axes, spread * (k - 1) / (k - 1 + PRIOR_LABELS) + other, other, away.new_tensor(each))


def expected_means(vectors: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    """Return how to expect a label's mean from its vector, ``[a, d]``, and what k labels are expected to be without each ``[k, d]``.

    Ridge regression from vectors ``[k, a]`` to means ``[k, d]``, both around zero, in closed form; its penalty makes the error
    for a label that it has not seen least (residual / (1 - h)).
    """
    values, turns = torch.linalg.eigh(vectors @ vectors.T)
    values, turned = values.clamp_min(0), turns.T @ means

    def away(penalty: float) -> Tensor:
        share = values / (values + penalty * values.mean().clamp_min(1e-12))
        hat = (turns.square() * share).sum(1)
        residuals: Tensor = (means - (turns * share) @ turned) / (1 - hat).clamp_min(1e-6)[:, None]
        return residuals

    penalty = min(PENALTIES, key=lambda each: float(away(each).square().sum()))
    weights = vectors.T @ (turns / (values + penalty * values.mean().clamp_min(1e-12))) @ turned
    return weights, means - away(penalty)
