"""What each image is, guessed from answers: discriminant analysis in closed form, with a covariance that all labels share.

Means and covariance are those of all images, each weighed by how much of a label the answers spread to it ("soft" labels), and of the
answers alone where spreading does not pay. Two passes suffice: the second one takes the guesses of the first as soft labels.
"""

from dataclasses import dataclass

import numpy as np

from labelwise.label.space import Floats, Ints, Space, whitening

RIDGE = 0.3  # of the covariance inside labels, relative to its mean variance
PRIOR = 100.0  # answers that the covariance of neighbours counts for beside them
GROWTH = 1.3  # the covariance is computed again where there are so many times more answers
SHARPNESS = 0.4  # of squared distances where too few answers say how sure guesses are; they are no independent numbers
SOFT = 0.5  # power of what was spread, as a prior of the guesses
PASSES = 2


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
    """All images whitened by the covariance inside labels, as of some number of answers."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.points: Floats = space.points @ whitening(space.covariance, RIDGE)
        self.answers, self.spread = 0, False

    def update(self, soft: Floats, answers: int, *, spread: bool) -> None:
        """Compute the covariance again where many answers came since it was computed."""
        if answers < GROWTH * self.answers and spread == self.spread:
            return
        points, weights = self.space.points, soft.sum(1)
        some = weights > 0
        counts = soft[some].sum(0)
        used = int((counts > 0).sum())
        points, part = points[some], soft[some]
        means = part.T @ points / np.maximum(counts, 1e-6)[:, None]
        scatter = (points * weights[some, None]).T @ points - (means * counts[:, None]).T @ means
        degrees = max(float(weights[some].sum()) - used, 0.0)
        inside = (scatter + PRIOR * self.space.covariance) / (degrees + PRIOR)
        self.points = self.space.points @ whitening(inside, RIDGE)
        self.answers, self.spread = answers, spread


def soft_labels(spread: Floats, answered: Answered) -> Floats:
    """Return the share of each label that reached each image ``[n, k]``, that of an answer 1; rows out of reach are 0."""
    spread = np.maximum(spread, 0)  # what was subtracted again leaves rounding
    total = spread.sum(1, keepdims=True)
    soft = np.where(total > 1e-4, spread / np.maximum(total, 1e-4), 0).astype(np.float32)
    return _with_answers(soft, answered)


def one_hot(n: int, answered: Answered) -> Floats:
    """Return the answers as soft labels ``[n, k]``."""
    return _with_answers(np.zeros((n, answered.labels), np.float32), answered)


def guess(whitened: Whitened, soft: Floats, answered: Answered, sharpness: float, *, spread: bool) -> Floats:
    """Return how probable each label is of each image ``[n, k]``."""
    labels, part = soft, soft
    for step in range(PASSES if spread else 1):
        if step:
            part = labels * soft**SOFT
            part = _with_answers(part / np.maximum(part.sum(1, keepdims=True), 1e-6), answered)
        labels = softmax(log_scores(whitened.points, part) * sharpness)
    return labels


def log_scores(points: Floats, soft: Floats) -> Floats:
    """Return minus half the squared distance of points ``[n, d]`` to the means of soft labels ``[n, k]``; labels without images are far."""
    counts = soft.sum(0)
    means = soft.T @ points / np.maximum(counts, 1e-6)[:, None]
    scores = points @ means.T - 0.5 * (means**2).sum(1)
    scores[:, counts < 1e-3] = -1e9
    return np.asarray(scores, np.float32)


def softmax(scores: Floats) -> Floats:
    """Return probabilities ``[n, k]`` of scores."""
    power = np.exp(scores - scores.max(1, keepdims=True))
    return np.asarray(power / power.sum(1, keepdims=True), np.float32)


def _with_answers(soft: Floats, answered: Answered) -> Floats:
    soft[answered.rows] = 0
    soft[answered.rows, answered.targets] = 1
    return soft
