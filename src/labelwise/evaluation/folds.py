"""Cross-validation: each image is measured once, by a classifier fitted without it and its group."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from labelwise.core.classifier import Classifier
from labelwise.core.metrics import accuracy, expected_calibration_error, per_class_accuracy, wilson
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.test_set import ALL, select_test_set
from labelwise.fitting.choice import encoder_of
from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.images import FeatureRows
from labelwise.images.split.lookalikes import lookalike_groups
from labelwise.images.split.make import folds_of
from labelwise.images.view import View
from labelwise.methods.registry import method_of
from labelwise.support.errors import DataError, UnsupportedError
from labelwise.train.method import Method, Run
from labelwise.train.networks.encoder import Encoder


@dataclass(frozen=True, kw_only=True)
class FoldsResult:
    """Figures of a method on labelled images, each measured by a classifier fitted without it."""

    images: int  # number of measured images
    groups: int  # number of groups: lookalikes, or a group in the data
    folds: int  # classifiers fitted
    accuracy: float  # accuracy of the best label, also of images called unknown
    low: float  # 95 % interval of the accuracy, with high; groups are independent
    high: float
    balanced_accuracy: float  # accuracy averaged over labels
    ece: float  # expected calibration error of the best label's probability
    unknown: float  # share of images called unknown
    alone: int  # images that cannot be measured: no other fold has an image of their label
    by_fold: tuple[float, ...]  # accuracy per fold


def evaluate_folds(
    classifier: Classifier,
    data: Dataset,
    folds: int = 5,
    run: Run | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> FoldsResult:
    """Cross-validate a classifier's method on all labelled images, ignoring splits.

    The method is refitted once per fold. Images of a group (``Split.groups``, else those that look alike) are in one fold. A
    frozen encoder encodes each image once. ``run`` has seed and device of each fit; ``tell`` receives lines of progress.
    """
    method = _refittable(classifier)
    test_set = select_test_set(classifier, data, ALL)
    if test_set.split.multilabel:
        raise UnsupportedError(
            f'Several labels may be true of an image of "{data.name}", but --folds needs one label per image.'
        )
    groups = test_set.split.groups or lookalike_groups(test_set.split.images)
    fold = np.asarray(folds_of(groups, test_set.split.targets, folds, (run or Run()).seed))
    method, split = _on_features(classifier, method, replace(test_set.split, groups=groups))
    answers = []
    for number in range(folds):
        train_rows, rows = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        tell(f"fold {number + 1} of {folds}: {len(train_rows)} images train, {len(rows)} are measured")
        train = Dataset(name=data.name, labels=test_set.labels, splits={"train": split.select(train_rows)})
        answers.append(_answers(fit(train, method, run), split, rows, test_set.labels))
    return _result(answers, groups, np.asarray(split.targets))


def _refittable(classifier: Classifier) -> Method:
    method = method_of(classifier)
    if method.zero_shot or not method.uses_targets:
        reason = "fits labels from descriptions" if method.zero_shot else "reads no label of an image"
        raise UnsupportedError(
            f"Folds refit a method to labelled images, but {method.name} {reason}. Measure it on separate images, without --folds."
        )
    return method


def _on_features(classifier: Classifier, method: Method, split: Split) -> tuple[Method, Split]:
    """Return the method and its images, with features computed once for all folds if the encoder is frozen."""
    encoder = encoder_of(method)
    if not encoder.frozen or len(classifier.shape) != 3 or getattr(method, "adversarial", None) is not None:
        return method, split
    features = FeatureRows(classifier.features(split.images).values)
    head = replace(method, encoder=Encoder(frozen=True, code_size=encoder.code_size), view=View())  # type: ignore[call-arg]
    return head, replace(split, images=features)


@dataclass(frozen=True)
class _Answers:
    """The answers for a fold; labels are positions in the data's labels."""

    rows: NDArray[np.int64]  # of the images [n]
    best: NDArray[np.int64]  # best label of each [n]
    probability: NDArray[np.float64]  # its probability [n]
    unknown: NDArray[np.bool_]  # whether it is called unknown [n]


def _answers(classifier: Classifier, split: Split, rows: NDArray[np.int64], labels: Labels) -> _Answers:
    """Return the answers for images whose label the classifier knows."""
    places = np.array([labels.index(name) for name in classifier.labels.names])
    rows = rows[np.isin(np.asarray(split.targets)[rows], places)]
    if not len(rows):
        return _Answers(rows, rows, rows.astype(float), rows.astype(bool))
    scores = Evaluation.of(classifier, split.select(rows), labels).scores
    sure = np.asarray(scores.probabilities).max(1)
    return _Answers(rows, places[np.asarray(scores.best)], sure, np.asarray(scores.unknown))


def _result(answers: list[_Answers], groups: tuple[str, ...], targets: NDArray[np.int64]) -> FoldsResult:
    rows, best, sure, unknown = (
        np.concatenate([getattr(answer, name) for answer in answers])
        for name in ("rows", "best", "probability", "unknown")
    )
    if not len(rows):
        raise DataError("No label has images in two folds. Add images of each label.")
    truth = targets[rows]
    share, count = accuracy(best, truth), len({groups[row] or row for row in rows.tolist()})
    low, high = wilson(share, count)
    return FoldsResult(
        images=len(rows),
        groups=count,
        folds=len(answers),
        accuracy=share,
        low=low,
        high=high,
        balanced_accuracy=per_class_accuracy(best, truth),
        ece=expected_calibration_error(sure, best == truth),
        unknown=float(unknown.mean()),
        alone=len(targets) - len(rows),
        by_fold=tuple(accuracy(answer.best, targets[answer.rows]) for answer in answers if len(answer.rows)),
    )
