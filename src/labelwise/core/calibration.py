"""How raw scores become log-odds and probabilities, label by label; thresholds that a person chose; pairs to calibrate on."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelwise.core.arrays import Array, sigmoid, softmax
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import UsageError
from labelwise.support.rows import Draws, append_rows
from labelwise.support.settings import brief

Penalty = Literal["offset", "scale"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """What makes raw scores ``[n, k]`` mean something.

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

    def select(self, rows: list[int]) -> Self:
        """Return the calibration of these labels only, in this order."""
        prior = None if self.prior is None else self.prior[rows]
        return replace(self, scale=self.scale[rows], offset=self.offset[rows], unseen=self.unseen[rows], prior=prior)

    def add(self, *, unseen: bool) -> Self:
        """Return it with one more label, calibrated as the others are on average, apart from the seen penalty and the prior."""
        scale, offset = self.neutral()
        prior = None if self.prior is None else append_rows(self.prior, [0.0])
        more = replace(self, unseen=append_rows(self.unseen, [unseen]), prior=prior)
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
        return replace(self, scale=factor, offset=shift, temperature=1.0)

    def fitted(self, scale: float | Array, offset: float | Array, temperature: float) -> Self:
        """Return it with another map of scores, applied after the seen penalty and the prior."""
        factor, shift = self.penalties()
        return replace(self, scale=factor * scale, offset=shift * scale + offset, temperature=temperature)


HALF = 0.5


def check_thresholds(thresholds: Mapping[str, float], labels: Labels) -> dict[str, float]:
    """Return thresholds by label, or raise an error: each is above 0 and at most 1, and its label is known."""
    for name, value in thresholds.items():
        labels.index(name)
        if not 0 < value <= 1:
            raise UsageError(f'A threshold is a probability, above 0 and at most 1; given {value} for "{name}".')
    return {name: float(value) for name, value in thresholds.items()}


def threshold_row(thresholds: Mapping[str, float], labels: Labels, default: float = float("nan")) -> Array:
    """Return the threshold of each label ``[k]``; ``default`` where none was chosen."""
    return np.array([thresholds.get(name, default) for name in labels.names])


def choose(probabilities: Array, thresholds: Array) -> Array:
    """Return the position of the answer ``[n]`` from probabilities ``[n, k]`` and thresholds ``[k]``, NaN where there is none.

    >>> choose(np.array([[0.7, 0.3], [0.9, 0.1]]), np.array([np.nan, 0.25]))
    array([1, 0])
    """
    chosen = ~np.isnan(thresholds)
    share = np.where(chosen, probabilities / np.where(chosen, thresholds, 1), 0)
    others = share if chosen.all() else np.where(chosen, -1.0, probabilities)
    answers: Array = np.where(share.max(1) >= 1, share.argmax(1), others.argmax(1))
    return answers


class Pairs(NamedTuple):
    """Rows of two images of one label ``[p, 2]``, and of different labels ``[q, 2]``; no image is paired with itself."""

    same: NDArray[Any]
    different: NDArray[Any]


def draw_pairs(targets: ArrayLike, most: int, seed: int = 0) -> Pairs:
    """Return all pairs of each kind, each once, or ``most`` of them drawn evenly (with replacement) where there are more.

    From the label of each image ``[n]``; images without one (-1) are in no pair.
    """
    every = np.asarray(targets)
    rows = np.flatnonzero(every >= 0)
    rows = rows[every[rows].argsort(kind="stable")]
    # Sorted by label, row i makes same pairs with those up to the end of its label, different ones with all after.
    sizes = np.unique(every[rows], return_counts=True)[1]
    end = sizes.cumsum().repeat(sizes)
    after = np.arange(1, len(rows) + 1)
    draws = Draws(seed)
    same = _draw(end - after, after, most, draws)
    return Pairs(rows[same], rows[_draw(len(rows) - end, end, most, draws)])


def _draw(counts: NDArray[Any], starts: NDArray[Any], most: int, draws: Draws) -> NDArray[Any]:
    """Return pairs ``[p, 2]``: row i has ``counts[i]`` partners, which are consecutive from ``starts[i]``."""
    ends = counts.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    if not total:
        return np.empty((0, 2), np.int64)
    numbers = np.arange(total) if total <= most else draws.integers(total, most)
    first = np.searchsorted(ends, numbers, side="right")
    return np.stack([first, starts[first] + numbers - (ends - counts)[first]], 1)
