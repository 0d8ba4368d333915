"""Turn raw scores into answers: probabilities of each label, thresholds, and when an image is unknown.

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
FIRST_SHARE, SHARE_ROUNDS = 0.1, 20  # share of images that show the label: start and rounds of its estimate
MEMORY = 5_000  # training embeddings remembered
ROUNDING = 1e-5  # tolerance for single precision: an image at the limit is known
NEAREST = 3  # rank of the neighbour whose distance counts
ROWS = 1024  # images compared at a time
Sign = Literal["both", "confidence", "familiarity"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """Map raw scores ``[n, k]`` to log-odds and probabilities.

    ``log_odds = raw * scale + offset`` per label, so that ``sigmoid(log_odds)`` is the probability of a yes, and
    ``softmax(log_odds / temperature)`` that of each label, given that one of them is right.

    >>> two = Calibration(scale=np.array([1.0, 2.0]), offset=np.zeros(2), unseen=np.array([False, False]))
    >>> two.log_odds(np.array([[1.0, 1.0]]))
    array([[1., 2.]])
    """

    scale: Array  # [k]
    offset: Array  # [k]
    unseen: Array  # labels without training images, known from a description [k] (bool)
    # penalty of seen labels against unseen ones (calibrated stacking); part of scale and offset
    seen_penalty: float = 0.0
    # log prior of each label in units of raw scores, with mean 0 [k]; part of offset. None: uniform
    prior: Array | None = None
    penalty: Penalty = "offset"  # subtract it, or, for scores below zero, multiply by 1 + it
    temperature: float = 1.0  # divides log-odds when labels are compared
    # scores of one image compete (softmax): only their differences carry meaning
    exclusive: bool = False
    # several labels, or none, may be true of an image; each is answered on its own
    multilabel: bool = False
    # for held-out images, how far the right label is behind the best other one [m], sorted: difference of log-odds over the temperature,
    # negative if the right label is the best
    margins: Array | None = None
    # for held-out images, the probability of the first wrong step down the label tree [m], sorted; 0 if the label is right: ``core.coarser``
    mistakes: Array | None = None
    # embeddings of unlabelled images [m, d]: a yes compares the odds of an image with theirs. None: log-odds are those of a yes
    background: Array | None = None
    later: Array | None = None  # labels added after margins and mistakes were measured [k] (bool); None: none

    __repr__ = brief

    @classmethod
    def none(cls, count: int, *, exclusive: bool, penalty: Penalty) -> Self:
        """Return the calibration of ``count`` seen labels that leaves raw scores unchanged."""
        ones, zeros = np.ones(count, np.float32), np.zeros(count, np.float32)
        return cls(scale=ones, offset=zeros, unseen=np.zeros(count, bool), exclusive=exclusive, penalty=penalty)

    def log_odds(self, raw: Array) -> Array:
        """Return log-odds ``[n, k]`` of raw scores ``[n, k]``."""
        log_odds: Array = raw * self.scale + self.offset
        return log_odds

    def choice(self, log_odds: Array) -> Array:
        """Return ``[n, k]``: the probability of each label, given that exactly one is right."""
        return softmax(log_odds / self.temperature)

    def yes(self, log_odds: Array) -> Array:
        """Return ``[n, k]``: the probability of a yes to "is it this label?", each label on its own."""
        return self.choice(log_odds) if self.exclusive else sigmoid(log_odds)

    def confidence(self, log_odds: Array) -> Array:
        """Return the largest probability of a yes ``[n]``, in double precision; low if no label fits."""
        if self.exclusive:
            largest: Array = self.choice(log_odds.astype(np.float64)).max(1)
            return largest
        return sigmoid(log_odds.max(1).astype(np.float64))

    def covering(self, log_odds: Array, coverage: float) -> Array:
        """Return ``[n, k]``: the labels close enough to the best one to include the right label at this rate.

        A label is in the set if it is at most q below the best, where q is the ceil((m + 1) coverage)-th smallest of the m
        margins: split conformal prediction (Vovk et al., 2005) with left-out images. Where m is too small for this rate, all labels are.
        """
        largest = max(self._smallest_that_covers(self.margins, coverage, "coverage"), 0.0)
        in_set: Array = (log_odds.max(1, keepdims=True) - log_odds) / self.temperature <= largest
        return in_set

    def limit(self, max_error: float) -> float:
        """Return the probability above which at most this share of images is answered wrongly (conformal risk control).

        Angelopoulos et al., "Conformal risk control" (2024). An answer is wrong where the first wrong step down the tree is more probable
        than the limit, and new images find that as often as left-out ones.
        """
        return self._smallest_that_covers(self.mistakes, 1 - max_error, "share of wrong answers")

    def _smallest_that_covers(self, values: Array | None, rate: float, kind: str) -> float:
        """Return the ceil((m + 1) rate)-th smallest of m held-out values; infinite if there are too few for this rate."""
        if not 0 < rate < 1:
            raise UsageError(f"The {kind} must be between 0 and 1; given {rate if kind == 'coverage' else 1 - rate:g}.")
        if values is None:
            reason = (
                "several labels may be true of an image" if self.multilabel else "it was not calibrated. Fit it again"
            )
            raise UnsupportedError(f"This classifier cannot promise a {kind}: {reason}.")
        place = int(np.ceil((len(values) + 1) * rate - ROUNDING)) - 1
        return float(values[place]) if place < len(values) else float("inf")

    def select(self, rows: list[int]) -> Self:
        """Return the calibration of these labels, in this order."""
        prior, later = (None if array is None else array[rows] for array in (self.prior, self.later))
        scale, offset, unseen = self.scale[rows], self.offset[rows], self.unseen[rows]
        return replace(self, scale=scale, offset=offset, unseen=unseen, prior=prior, later=later)

    def add(self, *, unseen: bool) -> Self:
        """Return a copy with one more label, with the mean calibration of the others plus its seen penalty and prior."""
        scale, offset = self.neutral()
        prior = None if self.prior is None else append_rows(self.prior, [0.0])
        before = np.zeros(len(self.unseen), bool) if self.later is None else self.later
        extended = replace(
            self, unseen=append_rows(self.unseen, [unseen]), prior=prior, later=append_rows(before, [True])
        )
        factor, shift = extended.penalties()
        return replace(
            extended,
            scale=append_rows(self.scale, [factor[-1] * scale]),
            offset=append_rows(self.offset, [shift[-1] * scale + offset]),
        )

    def penalties(self) -> tuple[Array, Array]:
        """Return the scale and offset ``[k]`` of the seen penalty and the prior alone."""
        penalty = self.seen_penalty * (~self.unseen).astype(self.scale.dtype)
        factor, shift = (1 + penalty, penalty * 0) if self.penalty == "scale" else (penalty * 0 + 1, -penalty)
        return factor, shift if self.prior is None else shift + self.prior.astype(self.scale.dtype)

    def neutral(self) -> tuple[float, float]:
        """Return the mean scale and offset of the labels, without the seen penalty and the prior."""
        factor, shift = self.penalties()
        scale = self.scale / factor
        return float(scale.mean()), float((self.offset - shift * scale).mean())

    def with_prior(self, prior: Array | None) -> Self:
        """Return a copy with another prior ``[k]``, in units of raw scores; None: uniform."""
        centred_prior = None if prior is None else np.asarray(prior - prior.mean(), self.scale.dtype)
        new, (factor, shift) = replace(self, prior=centred_prior), self.penalties()
        return replace(new, offset=self.offset + (new.penalties()[1] - shift) * self.scale / factor)

    def bare(self) -> Self:
        """Return a copy without the fitted map; the seen penalty and the prior stay."""
        factor, shift = self.penalties()
        return replace(
            self, scale=factor, offset=shift, temperature=1.0, margins=None, mistakes=None, later=None, background=None
        )

    def refit(self, scale: float | Array, offset: float | Array, temperature: float) -> Self:
        """Return a copy with another map of scores, applied after the seen penalty and the prior."""
        factor, shift = self.penalties()
        return replace(self, scale=factor * scale, offset=shift * scale + offset, temperature=temperature)


def usual_odds(log_odds: Array) -> Array:
    """Return the log of the mean odds of each label ``[k]`` over background images ``[m, k]`` that do not show it.

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
    """Return thresholds by label, or raise an error if one is outside (0, 1] or its label is unknown."""
    for name, value in thresholds.items():
        labels.index(name)
        if not 0 < value <= 1:
            raise UsageError(f'A threshold must be above 0 and at most 1; given {value} for "{name}".')
    return {name: float(value) for name, value in thresholds.items()}


def threshold_row(thresholds: Mapping[str, float], labels: Labels, default: float = float("nan")) -> Array:
    """Return the threshold of each label ``[k]``, or ``default``."""
    return np.array([thresholds.get(name, default) for name in labels.names])


def choose(probabilities: Array, thresholds: Array) -> Array:
    """Return the position of the answer ``[n]`` from probabilities ``[n, k]`` and thresholds ``[k]``, NaN if there is none.

    >>> choose(np.array([[0.7, 0.3], [0.9, 0.1]]), np.array([np.nan, 0.25]))
    array([1, 0])
    """
    has_threshold = ~np.isnan(thresholds)
    share = np.where(has_threshold, probabilities / np.where(has_threshold, thresholds, 1), 0)
    fallback = share if has_threshold.all() else np.where(has_threshold, -1.0, probabilities)
    answers: Array = np.where(share.max(1) >= 1, share.argmax(1), fallback.argmax(1))
    return answers


@dataclass(frozen=True, kw_only=True)
class OutlierRule:
    """When an image shows none of the labels, fitted on held-out images of known labels."""

    centre: tuple[float, float]  # mean of both signs over known images
    spread: tuple[float, float]  # their standard deviation
    limit: float  # an outlier score above this means "unknown"
    # use the distance to the nearest training image, and add the weighted signs
    nearest: bool = False
    sign_weights: tuple[float, float] = (1.0, 1.0)  # weights in that sum


@dataclass(frozen=True, eq=False, kw_only=True)
class Familiarity:
    """Training images in memory, and the rule that calls an image unknown."""

    # embeddings of training images, unit length [m, d]; images far from all of them are unfamiliar
    memory: Array | None = None
    targets: Array | None = None  # label of each of these [m], -1 if unknown; None: all unknown
    rule: OutlierRule | None = None  # when an image shows none of the labels; None: not fitted
    # squared distances of each label's images, relative to the usual [k]; None: 1 for all
    width: Array | None = None

    __repr__ = brief

    @property
    def limit(self) -> float:
        """The outlier score above which an image is unknown; infinite without a rule."""
        return float("inf") if self.rule is None else self.rule.limit

    def outlier_score(self, scores: "Scores", sign: Sign = "both") -> Array:
        """Return the outlier score of each image ``[n]``, from both signs or from one of them."""
        rule = self.rule or OutlierRule(centre=(0.0, 0.0), spread=(1.0, 1.0), limit=float("inf"))
        columns = zip(self._signs(scores, nearest=rule.nearest), rule.centre, rule.spread, strict=True)
        doubt, distance = ((column - centre) / deviation for column, centre, deviation in columns)
        if sign == "both" and (self.memory is not None or scores.distances is not None):
            weighted_sum = rule.sign_weights[0] * doubt + rule.sign_weights[1] * distance
            return weighted_sum if rule.nearest else np.maximum(doubt, distance)
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
        """Return a copy with the rule under which the share ``keep`` of these held-out known images, of weights ``[n]``, counts as known."""
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
        """Return a copy that also remembers these embeddings ``[n, d]`` and their labels, if known: ``[n]``, or one."""
        new_rows = unit_rows(embeddings.astype(np.float32, copy=False))
        memory = new_rows if self.memory is None else append_rows(self.memory, new_rows)
        if targets is None and self.targets is None:
            return replace(self, memory=memory)
        old_targets = np.full(len(memory) - len(new_rows), -1, np.int64) if self.targets is None else self.targets
        labels = np.broadcast_to(np.asarray(-1 if targets is None else targets, np.int64), len(new_rows))
        return replace(self, memory=memory, targets=append_rows(old_targets, labels))

    def keep(self, stay: Array) -> Self:
        """Return a copy that remembers the selected embeddings ``[m]`` (bool), or all if none is selected."""
        if self.memory is None or not stay.any():
            return self
        return replace(self, memory=self.memory[stay], targets=None if self.targets is None else self.targets[stay])

    def add(self, count: int, width: float = 1.0) -> Self:
        """Return a copy with one more label after ``count`` others; ``width`` is the spread of its images."""
        if self.width is None and width == 1:
            return self
        old_width = np.ones(count, np.float32) if self.width is None else self.width
        return replace(self, width=append_rows(old_width, [width]))

    def select(self, rows: list[int]) -> Self:
        """Return a copy for these labels, in this order."""
        width = None if self.width is None else self.width[rows]
        if self.targets is None:
            return replace(self, width=width)
        places = np.full(max(int(self.targets.max(initial=-1)), *rows) + 2, -1)  # index -1 is the last entry
        places[rows] = np.arange(len(rows))
        return replace(self, width=width, targets=places[self.targets])

    def _signs(self, scores: "Scores", *, nearest: bool) -> tuple[Array, Array]:
        """Return both signs ``[n]``: lack of confidence as log-odds, and distance, measured by the model or by cosines."""
        doubt = -logit(scores.confidence, 1e-12)
        far = scores.nearest if nearest else scores.distances
        if far is None:
            return doubt, doubt * 0 if self.memory is None else self.cosine_distances(scores.embeddings, NEAREST)
        far = far.astype(np.float64)
        if self.width is None:
            return doubt, far
        return doubt, far / ((np.arange(len(self.width)) == scores.raw.argmax(1)[:, None]) @ self.width)

    def cosine_distances(self, embeddings: Array, place: int = 1) -> Array:
        """Return the distance of embeddings ``[n, d]`` to their ``place``-th nearest training image ``[n]``."""
        assert self.memory is not None
        most, memory = min(place, len(self.memory)), self.memory
        parts = [np.partition(rows @ memory.T, -most, axis=1)[:, -most] for rows in pieces(unit_rows(embeddings), ROWS)]
        distances: Array = 1 - np.concatenate(parts).astype(np.float64)
        return distances
