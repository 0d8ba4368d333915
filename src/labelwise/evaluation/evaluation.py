"""Scores and targets of test images, the input of every protocol."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelwise.core.classifier import Classifier
from labelwise.core.scores import Scores
from labelwise.images.as_images import as_images
from labelwise.images.dataset import Split
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import DataError, listing
from labelwise.support.settings import brief


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation:
    """The scores of test images and the truth. Images are encoded once for all protocols."""

    scores: Scores
    split: Split  # the images as the model takes them, with their targets
    labels: Labels  # what these targets point into
    leaks: NDArray[np.bool_]  # which images the classifier was trained or calibrated on [n]
    outliers: Scores | None = None  # of images of none of the labels
    left_out: bool = False  # whether they are training images, each answered as if it had not been there

    __repr__ = brief

    @classmethod
    def of(
        cls, classifier: Classifier, split: Split, labels: Labels | None = None, leaks: NDArray[np.bool_] | None = None
    ) -> Self:
        """Encode the images of a split; without ``labels``, its targets point into those of the classifier."""
        scores = Scores(classifier, classifier.encode(split.images), split.images)
        leaks = leaked_rows(classifier, split.images) if leaks is None else leaks
        return cls(scores=scores, split=split, labels=labels or classifier.labels, leaks=leaks)

    @property
    def classifier(self) -> Classifier:
        """Whose scores they are."""
        return self.scores.classifier

    @property
    def multilabel(self) -> bool:
        """Whether several labels may be true of one image."""
        return self.split.multilabel

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, rows: ArrayLike) -> Self:
        """Return the same of some images."""
        index = np.asarray(rows)
        return replace(self, scores=self.scores[index], split=self.split.select(index), leaks=self.leaks[index])

    @property
    def leaked(self) -> float:
        """The share of measured images that the classifier was trained or calibrated on."""
        measured = self.leaks if self.multilabel else self.leaks[np.asarray(self.split.labelled)]
        return float(measured.mean()) if len(measured) else 0.0

    @cached_property
    def targets(self) -> NDArray[Any]:
        """The targets among the classifier's labels, see ``align_targets``."""
        return align_targets(self.classifier, self.split, self.labels)

    def labelled(self) -> tuple[Scores, NDArray[np.int64]]:
        """Return the scores of the images with a label, and its position among the classifier's ``[n]``."""
        if self.multilabel:
            raise DataError("Several labels may be true of these images. Measure them with evaluate_multilabel.")
        rows = np.flatnonzero(self.targets >= 0)
        if not len(rows):
            raise DataError("There is no labelled test image to evaluate on.")
        return self.scores if len(rows) == len(self) else self.scores[rows], self.targets[rows]

    def own_labelled(self) -> Self:
        """Return the evaluation of the labelled images, also those whose label the classifier does not know."""
        if self.multilabel:
            raise DataError("Several labels may be true of these images, so pairs are neither same nor different.")
        rows = np.flatnonzero(np.asarray(self.split.labelled))
        return self if len(rows) == len(self) else self[rows]

    def asked(self) -> tuple[Scores, NDArray[np.bool_]]:
        """Return the scores of the labels that classifier and data both know, and which of them are true ``[n, k]``."""
        classifier, truths = asked_truths(self.classifier, self.split, self.labels)
        same = classifier.labels.names == self.classifier.labels.names
        return self.scores if same else self.scores.of(classifier), truths


def leaked_rows(classifier: Classifier, images: Any) -> NDArray[np.bool_]:
    """Return which images the classifier was trained or calibrated on ``[n]``, by their content."""
    known = classifier.origin.train_digests
    if known is None or not len(images):
        return np.zeros(len(images), bool)
    seen = {row.tobytes() for row in known}
    return np.array([each in seen for each in as_images(images).digests()])


def align_targets(classifier: Classifier, split: Split, labels: Labels) -> NDArray[Any]:
    """Return the targets of a split among the classifier's labels: positions ``[n]``, or which are true ``[n, k]`` (bool)."""
    if split.multilabel:
        return _all_truths(classifier, split, labels)
    used = [labels.names[i] for i in split.present]
    _refuse_foreign(classifier, used, "leave their images out")
    places = np.full(len(labels) + 1, -1)  # the last one is where there is no label
    for name in used:
        places[labels.index(name)] = classifier.labels.index(name)
    positions: NDArray[Any] = places[np.asarray(split.targets)]
    return positions


def asked_truths(classifier: Classifier, split: Split, labels: Labels) -> tuple[Classifier, NDArray[np.bool_]]:
    """Return the classifier of the labels that the data know, too, and which of them are true ``[n, k]``."""
    truths = np.asarray(split.table(len(labels)))
    _refuse_foreign(classifier, [labels.names[i] for i in np.flatnonzero(truths.any(0))], "leave them out")
    known = set(labels.names)
    names = [name for name in classifier.labels.names if name in known]
    if not names or not truths.any():
        raise DataError("No label is true of any of these images, so there is nothing to measure.")
    return classifier.select(names), truths[:, [labels.index(name) for name in names]]


def _all_truths(classifier: Classifier, split: Split, labels: Labels) -> NDArray[np.bool_]:
    """Return which of the classifier's labels are true ``[n, k]``; labels that the data do not know are an error."""
    asked, truths = asked_truths(classifier, split, labels)
    missing = [name for name in classifier.labels.names if name not in set(asked.labels.names)]
    if missing:
        raise DataError(
            f"The data have no column for these labels: {listing(missing)}. Forget them first, or add them."
        )
    return truths


def _refuse_foreign(classifier: Classifier, used: Sequence[str], other: str) -> None:
    known = set(classifier.labels.names)
    foreign = [name for name in used if name not in known]
    if foreign:
        raise DataError(
            f"The classifier does not know these labels of the data: {listing(foreign)}. Teach them, or {other}."
        )
