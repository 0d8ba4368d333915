"""The engine: label probabilities of all images, updated with each answer."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from labelwise.label.guess import SHARPNESS, Answered, Whitened, mean_scores, regression_scores, softmax
from labelwise.label.ledger import Ledger
from labelwise.label.space import Floats, Ints, Space
from labelwise.label.spread import Spread
from labelwise.support.processes import on_one_thread

FOLDS = 4  # folds of answers for decisions
FIRST, GROWTH = 10, 1.6  # actions at the first decision, and the factor until the next
SHARP = (5.0, 10.0, 15.0, 20.0, 30.0, 45.0)  # candidates, chosen by held-out likelihood
WEIGHTS = (
    0.25,
    0.5,
    0.1,
    1.0,
    0.0,
    2.0,
    4.0,
)  # of regression, compared with means: candidates, the first without answers to decide by
STEP = 0.5  # held-out answers that a candidate must gain for each doubling of the weight
LEAST = 1e-6  # floor of probabilities in likelihoods


@dataclass(frozen=True)
class Rule:
    """How scores of means and of regression become guesses."""

    spreads: bool = True  # whether labels are spread first
    weight: float = WEIGHTS[0]
    sharpness: float = SHARPNESS

    @property
    def cost(self) -> float:
        """Return how far the rule is from the first one, in held-out answers."""
        return STEP * (abs(math.log2((self.weight + 0.05) / (WEIGHTS[0] + 0.05))) + (not self.spreads))


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Scores of answers that were left out, those of means with and without spreading ``[a, k]``."""

    means: Mapping[bool, Floats]
    regression: Floats
    targets: Ints
    rows: Ints

    def scores(self, rule: Rule) -> Floats:
        """Return the scores of a rule."""
        return self.means[rule.spreads] + rule.weight * self.regression


class Engine:
    """Probabilities of all images from the answers in a ledger."""

    def __init__(self, space: Space) -> None:
        self.space, self.spread = space, Spread(space)
        self.whitened = Whitened(space)
        self.rule = Rule()
        self._mass = 1 + np.bincount(
            space.neighbours.ravel(), space.kernel.ravel(), len(space)
        )  # how many images one is like
        nobody = np.empty(0, np.int64)
        self._known = Answered(nobody, nobody, 0, nobody)
        self._decided = 0  # actions as of which it was decided

    @on_one_thread
    def update(self, ledger: Ledger) -> Floats:
        """Return the probability of each label of each image ``[n, k]``, as if checks were unanswered."""
        answered = ledger.answered()
        self._follow(answered)
        actions = len(np.unique(answered.batches))
        if actions >= max(FIRST, GROWTH * self._decided):  # a sheet is one action, however many answers it brings
            self._decide(answered, ledger.checks)
            self._decided = actions
        if not len(answered.rows):
            labels = max(1, answered.labels)
            return np.full((len(self.space), answered.labels), 1 / labels, np.float32)
        chances = softmax(self._scores(answered) * self.rule.sharpness)
        for row, wrong in ledger.excluded.items():
            chances[row, list(wrong)] = 0
        total = chances.sum(1, keepdims=True)
        return np.asarray(np.where(total > 0, chances / np.maximum(total, 1e-12), 1 / max(1, chances.shape[1])))

    def _scores(self, answered: Answered) -> Floats:
        means = mean_scores(self.whitened, self.spread, answered, self.spread.values if self.rule.spreads else None)
        points = self.space.directions
        return means + self.rule.weight * regression_scores(points, answered, points)

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
        """Choose the rule by cross-validation on answers.

        Questions are a biased sample, so an answer is weighted by the number of images it resembles. Checks are unbiased; ten of
        them have the weight of all other answers in the choice of sharpness.
        """
        held = self._hold_out(answered)
        if not len(held.targets):
            return
        weights = np.asarray(self._mass[held.rows], np.float32)

        def right(rule: Rule) -> float:
            hits = held.scores(rule).argmax(1) == held.targets
            return float(np.average(hits, weights=weights)) - rule.cost / len(hits)

        best = max((Rule(*pair) for pair in product((True, False), WEIGHTS)), key=right)
        self.rule, self.whitened.answers = best, 0  # the covariance is computed again
        fair = np.array([(row, target) for row, target in checks.items() if target >= 0], np.int64).reshape(-1, 2)
        logs, seen = held.scores(best), self._scores(answered)[fair[:, 0]]

        def worth(sharp: float) -> float:
            drawn = _likelihood(seen * sharp, fair[:, 1], np.ones(len(fair), np.float32)) if len(fair) else 0.0
            return _likelihood(logs * sharp, held.targets, weights) + drawn * len(fair) / 10

        self.rule = Rule(best.spreads, best.weight, max(SHARP, key=worth))

    def _hold_out(self, answered: Answered) -> HeldOut:
        """Score each answer without those of its fold, for labels that the others have; images of one sheet are alike, and left out together."""
        folds = np.unique(answered.batches, return_inverse=True)[1] % FOLDS
        means: dict[bool, list[Floats]] = {True: [], False: []}
        regression, asked = list[Floats](), list[Answered]()
        for fold in range(FOLDS):
            gone, rest = answered.select(folds == fold), answered.select(folds != fold)
            out = gone.select(np.isin(gone.targets, rest.targets))
            asked.append(out)
            if not len(out.rows):
                continue
            reached = self.spread.values - self.spread.reach(gone.rows, gone.targets, answered.labels)
            for spreads in means:
                whitened = Whitened(self.space)  # a covariance that the answers that are left out had no part in
                means[spreads].append(mean_scores(whitened, self.spread, rest, reached if spreads else None)[out.rows])
            points = self.space.directions
            regression.append(regression_scores(points, rest, points[out.rows]))
        none = np.empty((0, answered.labels), np.float32)
        return HeldOut(
            {spreads: np.concatenate([none, *parts]) for spreads, parts in means.items()},
            np.concatenate([none, *regression]),
            np.concatenate([one.targets for one in asked]),
            np.concatenate([one.rows for one in asked]),
        )


def _columns(pairs: list[tuple[int, int]]) -> tuple[Ints, Ints]:
    both = np.array(pairs, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _likelihood(scores: Floats, targets: Ints, weights: Floats) -> float:
    """Return the mean log likelihood of labels under scores, with probabilities of at least ``LEAST``."""
    power = np.exp(scores - scores.max(1, keepdims=True))
    chances = power[np.arange(len(targets)), targets] / power.sum(1)
    return float(np.average(np.log(np.maximum(chances, LEAST)), weights=weights))
