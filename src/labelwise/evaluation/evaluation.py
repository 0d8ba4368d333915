"""Test images of a classifier, encoded once for every protocol that asks about them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from labelwise.core.classifier import Classifier
from labelwise.core.model import prepared
from labelwise.core.scores import Scores
from labelwise.images.dataset import Split
from labelwise.images.describe.labels import Labels
from labelwise.images.split.hashes import image_hashes
from labelwise.support.errors import DataError, listing
from labelwise.support.settings import brief


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation:
    """What every protocol works with: the scores of test images, and the truth."""

    scores: Scores
    split: Split  # the images as the model takes them, with what the data say of them
    labels: Labels  # what its targets are about
    leaks: Tensor  # which images the classifier was trained or calibrated on [n] (bool)

    __repr__ = brief

    @classmethod
    def of(
        cls, classifier: Classifier, split: Split, labels: Labels | None = None, leaks: Tensor | None = None
    ) -> Self:
        """Return the images of a split, encoded once; without labels, its targets point into those of the classifier."""
        split = replace(split, images=classifier.batch(split.images)) if len(split) else split
        embeddings = classifier.encode(prepared(classifier.model, split.images))
        scores = Scores(classifier, embeddings, split.images)
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
        """The share of the images to measure that the classifier was made from: of those with a label, where each has one at most."""
        measured = self.leaks if self.multilabel else self.leaks[torch.from_numpy(self.split.labelled)]
        return float(measured.double().mean()) if len(measured) else 0.0

    @cached_property
    def targets(self) -> Tensor:
        """The targets among the classifier's labels, on the CPU."""
        return align_targets(self.classifier, self.split, self.labels)

    def labelled(self) -> tuple[Scores, Tensor]:
        """Return the scores of the images that have one label, and where it stands among the classifier's ``[n]``."""
        if self.multilabel:
            raise DataError("Several labels may be true of these images; measure them with evaluate_multilabel.")
        rows = (self.targets >= 0).nonzero()[:, 0]
        if not len(rows):
            raise DataError("There is no labelled test image to evaluate on.")
        scores = self.scores if len(rows) == len(self) else self.scores[rows]
        return scores, self.targets[rows]

    def own_labelled(self) -> Self:
        """Return the images that have one label, be it one that the classifier does not know."""
        if self.multilabel:
            raise DataError(
                "Several labels may be true of these images, so two of them are neither the same nor different."
            )
        rows = torch.from_numpy(self.split.labelled).nonzero()[:, 0]
        return self if len(rows) == len(self) else self[rows]

    def asked(self) -> tuple[Scores, Tensor]:
        """Return the scores of the labels that classifier and data both know, and which of them are true ``[n, k]`` (bool)."""
        classifier, truths = asked_truths(self.classifier, self.split, self.labels)
        same = classifier.labels.names == self.classifier.labels.names
        return self.scores if same else self.scores.of(classifier), truths.cpu()


def leaked_rows(classifier: Classifier, images: Tensor) -> Tensor:
    """Return which of the images the classifier was made from ``[n]`` (bool), by their bytes."""
    hashes = classifier.origin.train_hashes
    if hashes is None or not len(images):
        return torch.zeros(len(images), dtype=torch.bool)
    return torch.isin(image_hashes(images), torch.from_numpy(hashes))


def align_targets(classifier: Classifier, split: Split, labels: Labels) -> Tensor:
    """Return the split's targets among the classifier's labels, on the CPU; several may be true only if the data say it of each."""
    if split.multilabel:
        return _all_truths(classifier, split, labels).cpu()
    used = [labels.names[i] for i in split.present]
    _refuse_foreign(classifier, used, "leave their images out")
    places = torch.full((len(labels) + 1,), -1)
    for name in used:
        places[labels.index(name)] = classifier.labels.index(name)
    return places[torch.from_numpy(split.targets)]


def asked_truths(classifier: Classifier, split: Split, labels: Labels) -> tuple[Classifier, Tensor]:
    """Return the classifier of the labels that the data know, too, and which of them are true ``[n, k]``."""
    truths = torch.from_numpy(split.table(len(labels)))
    _refuse_foreign(classifier, [labels.names[i] for i in truths.any(0).nonzero()[:, 0].tolist()], "leave them out")
    known = set(labels.names)
    names = [name for name in classifier.labels.names if name in known]
    if not names or not bool(truths.any()):
        raise DataError("No label is true of any of these images, so there is nothing to measure.")
    return classifier.select(names), truths[:, torch.tensor([labels.index(name) for name in names])]


def _all_truths(classifier: Classifier, split: Split, labels: Labels) -> Tensor:
    """Return which of the classifier's labels are true ``[n, k]``, or raise an error where the data do not say it of all."""
    asked, truths = asked_truths(classifier, split, labels)
    told = set(asked.labels.names)
    silent = [name for name in classifier.labels.names if name not in told]
    if silent:
        raise DataError(
            f"The data do not say where these labels are true: {listing(silent)}. Forget them first, or add them."
        )
    return truths


def _refuse_foreign(classifier: Classifier, used: Sequence[str], other: str) -> None:
    known = set(classifier.labels.names)
    foreign = [name for name in used if name not in known]
    if foreign:
        raise DataError(
            f"The classifier does not know these labels of the data: {listing(foreign)}. Teach them, or {other}."
        )
