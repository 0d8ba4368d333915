"""What makes raw scores mean something: probabilities of each label, thresholds that a person chose, and when an image is unknown.

Two signs say that an image is unknown. It may get little confidence: no label's yes is probable. Or it may be unfamiliar: its embedding
points away from those of all training images, as with a drawing shown to a model of photographs, where confidence
says nothing. Each sign is measured in standard deviations of known images, and the larger one is the outlier score; or, where rule and
unfamiliarity are those of leave-one-out (``OutlierRule.nearest``), their weighted sum, which tells more strangers: docs/results/everyday.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from labelwise.core.arrays import Array, logit, pieces, sigmoid, softmax
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import UnsupportedError, UsageError
from labelwise.support.rows import append_rows, as_frequent, unit_rows
from labelwise.support.settings import brief

if TYPE_CHECKING:
    from labelwise.core.scores import Scores

Penalty = Literal["offset", "scale"]
HALF = 0.5
FIRST_SHARE, SHARE_ROUNDS = 0.1, 20  # of the images that are of a label, while it is estimated
MEMORY = 5_000  # training embeddings remembered
ROUNDING = 1e-5  # by which single precision may move an outlier score: an image at the limit is known
NEAREST = 3  # the distance to this one of them counts, by nearness
ROWS = 1024  # images compared with them at a time
Sign = Literal["both", "confidence", "familiarity"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """Maps raw scores ``[n, k]`` to log-odds and probabilities.

    ``log_odds = raw * scale + offset`` per label, so that ``sigmoid(log_odds)`` is the probability of a yes, and
    ``softmax(log_odds / temperature)`` that of each label, given that one of them is right.

    >>> two = Calibration(scale=np.array([1.0, 2.0]), offset=np.zeros(2), unseen=np.array([False, False]))
    >>> two.log_odds(np.array([[1.0, 1.0]]))
    array([[1., 2.]])
    """

    scale: Array  # [k]
    offset: Array  # [k]
    unseen: Array  # which labels are known from a description alone [k] (bool); there were images of the others
    # how far seen labels are held back against unseen ones (calibrated stacking); part of scale and offset
    seen_penalty: float = 0.0
    # what is added to raw scores for how frequent each label is [k], its mean over labels 0; part of offset. None: equally frequent
    prior: Array | None = None
    penalty: Penalty = "offset"  # how: taken from raw scores, or, for scores below zero, a multiple of 1 + it
    temperature: float = 1.0  # divides log-odds when labels are compared with each other
    # whether raw scores of one image compete (softmax), so that only their differences carry meaning
    exclusive: bool = False
    # whether several labels may be true of one image, or none; each is then answered on its own
    multilabel: bool = False
    # of images that training left out, how far the right label is below the best other one [m], sorted: the difference of log-odds over the
    # temperature, below 0 where it is the best
    margins: Array | None = None
    # of these images, how probable the first wrong step down the tree of labels is [m], sorted; 0 where the label is right: ``core.coarser``
    mistakes: Array | None = None
    # embeddings of unlabelled images [m, d]: a yes says how much better a label fits an image than it fits these. None: log-odds are those of a yes
    background: Array | None = None
    later: Array | None = None  # which labels came after margins and mistakes were measured [k] (bool); None: none

    __repr__ = brief

    @classmethod
    def none(cls, count: int, *, exclusive: bool, penalty: Penalty) -> Self:
        """Return the calibration of ``count`` seen labels that leaves raw scores unchanged."""
        one, zero = np.ones(count, np.float32), np.zeros(count, np.float32)
        return cls(scale=one, offset=zero, unseen=np.zeros(count, bool), exclusive=exclusive, penalty=penalty)

    def log_odds(self, raw: Array) -> Array:
        """Return log-odds ``[n, k]`` of raw scores ``[n, k]``."""
        log_odds: Array = raw * self.scale + self.offset
        return log_odds

    def choice(self, log_odds: Array) -> Array:
        """Return ``[n, k]``: how probable each label is, given that exactly one of them is right."""
        return softmax(log_odds / self.temperature)

    def yes(self, log_odds: Array) -> Array:
        """Return ``[n, k]``: how probable a yes to "is it this label?" is, each label on its own."""
        return self.choice(log_odds) if self.exclusive else sigmoid(log_odds)

    def confidence(self, log_odds: Array) -> Array:
        """Return ``[n]`` the largest probability of a yes, in double precision; low where no label fits."""
        if self.exclusive:
            largest: Array = self.choice(log_odds.astype(np.float64)).max(1)
            return largest
        return sigmoid(log_odds.max(1).astype(np.float64))

    def covering(self, log_odds: Array, coverage: float) -> Array:
        """Return ``[n, k]`` which labels are so near the best one that the right label is among them at this rate.

        A label is in the set if it is at most q below the best, where q is the ceil((m + 1) coverage)-th smallest of the m
        margins: split conformal prediction (Vovk et al., 2005) with left-out images. Where m is too small for this rate, all labels are.
        """
        largest = max(self._smallest_that_covers(self.margins, coverage, "coverage"), 0.0)
        within: Array = (log_odds.max(1, keepdims=True) - log_odds) / self.temperature <= largest
        return within

    def limit(self, max_error: float) -> float:
        """Return the probability above which answers are wrong for at most this share of images: conformal risk control.

        Angelopoulos et al., "Conformal risk control" (2024). An answer is wrong where the first wrong step down the tree is more probable
        than the limit, and new images find that as often as left-out ones.
        """
        return self._smallest_that_covers(self.mistakes, 1 - max_error, "share of wrong answers")

    def _smallest_that_covers(self, values: Array | None, rate: float, what: str) -> float:
        """Return the ceil((m + 1) rate)-th smallest of m values of left-out images; infinite where there are too few for this rate."""
        if not 0 < rate < 1:
            raise UsageError(f"The {what} must be between 0 and 1; given {rate if what == 'coverage' else 1 - rate:g}.")
        if values is None:
            reason = (
                "several labels may be true of an image" if self.multilabel else "it was not calibrated. Fit it again"
            )
            raise UnsupportedError(f"This classifier cannot promise a {what}: {reason}.")
        place = int(np.ceil((len(values) + 1) * rate - ROUNDING)) - 1
        return float(values[place]) if place < len(values) else float("inf")

    def select(self, rows: list[int]) -> Self:
        """Return the calibration of these labels only, in this order."""
        prior, later = (None if array is None else array[rows] for array in (self.prior, self.later))
        scale, offset, unseen = self.scale[rows], self.offset[rows], self.unseen[rows]
        return replace(self, scale=scale, offset=offset, unseen=unseen, prior=prior, later=later)

    def add(self, *, unseen: bool) -> Self:
        """Return it with one more label, calibrated as the others are on average, apart from the seen penalty and the prior."""
        scale, offset = self.neutral()
        prior = None if self.prior is None else append_rows(self.prior, [0.0])
        before = np.zeros(len(self.unseen), bool) if self.later is None else self.later
        more = replace(self, unseen=append_rows(self.unseen, [unseen]), prior=prior, later=append_rows(before, [True]))
        factor, shift = more.penalties()
        return replace(
            more,
            scale=append_rows(self.scale, [factor[-1] * scale]),
            offset=append_rows(self.offset, [shift[-1] * scale + offset]),
        )

    def penalties(self) -> tuple[Array, Array]:
        """Return the scale and offset ``[k]`` by which the seen penalty and the prior alone change raw scores."""
        penalty = self.seen_penalty * (~self.unseen).astype(self.scale.dtype)
        factor, shift = (1 + penalty, penalty * 0) if self.penalty == "scale" else (penalty * 0 + 1, -penalty)
        return factor, shift if self.prior is None else shift + self.prior.astype(self.scale.dtype)

    def neutral(self) -> tuple[float, float]:
        """Return the scale and offset of a label without the seen penalty and the prior: the mean over the labels."""
        factor, shift = self.penalties()
        scale = self.scale / factor
        return float(scale.mean()), float((self.offset - shift * scale).mean())

    def with_prior(self, prior: Array | None) -> Self:
        """Return it with another prior ``[k]``, in units of raw scores; None: labels are equally frequent."""
        centred = None if prior is None else np.asarray(prior - prior.mean(), self.scale.dtype)
        new, (factor, shift) = replace(self, prior=centred), self.penalties()
        return replace(new, offset=self.offset + (new.penalties()[1] - shift) * self.scale / factor)

    def bare(self) -> Self:
        """Return it without what was fitted: raw scores, though the seen penalty and the prior stay."""
        factor, shift = self.penalties()
        return replace(
            self, scale=factor, offset=shift, temperature=1.0, margins=None, mistakes=None, later=None, background=None
        )

    def fitted(self, scale: float | Array, offset: float | Array, temperature: float) -> Self:
        """Return it with another map of scores, applied after the seen penalty and the prior."""
        factor, shift = self.penalties()
        return replace(self, scale=factor * scale, offset=shift * scale + offset, temperature=temperature)


def usual_odds(log_odds: Array) -> Array:
    """Return the log of the mean odds of each label over those of the images ``[m, k]`` that are not of this label ``[k]``.

    Log-odds that are right up to a constant c of the label are log p(x | label) / p(x | others) + c, and the mean of that ratio over others is 1.
    Which images are others is estimated in turn with c and the share of the label. At first all are, so that a label that hardly occurs
    gets no yes; one more image, of even odds, counts as another, so that few images change little.
    """
    odds, share = log_odds.astype(np.float64), np.full(log_odds.shape[1], FIRST_SHARE)
    top, likely = odds.max(0, initial=0.0), np.zeros(odds.shape)
    for _ in range(SHARE_ROUNDS):
        total = ((1 - likely) * np.exp(odds - top)).sum(0) + np.exp(-top)
        usual = top + np.log(total / ((1 - likely).sum(0) + 1))
        likely = sigmoid(odds - usual + np.log(share / (1 - share)))
        share = np.minimum((likely.sum(0) + HALF) / (len(odds) + 1), HALF)
    return np.asarray(usual, log_odds.dtype)


def check_thresholds(thresholds: Mapping[str, float], labels: Labels) -> dict[str, float]:
    """Return thresholds by label, or raise an error: each is above 0 and at most 1, and its label is known."""
    for name, value in thresholds.items():
        labels.index(name)
        if not 0 < value <= 1:
            raise UsageError(f'A threshold must be above 0 and at most 1; given {value} for "{name}".')
    return {name: float(value) for name, value in thresholds.items()}


def threshold_row(thresholds: Mapping[str, float], labels: Labels, default: float = float("nan")) -> Array:
    """Return the threshold of each label ``[k]``; ``default`` where none was chosen."""
    return np.array([thresholds.get(name, default) for name in labels.names])


def choose(probabilities: Array, thresholds: Array) -> Array:
    """Return the position of the answer ``[n]`` from probabilities ``[n, k]`` and thresholds ``[k]``, NaN if there is none.

    >>> choose(np.array([[0.7, 0.3], [0.9, 0.1]]), np.array([np.nan, 0.25]))
    array([1, 0])
    """
    chosen = ~np.isnan(thresholds)
    share = np.where(chosen, probabilities / np.where(chosen, thresholds, 1), 0)
    others = share if chosen.all() else np.where(chosen, -1.0, probabilities)
    answers: Array = np.where(share.max(1) >= 1, share.argmax(1), others.argmax(1))
    return answers


@dataclass(frozen=True, kw_only=True)
class OutlierRule:
    """When an image is none of the labels, fitted on held-out images of known labels."""

    centre: tuple[float, float]  # the mean of both signs over known images
    spread: tuple[float, float]  # their standard deviation
    limit: float  # an outlier score above this means "unknown"
    # whether unfamiliarity is the distance to the nearest training image, and the outlier score the weighted sum of both signs
    nearest: bool = False
    sign_weights: tuple[float, float] = (1.0, 1.0)  # in that sum


@dataclass(frozen=True, eq=False, kw_only=True)
class Familiarity:
    """What is known of familiar images."""

    # embeddings of training images, of unit length [m, d]; what is far from all of them is unfamiliar
    memory: Array | None = None
    targets: Array | None = None  # the label of each of these [m], -1 where it is not known; None: of none
    rule: OutlierRule | None = None  # when an image is none of the labels; None is not chosen yet
    # how many times the usual squared distance images of each label have, by its examples [k]; None is once, of all
    width: Array | None = None

    __repr__ = brief

    @property
    def limit(self) -> float:
        """The outlier score above which an image is unknown; infinite where none is chosen yet."""
        return float("inf") if self.rule is None else self.rule.limit

    def outlier_score(self, scores: "Scores", sign: Sign = "both") -> Array:
        """Return how little each image fits ``[n]``, larger is less, from both signs or from one of them alone."""
        rule = self.rule or OutlierRule(centre=(0.0, 0.0), spread=(1.0, 1.0), limit=float("inf"))
        columns = zip(self._signs(scores, nearest=rule.nearest), rule.centre, rule.spread, strict=True)
        doubt, distance = ((column - centre) / spread for column, centre, spread in columns)
        if sign == "both" and (self.memory is not None or scores.distances is not None):
            weighed = rule.sign_weights[0] * doubt + rule.sign_weights[1] * distance
            return weighed if rule.nearest else np.maximum(doubt, distance)
        return distance if sign == "familiarity" else doubt

    def fit(
        self,
        scores: "Scores",
        keep: float,
        weights: Array | None = None,
        *,
        nearest: bool = False,
        sign_weights: tuple[float, float] = (1.0, 1.0),
    ) -> Self:
        """Return it with the rule under which the share ``keep`` of these held-out known images, of weights ``[n]``, counts as known."""
        signs = np.stack(self._signs(scores, nearest=nearest), 1)
        centre = np.average(signs, 0, weights)
        spread = np.maximum(np.sqrt(np.average((signs - centre) ** 2, 0, weights)), 1e-6)
        rule = OutlierRule(
            centre=(float(centre[0]), float(centre[1])),
            spread=(float(spread[0]), float(spread[1])),
            limit=0.0,
            nearest=nearest,
            sign_weights=sign_weights,
        )
        score = replace(self, rule=rule).outlier_score(scores)
        limit = np.quantile(score if weights is None else as_frequent(score, weights), keep)
        return replace(self, rule=replace(rule, limit=float(limit) + ROUNDING))

    def remember(self, embeddings: Array, targets: Array | int | None = None) -> Self:
        """Return it with these embeddings ``[n, d]`` among the familiar ones, and their labels, where known: ``[n]``, or one."""
        more = unit_rows(embeddings.astype(np.float32, copy=False))
        memory = more if self.memory is None else append_rows(self.memory, more)
        if targets is None and self.targets is None:
            return replace(self, memory=memory)
        known = np.full(len(memory) - len(more), -1, np.int64) if self.targets is None else self.targets
        labels = np.broadcast_to(np.asarray(-1 if targets is None else targets, np.int64), len(more))
        return replace(self, memory=memory, targets=append_rows(known, labels))

    def without(self, stay: Array) -> Self:
        """Return it with the embeddings that stay ``[m]`` (bool); all, where none would."""
        if self.memory is None or not stay.any():
            return self
        return replace(self, memory=self.memory[stay], targets=None if self.targets is None else self.targets[stay])

    def add(self, count: int, width: float = 1.0) -> Self:
        """Return it with one more label after ``count`` others; ``width`` is how far its images spread."""
        if self.width is None and width == 1:
            return self
        known = np.ones(count, np.float32) if self.width is None else self.width
        return replace(self, width=append_rows(known, [width]))

    def select(self, rows: list[int]) -> Self:
        """Return it for these labels only, in this order."""
        width = None if self.width is None else self.width[rows]
        if self.targets is None:
            return replace(self, width=width)
        places = np.full(max(int(self.targets.max(initial=-1)), *rows) + 2, -1)  # the last one is that of -1
        places[rows] = np.arange(len(rows))
        return replace(self, width=width, targets=places[self.targets])

    def _signs(self, scores: "Scores", *, nearest: bool) -> tuple[Array, Array]:
        """Return lack of confidence, as log-odds, and unfamiliarity, a distance of the model or of cosines: ``[n]`` each."""
        doubt = -logit(scores.confidence, 1e-12)
        far = scores.nearest if nearest else scores.distances
        if far is None:
            return doubt, doubt * 0 if self.memory is None else self.cosine_distances(scores.embeddings, NEAREST)
        far = far.astype(np.float64)
        if self.width is None:
            return doubt, far
        return doubt, far / ((np.arange(len(self.width)) == scores.raw.argmax(1)[:, None]) @ self.width)

    def cosine_distances(self, embeddings: Array, place: int = 1) -> Array:
        """Return how far embeddings ``[n, d]`` are from the training image that is the nearest but ``place - 1`` ``[n]``."""
        assert self.memory is not None
        most, memory = min(place, len(self.memory)), self.memory
        parts = [np.partition(rows @ memory.T, -most, axis=1)[:, -most] for rows in pieces(unit_rows(embeddings), ROWS)]
        distances: Array = 1 - np.concatenate(parts).astype(np.float64)
        return distances
