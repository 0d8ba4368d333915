"""Guess labels from answers: nearest label mean by cosine in a whitened space with one step of self-training, and ridge regression.

The first guess compares images with label means, over answers alone or over labels spread to neighbours. Guesses are then
averaged over neighbours, and means and covariance are computed again from all images, weighted by these guesses. Means serve labels that
form groups and are about equally frequent; regression on the answers serves the others. Scores are the sum of both.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve

from labelwise.label.space import Floats, Ints, Space, whitening
from labelwise.label.spread import Spread
from labelwise.support.rows import unit_rows

RIDGE = 1.0  # of the covariance inside labels, relative to its mean variance
PRIOR = 100.0  # weight of the covariance of neighbours, in answers
GROWTH = 1.3  # factor of new answers after which the covariance is computed again
SHARPNESS = 20.0  # of cosines: of the first guess, and of the last where too few answers say how sure it is
PENALTY = 0.3  # of regression, relative to the mean square of an answer
FAR = -10.0  # cosine of a label without images
SOFT = 0.5  # power of what was spread, as a prior of the guesses


@dataclass(frozen=True, eq=False)
class Answered:
    """Answers that train: images and their labels."""

    rows: Ints
    targets: Ints
    labels: int  # how many labels there are
    batches: Ints  # the number of the action that each came with

    def select(self, mask: np.ndarray) -> "Answered":
        """Return some of the answers."""
        return Answered(self.rows[mask], self.targets[mask], self.labels, self.batches[mask])


class Whitened:
    """All images, whitened by the within-label covariance at some number of answers."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.points: Floats = unit_rows(space.points @ whitening(space.covariance, RIDGE))
        self.answers = 0

    def update(self, soft: Floats, answers: int) -> None:
        """Compute the covariance again."""
        points, weights = self.space.points, soft.sum(1)
        some = weights > 0
        counts = soft[some].sum(0)
        used = int((counts > 0).sum())
        points, part = points[some], soft[some]
        means = part.T @ points / np.maximum(counts, 1e-6)[:, None]
        scatter = (points * weights[some, None]).T @ points - (means * counts[:, None]).T @ means
        degrees = max(float(weights[some].sum()) - used, 0.0)
        inside = (scatter + PRIOR * self.space.covariance) / (degrees + PRIOR)
        self.points = unit_rows(self.space.points @ whitening(inside, RIDGE))
        self.answers = answers


def soft_labels(spread: Floats, answered: Answered) -> Floats:
    """Normalise spread labels to shares ``[n, k]``; answers have 1, and rows out of reach are 0."""
    spread = np.maximum(spread, 0)  # what was subtracted again leaves rounding
    total = spread.sum(1, keepdims=True)
    soft = np.where(total > 1e-4, spread / np.maximum(total, 1e-4), 0).astype(np.float32)
    return _with_answers(soft, answered)


def one_hot(n: int, answered: Answered) -> Floats:
    """Return the answers as soft labels ``[n, k]``."""
    return _with_answers(np.zeros((n, answered.labels), np.float32), answered)


def mean_scores(whitened: Whitened, spread: Spread, answered: Answered, reached: Floats | None) -> Floats:
    """Return cosines of images and label means ``[n, k]``; ``reached`` are spread labels, None to ignore them."""
    first = one_hot(len(whitened.space), answered) if reached is None else soft_labels(reached, answered)
    labels = softmax(cosines(whitened.points, first) * SHARPNESS)
    if reached is not None:
        labels *= first**SOFT
        labels /= np.maximum(labels.sum(1, keepdims=True), 1e-6)
    labels = _with_answers(labels, answered)
    part = _with_answers(np.asarray((labels + spread.step(labels)) / 2, np.float32), answered)
    if len(answered.rows) >= GROWTH * whitened.answers:
        near = spread.values.any(1, keepdims=True)  # at first, far images have labels that nobody has named yet
        whitened.update(part * near, len(answered.rows))
    return cosines(whitened.points, part)


def regression_scores(points: Floats, answered: Answered, asked: Floats) -> Floats:
    """Return for each label the share that ridge regression of the answers predicts for ``asked`` points ``[q, k]``."""
    known = points[answered.rows]
    mean, n = known.mean(0), len(known)
    known = known - mean
    labels = np.zeros((n, answered.labels), np.float32)
    labels[np.arange(n), answered.targets] = 1
    squares = known.T @ known
    squares[np.diag_indices_from(squares)] += max(PENALTY * float(np.trace(squares)) / n, 1e-6)
    slopes = solve(squares, known.T @ (labels - labels.mean(0)), assume_a="pos")
    return np.asarray((asked - mean) @ slopes + labels.mean(0), np.float32)


def cosines(points: Floats, soft: Floats) -> Floats:
    """Return the cosines of unit rows ``[n, d]`` and the means of soft labels ``[n, k]``; empty labels get a low value."""
    counts = soft.sum(0)
    scores = points @ unit_rows(soft.T @ points).T
    scores[:, counts < 1e-3] = FAR
    return np.asarray(scores, np.float32)


def softmax(scores: Floats) -> Floats:
    """Return probabilities ``[n, k]`` of scores."""
    power: Floats = scores - scores.max(1, keepdims=True)
    np.exp(power, out=power)
    power /= power.sum(1, keepdims=True)
    return power


def _with_answers(soft: Floats, answered: Answered) -> Floats:
    soft[answered.rows] = 0
    soft[answered.rows, answered.targets] = 1
    return soft
