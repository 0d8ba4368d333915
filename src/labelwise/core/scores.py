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

MOST = (
    2**24
)  # pairs of an image and a label that are computed at a time where only an answer for each image is asked for
UNKNOWN, NONE, UNSURE = "unknown", "none", "unsure"  # answers that are no label


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of n images and k labels, with probabilities and answers; each is computed once, on first use.

    >>> scores = classifier.scores(images)
    >>> label, probability = scores.top(2)[0][0]  # the best of the first image
    >>> label in classifier.labels.names and 0 < probability <= 1
    True
    >>> len(scores.top(2)[0])
    2
    """

    classifier: "Classifier"  # whose labels
    embeddings: Array  # of the images [n, d], float32
    images: "Images | None" = None  # the images themselves, where they are at hand: a heat map needs them
    known: dict[str, Array] = field(default_factory=dict)  # what was given or computed before

    @property
    def raw(self) -> Array:
        """The head's score of each pair ``[n, k]``; larger is better."""
        if "raw" not in self.known:
            self.known["raw"] = self.classifier.score(self.embeddings)
        return self.known["raw"]

    @property
    def distances(self) -> Array | None:
        """How far each image is from all that the head knows ``[n]``, where it measures that by itself."""
        if "distances" not in self.known:
            parts = [part.classifier.distances(part.embeddings) for part in self.parts()]
            some = [part for part in parts if part is not None]
            if not some:
                return None
            self.known["distances"] = np.concatenate(some)
        return self.known["distances"]

    @property
    def nearest(self) -> Array | None:
        """How far each image is from the nearest training image ``[n]``; None where these are not remembered."""
        familiarity = self.classifier.familiarity
        if "nearest" not in self.known:
            if familiarity.memory is None:
                return None
            self.known["nearest"] = familiarity.cosine_distances(self.embeddings)
        return self.known["nearest"]

    @cached_property
    def log_odds(self) -> Array:
        """Calibrated scores ``[n, k]``; the largest decides."""
        return self.classifier.calibration.log_odds(self.raw)

    @cached_property
    def best(self) -> Array:
        """The position of the answer ``[n]``: the label that fits best, or as thresholds say."""
        if not self.classifier.thresholds:
            return self._each(lambda part: part.log_odds.argmax(1))
        limits = threshold_row(self.classifier.thresholds, self.classifier.labels)
        return self._each(lambda part: choose(part.reported, limits))

    @cached_property
    def agreed(self) -> Array:
        """Which labels are answered yes ``[n, k]``, where several may be true."""
        agreed: Array = self.yes >= threshold_row(self.classifier.thresholds, self.classifier.labels, HALF)
        return agreed

    @cached_property
    def probabilities(self) -> Array:
        """How probable each label is, given that exactly one of them is right ``[n, k]``."""
        return self.classifier.calibration.choice(self.log_odds)

    @cached_property
    def yes(self) -> Array:
        """How probable a yes to each label on its own is ``[n, k]``."""
        return self.classifier.calibration.yes(self.classifier.yes_odds(self.log_odds))

    @cached_property
    def reported(self) -> Array:
        """What answers report of each label ``[n, k]``: its probability, or that of a yes where several may be true."""
        return self.yes if self.classifier.calibration.multilabel else self.probabilities

    @cached_property
    def confidence(self) -> Array:
        """The largest probability of a yes ``[n]``; low where no label fits."""
        return self._each(lambda part: part.classifier.calibration.confidence(part.log_odds))

    @cached_property
    def outlier_score(self) -> Array:
        """How little each image fits ``[n]``; larger is less."""
        return self.classifier.familiarity.outlier_score(self)

    @cached_property
    def unknown(self) -> Array:
        """Whether each image is none of the labels ``[n]``."""
        unknown: Array = self.outlier_score > self.classifier.familiarity.limit
        return unknown

    def covering(self, coverage: float) -> Array:
        """Which labels are needed for the right one to be among them at this rate ``[n, k]``; the answer always is."""
        within = self.classifier.promising.covering(self.log_odds, coverage)
        within[np.arange(len(self)), self.best] = True
        return within

    def coarser(self, max_error: float) -> list[tuple[tuple[str, ...], float]]:
        """Return for each image the label, or the nearest parent that is sure enough, and its probability.

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
        """Return the scores of some images; what was computed is reused."""
        index = rows if isinstance(rows, slice) else np.asarray(rows)
        if isinstance(index, np.ndarray) and not index.size:
            index = index.astype(np.int64)
        images = None if self.images is None else self.images.select(np.arange(len(self))[index])
        known = {name: value[index] for name, value in self.known.items()}
        return type(self)(self.classifier, self.embeddings[index], images, known)

    def parts(self) -> Iterator[Self]:
        """Yield the scores of some images at a time, so that at most ``MOST`` pairs are held; of few images, all at once."""
        step = max(1, MOST // max(1, len(self.classifier.labels)))
        if len(self) <= step:
            yield self
            return
        for start in range(0, len(self), step):
            yield self[start : start + step]

    def _each(self, answer: Callable[[Self], Array]) -> Array:
        """Return an answer for each image ``[n]``; the matrix is not held where it is large."""
        return answer(self) if "raw" in self.known else np.concatenate([answer(part) for part in self.parts()])

    def top(self, count: int) -> list[list[tuple[str, float]]]:
        """Return the best labels of each image with the reported figures: the answer first, then others by probability."""
        ranked = self.reported
        if self.classifier.thresholds and not self.classifier.calibration.multilabel:
            ranked = ranked.copy()
            np.put_along_axis(ranked, self.best[:, None], np.inf, 1)
        columns = top_columns(ranked, min(max(1, count), ranked.shape[1]))
        values = np.take_along_axis(self.reported, columns, 1)
        names = self.classifier.labels.names
        return [
            [(names[column], value) for column, value in zip(row, reported, strict=True)]
            for row, reported in zip(columns.tolist(), values.tolist(), strict=True)
        ]

    def of(self, classifier: "Classifier") -> Self:
        """Return the scores of the same images by another classifier with the same head; nothing is encoded again."""
        same = (
            classifier.head is self.classifier.head and classifier.label_embeddings is self.classifier.label_embeddings
        )
        known = self.known if same else {}
        if classifier.familiarity.memory is not self.classifier.familiarity.memory:
            known = {name: value for name, value in known.items() if name != "nearest"}
        return type(self)(classifier, self.embeddings, self.images, known)
