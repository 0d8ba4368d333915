"""Familiarity: when an image is none of the labels.

Two signs count. An image may get little confidence: no label's yes is probable. Or it may be unfamiliar: its embedding
points away from those of all training images, as with a drawing shown to a model of photographs, where confidence
says nothing. Each sign is measured in standard deviations of known images, and the larger one is the outlier score; or, where rule and
unfamiliarity are those of leave-one-out (``OutlierRule.nearest``), their sum, which tells more strangers: docs/results/everyday.md.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from labelwise.core.arrays import Array, logit, pieces, unit_rows
from labelwise.support.rows import append_rows
from labelwise.support.settings import brief

if TYPE_CHECKING:
    from labelwise.core.scores import Scores

MEMORY = 5_000  # training embeddings remembered
ROUNDING = 1e-5  # by which single precision may move an outlier score: an image at the limit is known
NEAREST = 3  # the distance to this one of them counts, by nearness
ROWS = 1024  # images compared with them at a time
Sign = Literal["both", "confidence", "familiarity"]


@dataclass(frozen=True, kw_only=True)
class OutlierRule:
    """When an image is none of the labels, fitted on held-out images of known labels."""

    centre: tuple[float, float]  # the mean of both signs over known images
    spread: tuple[float, float]  # their standard deviation
    limit: float  # an outlier score above this means "unknown"
    # whether unfamiliarity is the distance to the nearest training image, and the outlier score the sum of both signs
    nearest: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Familiarity:
    """What is known of familiar images."""

    # embeddings of training images, of unit length [m, d]; what is far from all of them is unfamiliar
    memory: Array | None = None
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
            return doubt + distance if rule.nearest else np.maximum(doubt, distance)
        return distance if sign == "familiarity" else doubt

    def fit(self, scores: "Scores", keep: float, *, nearest: bool = False) -> Self:
        """Return it with the rule under which the share ``keep`` of these held-out known images counts as known."""
        doubt, distance = self._signs(scores, nearest=nearest)
        rule = OutlierRule(
            centre=(float(doubt.mean()), float(distance.mean())),
            spread=(max(float(doubt.std()), 1e-6), max(float(distance.std()), 1e-6)),
            limit=0.0,
            nearest=nearest,
        )
        outlier_score = replace(self, rule=rule).outlier_score(scores)
        return replace(self, rule=replace(rule, limit=float(np.quantile(outlier_score, keep)) + ROUNDING))

    def remember(self, embeddings: Array) -> Self:
        """Return it with these embeddings ``[n, d]`` among the familiar ones."""
        more = unit_rows(embeddings.astype(np.float32, copy=False))
        return replace(self, memory=more if self.memory is None else append_rows(self.memory, more))

    def add(self, count: int, width: float = 1.0) -> Self:
        """Return it with one more label after ``count`` others; ``width`` is how far its images spread."""
        if self.width is None and width == 1:
            return self
        known = np.ones(count, np.float32) if self.width is None else self.width
        return replace(self, width=append_rows(known, [width]))

    def select(self, rows: list[int]) -> Self:
        """Return it for these labels only, in this order."""
        return self if self.width is None else replace(self, width=self.width[rows])

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
