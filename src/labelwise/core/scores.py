"""Scores: the matrix of scores of images and labels. Every task is a question about it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from labelwise.core.arrays import Array, top_columns
from labelwise.core.calibration import HALF, choose, threshold_row
from labelwise.core.coarser import Tree
from labelwise.images.images import Images

if TYPE_CHECKING:
    from labelwise.core.classifier import Classifier
    from labelwise.images.images import Images

MOST = 2**24  # pairs of image and label computed at a time when only the answers are needed
UNKNOWN, NONE, UNSURE = "unknown", "none", "unsure"  # answers that are not labels


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of n images and k labels, with probabilities and answers, each computed once, on first use.

    >>> scores = classifier.scores(images)
    >>> label, probability = scores.top(2)[0][0]  # the best of the first image
    >>> label in classifier.labels.names and 0 < probability <= 1
    True
    >>> len(scores.top(2)[0])
    2
    """

    classifier: "Classifier"  # the labels and how to score them
    embeddings: Array  # of the images [n, d], float32
    images: "Images | None" = None  # the images, if available; heat maps need them
    cache: dict[str, Array] = field(default_factory=dict)  # given or already computed

    @property
    def raw(self) -> Array:
        """The head's score of each pair ``[n, k]``; larger is better."""
        if "raw" not in self.cache:
            self.cache["raw"] = self.classifier.score(self.embeddings)
        return self.cache["raw"]

    @property
    def distances(self) -> Array | None:
        """The distance of each image from everything the head knows ``[n]``, if the head measures it."""
        if "distances" not in self.cache:
            parts = [part.classifier.distances(part.embeddings) for part in self.parts()]
            some = [part for part in parts if part is not None]
            if not some:
                return None
            self.cache["distances"] = np.concatenate(some)
        return self.cache["distances"]

    @property
    def nearest(self) -> Array | None:
        """The distance of each image from the nearest training image ``[n]``; None if none is remembered."""
        familiarity = self.classifier.familiarity
        if "nearest" not in self.cache:
            if familiarity.memory is None:
                return None
            self.cache["nearest"] = familiarity.cosine_distances(self.embeddings)
        return self.cache["nearest"]

    @cached_property
    def log_odds(self) -> Array:
        """Calibrated scores ``[n, k]``; the largest decides."""
        return self.classifier.calibration.log_odds(self.raw)

    @cached_property
    def best(self) -> Array:
        """The position of the answer ``[n]``: the best label, or the choice by thresholds."""
        if not self.classifier.thresholds:
            return self._by_part(lambda part: part.log_odds.argmax(1))
        limits = threshold_row(self.classifier.thresholds, self.classifier.labels)
        return self._by_part(lambda part: choose(part.reported, limits))

    @cached_property
    def agreed(self) -> Array:
        """The labels answered yes ``[n, k]``, if several may be true."""
        answer: Array = self.yes >= threshold_row(self.classifier.thresholds, self.classifier.labels, HALF)
        return answer

    @cached_property
    def probabilities(self) -> Array:
        """The probability of each label, given that exactly one is right ``[n, k]``."""
        return self.classifier.calibration.choice(self.log_odds)

    @cached_property
    def yes(self) -> Array:
        """The probability of a yes to each label on its own ``[n, k]``."""
        return self.classifier.calibration.yes(self.classifier.yes_odds(self.log_odds))

    @cached_property
    def reported(self) -> Array:
        """The reported probability ``[n, k]``: of each label, or of a yes if several labels may be true."""
        return self.yes if self.classifier.calibration.multilabel else self.probabilities

    @cached_property
    def confidence(self) -> Array:
        """The largest probability of a yes ``[n]``; low if no label fits."""
        return self._by_part(lambda part: part.classifier.calibration.confidence(part.log_odds))

    @cached_property
    def outlier_score(self) -> Array:
        """The outlier score of each image ``[n]``; larger is less familiar."""
        return self.classifier.familiarity.outlier_score(self)

    @cached_property
    def unknown(self) -> Array:
        """Whether each image shows none of the labels ``[n]``."""
        unknown: Array = self.outlier_score > self.classifier.familiarity.limit
        return unknown

    def covering(self, coverage: float) -> Array:
        """The labels needed to include the right one at this rate ``[n, k]``; always with the answer."""
        in_set = self.classifier.promising.covering(self.log_odds, coverage)
        in_set[np.arange(len(self)), self.best] = True
        return in_set

    def coarser(self, max_error: float) -> list[tuple[tuple[str, ...], float]]:
        """Return for each image the label, or its nearest parent that is sure enough, and the probability.

        Each answer is the names from the broadest parent down to it; none where all are too unsure. Of all images like those of
        training, at most the share ``max_error`` gets a wrong answer.
        """
        limit, tree = self.classifier.error_limit(max_error), Tree.of(self.classifier.labels)
        return [answer for part in self.parts() for answer in tree.answers(part.probabilities, limit)]

    def __repr__(self) -> str:
        return f"<Scores of {len(self)} images and {self.classifier.labels!r:.200}>"

    def __len__(self) -> int:
        return len(self.embeddings)

    def __getitem__(self, rows: ArrayLike | slice) -> Self:
        """Return the scores of some images; computed values are reused."""
        index = rows if isinstance(rows, slice) else np.asarray(rows)
        if isinstance(index, np.ndarray) and not index.size:
            index = index.astype(np.int64)
        images = None if self.images is None else self.images.select(np.arange(len(self))[index])
        cache = {name: value[index] for name, value in self.cache.items()}
        return type(self)(self.classifier, self.embeddings[index], images, cache)

    def parts(self) -> Iterator[Self]:
        """Yield the scores in parts of at most ``MOST`` pairs."""
        step = max(1, MOST // max(1, len(self.classifier.labels)))
        if len(self) <= step:
            yield self
            return
        for start in range(0, len(self), step):
            yield self[start : start + step]

    def _by_part(self, answer: Callable[[Self], Array]) -> Array:
        """Return an answer for each image ``[n]``, without holding a large matrix."""
        return answer(self) if "raw" in self.cache else np.concatenate([answer(part) for part in self.parts()])

    def top(self, count: int) -> list[list[tuple[str, float]]]:
        """Return the best labels of each image with the reported figures: the answer first, then by probability."""
        probabilities = self.reported
        if self.classifier.thresholds and not self.classifier.calibration.multilabel:
            probabilities = probabilities.copy()
            np.put_along_axis(probabilities, self.best[:, None], np.inf, 1)
        columns = top_columns(probabilities, min(max(1, count), probabilities.shape[1]))
        values = np.take_along_axis(self.reported, columns, 1)
        names = self.classifier.labels.names
        return [
            [(names[column], value) for column, value in zip(row, probability, strict=True)]
            for row, probability in zip(columns.tolist(), values.tolist(), strict=True)
        ]

    def of(self, classifier: "Classifier") -> Self:
        """Return the scores of the same images by another classifier with the same head, without encoding again."""
        same = (
            classifier.head is self.classifier.head and classifier.label_embeddings is self.classifier.label_embeddings
        )
        cache = self.cache if same else {}
        if classifier.familiarity.memory is not self.classifier.familiarity.memory:
            cache = {name: value for name, value in cache.items() if name != "nearest"}
        return type(self)(classifier, self.embeddings, self.images, cache)
