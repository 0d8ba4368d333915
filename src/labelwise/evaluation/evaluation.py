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
    """The scores and targets of test images, encoded once for all protocols."""

    scores: Scores
    split: Split  # the images in the form the model reads, with targets
    labels: Labels  # the labels of these targets
    leaks: NDArray[np.bool_]  # images seen in training or calibration [n]
    outliers: Scores | None = None  # out-of-distribution images
    left_out: bool = False  # leave-one-out scores of training images

    __repr__ = brief

    @classmethod
    def of(
        cls, classifier: Classifier, split: Split, labels: Labels | None = None, leaks: NDArray[np.bool_] | None = None
    ) -> Self:
        """Encode the images of a split; without ``labels``, its targets are positions of the classifier's labels."""
        scores = Scores(classifier, classifier.encode(split.images), split.images)
        leaks = leaked_rows(classifier, split.images) if leaks is None else leaks
        return cls(scores=scores, split=split, labels=labels or classifier.labels, leaks=leaks)

    @property
    def classifier(self) -> Classifier:
        """The classifier of the scores."""
        return self.scores.classifier

    @property
    def multilabel(self) -> bool:
        """Whether several labels may be true of an image."""
        return self.split.multilabel

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, rows: ArrayLike) -> Self:
        """Return the evaluation of some of the images."""
        index = np.asarray(rows)
        return replace(self, scores=self.scores[index], split=self.split.select(index), leaks=self.leaks[index])

    @property
    def leaked(self) -> float:
        """The share of measured images seen in training or calibration."""
        leaks = self.leaks if self.multilabel else self.leaks[np.asarray(self.split.labelled)]
        return float(leaks.mean()) if len(leaks) else 0.0

    @cached_property
    def targets(self) -> NDArray[Any]:
        """The targets as positions of the classifier's labels, see ``align_targets``."""
        return align_targets(self.classifier, self.split, self.labels)

    def labelled(self) -> tuple[Scores, NDArray[np.int64]]:
        """Return the scores of images with a label, and its position ``[n]``."""
        if self.multilabel:
            raise DataError("Several labels may be true of these images. Measure them with evaluate_multilabel.")
        rows = np.flatnonzero(self.targets >= 0)
        if not len(rows):
            raise DataError("There is no labelled test image to evaluate on.")
        return self.scores if len(rows) == len(self) else self.scores[rows], self.targets[rows]

    def own_labelled(self) -> Self:
        """Return the evaluation of all labelled images, including labels that the classifier does not know."""
        if self.multilabel:
            raise DataError("Several labels may be true of these images, so pairs are neither same nor different.")
        rows = np.flatnonzero(np.asarray(self.split.labelled))
        return self if len(rows) == len(self) else self[rows]

    def asked_labels(self) -> tuple[Scores, NDArray[np.bool_]]:
        """Return the scores of the labels that classifier and data share, and which are true ``[n, k]``."""
        classifier, truths = asked_truths(self.classifier, self.split, self.labels)
        same = classifier.labels.names == self.classifier.labels.names
        return self.scores if same else self.scores.of(classifier), truths


def leaked_rows(classifier: Classifier, images: Any) -> NDArray[np.bool_]:
    """Return which images the classifier was trained or calibrated on ``[n]``, by content hash."""
    train_digests = classifier.origin.train_digests
    if train_digests is None or not len(images):
        return np.zeros(len(images), bool)
    train_set = {row.tobytes() for row in train_digests}
    return np.array([digest in train_set for digest in as_images(images).digests()])


def align_targets(classifier: Classifier, split: Split, labels: Labels) -> NDArray[Any]:
    """Return the targets of a split as positions of the classifier's labels: ``[n]``, or ``[n, k]`` (bool)."""
    if split.multilabel:
        return _all_truths(classifier, split, labels)
    used_names = [labels.names[i] for i in split.present]
    _refuse_foreign(classifier, used_names, "leave their images out")
    places = np.full(len(labels) + 1, -1)  # the last entry is for images without a label
    for name in used_names:
        places[labels.index(name)] = classifier.labels.index(name)
    positions: NDArray[Any] = places[np.asarray(split.targets)]
    return positions


def asked_truths(classifier: Classifier, split: Split, labels: Labels) -> tuple[Classifier, NDArray[np.bool_]]:
    """Return the classifier with the labels that the data share, and which are true ``[n, k]``."""
    truths = np.asarray(split.table(len(labels)))
    _refuse_foreign(classifier, [labels.names[i] for i in np.flatnonzero(truths.any(0))], "leave them out")
    known_names = set(labels.names)
    names = [name for name in classifier.labels.names if name in known_names]
    if not names or not truths.any():
        raise DataError("No label is true of any of these images, so there is nothing to measure.")
    return classifier.select(names), truths[:, [labels.index(name) for name in names]]


def _all_truths(classifier: Classifier, split: Split, labels: Labels) -> NDArray[np.bool_]:
    """Return which of the classifier's labels are true ``[n, k]``; raise an error if the data miss a label."""
    asked_names, truths = asked_truths(classifier, split, labels)
    missing = [name for name in classifier.labels.names if name not in set(asked_names.labels.names)]
    if missing:
        raise DataError(
            f"The data have no column for these labels: {listing(missing)}. Forget them first, or add them."
        )
    return truths


def _refuse_foreign(classifier: Classifier, names: Sequence[str], holder: str) -> None:
    own_names = set(classifier.labels.names)
    foreign = [name for name in names if name not in own_names]
    if foreign:
        raise DataError(
            f"The classifier does not know these labels of the data: {listing(foreign)}. Teach them, or {holder}."
        )
