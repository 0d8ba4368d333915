"""A head that generates features of labels without images, with a softmax over real and generated ones, in NumPy."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from labelwise.core.arrays import linear_scores
from labelwise.core.saved_parts import shaped
from labelwise.images.describe.labels import Labels
from labelwise.methods.shared.head import ZeroShotHead
from labelwise.support.rows import Draws, mix

Array = npt.NDArray[Any]
STEPS = 40  # of the fit of a softmax layer
MEMORY = 10  # steps remembered to estimate the curvature


@dataclass(frozen=True, eq=False, kw_only=True)
class GeneratedHead(ZeroShotHead):
    """A linear softmax over labels, fitted to real features of the trained ones and to generated features of all others.

    It is fitted to the labels asked about and the trained ones together, each label weighing the same. A label that is
    added later is fitted against the trained ones, and the others do not change.
    """

    fitted_together: ClassVar[bool] = True
    allows_new_labels: ClassVar[bool] = True

    rows: Array = shaped("k", "d+1")  # the layer of the trained labels alone
    real: Array = shaped("m", "z")  # some features of the images of trained labels
    real_targets: Array = shaped("m", dtype="i")  # their labels
    penalty_of_layer: float  # on the squared weights, in units of the mean squared length of embeddings
    generated: int  # generated features of each label without images

    @property
    def exclusive(self) -> bool:
        """Scores of one image compete."""
        return True

    @abstractmethod
    def generate(self, labels: Labels, count: int, seed: int) -> Array:
        """Return features ``[k, count, f]`` generated from the labels' descriptions."""

    def latents(self, features: Array) -> Array:
        """Return image embeddings ``[n, d]`` from centred features ``[n, z]``."""
        return features

    def embed(self, features: Array) -> Array:
        """Return image embeddings ``[n, d]``."""
        return self.latents(self.comparable(features))

    def embed_labels(self, labels: Labels) -> Array:
        """Return the weights and biases ``[k, d + 1]`` of the softmax layer."""
        if set(labels.names) <= set(self.labels.names):
            return self.rows[self.trained_rows(labels)]
        *_, (_, rows) = self.layers(labels, (self.penalty_of_layer,))
        return rows

    def layers(self, labels: Labels, penalties: tuple[float, ...]) -> Iterator[tuple[float, Array]]:
        """Yield each penalty and the embeddings of labels ``[k, d + 1]`` under it."""
        new_names = sorted(set(labels.names) - set(self.labels.names))
        row_of = {name: row for row, name in enumerate((*self.labels.names, *new_names))}
        features, targets = self.real.astype(np.float32), self.real_targets
        if new_names:
            generated = self.generate(labels.select(new_names), self.generated, 0)
            features = np.concatenate([features, generated.reshape(-1, generated.shape[2])])
            targets_made = np.repeat(np.arange(len(new_names)) + len(self.labels), self.generated)
            targets = np.concatenate([targets, targets_made])
        for penalty, rows in softmax_layers(self.latents(features), targets, len(row_of), penalties):
            yield penalty, rows[[row_of[name] for name in labels.names]]


def softmax_layers(
    embeddings: Array, targets: Array, k: int, penalties: tuple[float, ...]
) -> Iterator[tuple[float, Array]]:
    """Yield each penalty, and the weights and biases ``[k, d + 1]`` of the softmax layer under it; each starts from the one before.

    From embeddings ``[n, d]`` with labels ``[n]``; penalties are in units of the mean squared length of embeddings.
    """
    unit = float((embeddings**2).sum(1).mean()) if len(embeddings) else 1.0
    rows = np.zeros((k, embeddings.shape[1] + 1), np.float32)
    for penalty in penalties:
        rows = fit_softmax(embeddings, targets, rows, penalty * unit)
        yield penalty, rows


def fit_softmax(features: Array, targets: Array, start: Array, penalty: float, steps: int = STEPS) -> Array:
    """Return weights and biases ``[k, d + 1]`` of a softmax over labels, each weighing the same, by L-BFGS from ``start``.

    ``penalty`` times half the squared weights is added to the mean loss of features ``[n, d]`` with labels ``[n]``.
    """
    counts = np.bincount(targets, minlength=len(start))
    weight = (1 / (counts[targets] * (counts > 0).sum())).astype(np.float32)
    k, d = len(start), features.shape[1]
    here = np.arange(len(targets))

    def loss(flat: Array) -> tuple[float, Array]:
        rows = flat.reshape(k, d + 1).astype(np.float32)
        scores = linear_scores(features, rows)
        scores -= scores.max(1, keepdims=True)
        shares = np.exp(scores)
        sums = shares.sum(1, keepdims=True)
        wrong = np.log(sums[:, 0]) - scores[here, targets]
        slope = shares / sums * weight[:, None]
        slope[here, targets] -= weight
        weights = rows[:, :-1]
        gradient = np.concatenate([slope.T @ features + penalty * weights, slope.sum(0)[:, None]], 1)
        value = float((weight * wrong).sum()) + penalty / 2 * float((weights**2).sum())
        return value, gradient.astype(np.float64).ravel()

    options = {"maxiter": steps, "maxcor": MEMORY}
    best = minimize(loss, start.astype(np.float64).ravel(), jac=True, method="L-BFGS-B", options=options).x
    rows: Array = best.reshape(k, d + 1).astype(np.float32)
    return rows


def noise(labels: Labels, shape: tuple[int, ...], seed: int) -> Array:
    """Return standard normal numbers ``[k, *shape]`` that depend on the name of each label and the seed alone."""
    return np.stack([Draws(mix(seed, *name.encode())).normal(*shape) for name in labels.names])
