"""The engine: label probabilities of all images, updated with each answer."""

from collections.abc import Mapping

import numpy as np

from labelwise.label.guess import SHARPNESS, Answered, Whitened, guess
from labelwise.label.ledger import Ledger
from labelwise.label.space import Floats, Ints, Space
from labelwise.label.spread import Spread
from labelwise.support.processes import on_one_thread

FOLDS = 4  # folds of answers for the decision about spreading
LEAST_ACTIONS = 8
FIRST, GROWTH = 20, 1.6  # answers at the first decision, and the factor until the next
SHARP = (5.0, 10.0, 15.0, 20.0, 30.0, 45.0)  # candidates, chosen by held-out likelihood
LEAST = 1e-6  # floor of probabilities in likelihoods


class Engine:
    """Probabilities of all images from the answers in a ledger."""

    def __init__(self, space: Space) -> None:
        self.space, self.spread = space, Spread(space)
        self.whitened = Whitened(space)
        self.pays, self.sharpness = True, SHARPNESS  # whether spreading does, and how sharp probabilities are
        self._mass = 1 + np.bincount(
            space.neighbours.ravel(), space.kernel.ravel(), len(space)
        )  # how many images one is like
        nobody = np.empty(0, np.int64)
        self._known = Answered(nobody, nobody, 0, nobody)
        self._decided = 0  # answers as of which it was decided

    @on_one_thread
    def update(self, ledger: Ledger) -> Floats:
        """Return the probability of each label of each image ``[n, k]``, as if checks were unanswered."""
        answered = ledger.answered()
        self._follow(answered)
        actions = len(np.unique(answered.batches))
        if actions >= LEAST_ACTIONS and len(answered.rows) >= max(FIRST, GROWTH * self._decided):
            self._decide(answered, ledger.checks)
        if not len(answered.rows):
            labels = max(1, answered.labels)
            return np.full((len(self.space), answered.labels), 1 / labels, np.float32)
        chances = self._guess(answered, self.spread.values, pays=self.pays)
        for row, wrong in ledger.excluded.items():
            chances[row, list(wrong)] = 0
        total = chances.sum(1, keepdims=True)
        return np.asarray(np.where(total > 0, chances / np.maximum(total, 1e-12), 1 / max(1, chances.shape[1])))

    def _guess(self, answered: Answered, spread: Floats, *, pays: bool) -> Floats:
        return guess(self.whitened, self.spread, answered, spread if pays else None, self.sharpness)

    def _follow(self, answered: Answered) -> None:
        """Update spread labels: add new answers, subtract removed ones."""
        before = dict(zip(self._known.rows.tolist(), self._known.targets.tolist(), strict=True))
        now = dict(zip(answered.rows.tolist(), answered.targets.tolist(), strict=True))
        if answered.labels < self._known.labels:  # a label went: places of labels have moved
            self.spread, before = Spread(self.space), {}
            self.whitened.answers = 0  # the covariance is computed again
        self.spread.widen(answered.labels)
        gone = [(row, target) for row, target in before.items() if now.get(row) != target]
        new = [(row, target) for row, target in now.items() if before.get(row) != target]
        for pairs, sign in ((gone, -1.0), (new, 1.0)):
            self.spread.add(*_columns(pairs), sign)
        self._known = answered

    def _decide(self, answered: Answered, checks: Mapping[int, int]) -> None:
        """Decide by cross-validation on answers whether to spread, and the sharpness of probabilities.

        Questions are a biased sample, so an answer is weighted by the number of images it resembles. Checks are unbiased; ten of
        them have the weight of all other answers.
        """
        self._decided = len(answered.rows)
        folds = (
            np.unique(answered.batches, return_inverse=True)[1] % FOLDS
        )  # images of one sheet are alike, and left out together
        found = {
            pays: [self._left_out(answered, folds == fold, pays=pays) for fold in range(FOLDS)]
            for pays in (True, False)
        }
        scores, targets = (
            {pays: np.concatenate([one[i] for one in parts]) for pays, parts in found.items()} for i in (0, 1)
        )
        if not len(targets[True]):
            return
        weights = np.concatenate([self._mass[one[2]] for one in found[True]])
        right = {pays: float(np.average(scores[pays].argmax(1) == targets[pays], weights=weights)) for pays in found}
        self.pays = right[True] + 1 / len(targets[True]) >= right[False]
        logs, known = np.asarray(scores[self.pays], np.float32), targets[self.pays]
        fair = np.array([(row, target) for row, target in checks.items() if target >= 0], np.int64).reshape(-1, 2)
        seen = _logs(self._guess(answered, self.spread.values, pays=self.pays)[fair[:, 0]])

        def worth(sharp: float) -> float:
            factor = sharp / self.sharpness
            drawn = _likelihood(seen * factor, fair[:, 1], np.ones(len(fair), np.float32)) if len(fair) else 0.0
            return _likelihood(logs * factor, known, weights) + drawn * len(fair) / 10

        self.sharpness = max(SHARP, key=worth)
        self.whitened.answers = 0  # the covariance is computed again

    def _left_out(self, answered: Answered, left: np.ndarray, *, pays: bool) -> tuple[Floats, Ints, Ints]:
        """Predict held-out answers from the others; return log probabilities, labels and rows, for labels that the others have."""
        rest = answered.select(~left)
        out = answered.select(left & np.isin(answered.targets, rest.targets))
        gone = answered.select(left)
        spread = (
            self.spread.values - self.spread.reach(gone.rows, gone.targets, answered.labels)
            if pays
            else self.spread.values
        )
        whitened = Whitened(self.space)  # a covariance that the answers that are left out had no part in
        chances = guess(whitened, self.spread, rest, spread if pays else None, self.sharpness)
        return _logs(chances[out.rows]), out.targets, out.rows


def _columns(pairs: list[tuple[int, int]]) -> tuple[Ints, Ints]:
    both = np.array(pairs, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _logs(chances: Floats) -> Floats:
    return np.asarray(np.log(np.maximum(chances, 1e-30)), np.float32)


def _likelihood(scores: Floats, targets: Ints, weights: Floats) -> float:
    """Return the mean log likelihood of labels under scores, with probabilities of at least ``LEAST``."""
    power = np.exp(scores - scores.max(1, keepdims=True))
    chances = power[np.arange(len(targets)), targets] / power.sum(1)
    return float(np.average(np.log(np.maximum(chances, LEAST)), weights=weights))
