"""Statistics of training embeddings, and new labels solved from them and a few examples in closed form.

Images of new labels are best compared by whitened embeddings: there, the within-label covariance is isotropic.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labelwise.core.arrays import linear_scores
from labelwise.core.saved_parts import shaped
from labelwise.support.rows import segment_mean, unit_rows

Array = npt.NDArray[Any]
TINY = 1e-12


@dataclass(frozen=True, eq=False)
class EmbeddingStatistics:
    """Statistics of training embeddings, with which a label can be added later."""

    means: Array = shaped("k", "d")  # mean embedding of each label
    counts: Array = shaped("k")  # images of each label
    # within-label covariance, each label with the same weight; in multi-label data, the covariance of all embeddings
    within: Array = shaped("d", "d")
    # mean of all embeddings in multi-label data, else None
    background: Array | None = shaped("d", optional=True)

    def in_single(self) -> "EmbeddingStatistics":
        """Return a copy in single precision."""
        parts = (self.means, self.counts, self.within, self.background)
        return EmbeddingStatistics(*(None if part is None else part.astype(np.float32) for part in parts))  # type: ignore[arg-type]


def embedding_statistics(embeddings: Array, targets: Array, k: int) -> EmbeddingStatistics:
    """Return the statistics of image embeddings ``[n, d]`` of k labels, in double precision.

    Targets are label positions ``[n]``, or a multi-label table ``[n, k]`` (bool), where an image counts for each label.
    """
    x = embeddings.astype(np.float64)
    if targets.ndim == 2:
        counts = targets.sum(0).astype(np.float64)
        means = targets.astype(np.float64).T @ x / np.maximum(counts, 1)[:, None]
        residuals = x - x.mean(0)
        return EmbeddingStatistics(means, counts, residuals.T @ residuals / len(x), x.mean(0))
    counts = np.bincount(targets, minlength=k).astype(np.float64)
    means = segment_mean(x, targets, k)
    inside = x - means[targets]
    weight = (1 / (np.maximum(counts, 1) * (counts > 0).sum()))[targets]
    return EmbeddingStatistics(means, counts, (inside * weight[:, None]).T @ inside)


def unit_statistics(embeddings: Array, targets: Array, k: int) -> tuple[Array, Array]:
    """Return the mean ``[d]`` and the within-label covariance ``[d, d]`` of embeddings ``[n, d]`` at unit length.

    Each of the k labels has the same weight.
    """
    unit = embedding_statistics(unit_rows(embeddings), targets, k)
    return unit.means[unit.counts > 0].mean(0).astype(np.float32), unit.within.astype(np.float32)


def whiten(embeddings: Array, mean: Array, covariance: Array, ridge: float = 1.0) -> Array:
    """Whiten embeddings ``[n, d]``: unit length, less the mean, in coordinates where ``covariance`` is the identity.

    The ridge, relative to the mean variance, is added to the covariance. With a large ridge, whitening approaches
    plain centring.
    """
    factor = np.linalg.cholesky(_add_ridge(covariance.astype(np.float64), ridge))
    rows = unit_rows(embeddings) - mean
    whitened: Array = np.linalg.solve(factor.astype(rows.dtype), rows.T).T
    return whitened


def solve_label_embeddings(
    examples: Array, groups: Array, statistics: EmbeddingStatistics, label_embeddings: Array, *, ridge: float = 1.0
) -> Array:
    """Return the embeddings ``[g, d + 1]`` of new labels from their examples, in closed form. Labels are independent.

    The score of a new label is that of the trained label nearest to its examples, plus the difference of their Gaussian
    log-likelihoods. Both share one covariance, so the difference is linear in the image embedding. Sampling error in
    the mean of m examples makes every image look too far away. The expected excess is added back; without it, a label
    taught from few examples would hardly ever win.

    In multi-label data, labels do not compete. The new label is then compared with all training images: again a
    difference of log-likelihoods, scaled to match trained scores.

    ``groups [m]`` is the new label of each example ``[m, d]``, in 0..g-1, none of them empty. ``label_embeddings``
    ``[k, d + 1]`` belong to the trained labels. The ridge, relative to the mean variance, is added to the covariance.
    """
    present = statistics.counts > 0
    means, counts, trained_rows = (
        array[present].astype(np.float64) for array in (statistics.means, statistics.counts, label_embeddings)
    )
    covariance = statistics.within.astype(np.float64)
    precision = np.linalg.inv(_add_ridge(covariance, ridge))
    excess = 0.5 * (precision * covariance).sum()
    likelihoods = _likelihoods(means, precision, excess / counts)
    sizes = np.bincount(groups)
    mean = segment_mean(examples.astype(np.float64), groups, len(sizes))
    new = _likelihoods(mean, precision, excess / sizes)
    if statistics.background is not None:
        points = np.concatenate([means, statistics.background.astype(np.float64)[None]])
        base = _likelihoods(points[-1:], precision, np.zeros(1))[0]
        scores, logs = linear_scores(points, trained_rows), linear_scores(points, likelihoods - base)
        scale = _slope(scores - scores.mean(), logs - logs.mean())
        solution = scale * (new - base)
        solution[:, -1] += scores.mean() - scale * logs.mean()
        level: Array = solution.astype(examples.dtype)
        return level
    nearest = linear_scores(mean, trained_rows).argmax(1)
    tables = (linear_scores(means, table) for table in (trained_rows, likelihoods))
    scale = _slope(*(table - table.mean(1, keepdims=True) for table in tables))
    rows: Array = (trained_rows[nearest] + scale * (new - likelihoods[nearest])).astype(examples.dtype)
    return rows


def _add_ridge(covariance: Array, ridge: float) -> Array:
    """Add a fraction of the mean variance to the diagonal of a covariance ``[d, d]``."""
    return covariance + ridge * max(float(np.trace(covariance)) / len(covariance), TINY) * np.eye(len(covariance))


def _likelihoods(means: Array, precision: Array, excess: Array) -> Array:
    """Return the log-likelihood of an embedding under each mean as a label embedding ``[k, d + 1]``, up to a common term."""
    weights = means @ precision
    bias = -0.5 * (weights * means).sum(1) + excess
    return np.concatenate([weights, bias[:, None]], 1)


def _slope(scores: Array, logs: Array) -> float:
    """Return the least-squares slope of trained scores on log-likelihoods."""
    return float((scores * logs).sum() / max(float((logs * logs).sum()), TINY))
