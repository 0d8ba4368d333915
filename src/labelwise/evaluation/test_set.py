"""Select the test set of a dataset: which images are measured, and which are left out and why.

The default is the test split if there is one, otherwise every image not seen in training. A classifier stores the hashes of its
training and calibration images. These are left out, unless the user asks for a split that contains them (train, val, all), which
prints a warning. If all images were used in training and the classifier supports closed-form leave-one-out, that is measured
(``training_images``).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.core.classifier import Classifier
from labelwise.core.scores import Scores
from labelwise.evaluation.evaluation import Evaluation, leaked_rows
from labelwise.evaluation.training_images import LeftOutAnswers, left_out_answers
from labelwise.images.dataset import SPLITS, Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.images import Skipped
from labelwise.images.sources.build import readable
from labelwise.images.split.divide import pool
from labelwise.support.errors import DataError, UsageError, listing, suggest
from labelwise.support.rows import draw_rows
from labelwise.support.settings import brief

ALL = "all"
CHOICES = (*SPLITS, ALL)
NO_HASHES = "The classifier has no hashes of its training images"
SAME_NAME = "It was trained on equally many images of data with this name, but none of these: if they are the same, --folds 5 of evaluate"


@dataclass(frozen=True, eq=False, kw_only=True)
class TestSet:
    """The images of a dataset that a classifier is measured on."""

    data: str  # the name of the data
    name: str  # train, val, test or all
    own_splits: bool  # whether the data name their splits
    labels: Labels  # what targets point into
    split: Split  # the images
    rows: NDArray[np.int64]  # their positions among all images of that split [n]
    leaked: NDArray[np.bool_]  # which of them the classifier was trained or calibrated on [n]
    trained_on: int  # how many images are left out because a classifier was trained or calibrated on them
    unlabelled: int  # how many are left out because they have no label
    undrawn: int = 0  # how many are left out by ``draw``
    skipped: tuple[Skipped, ...] = ()  # files of the data that could not be read
    shape: tuple[int, ...] = ()  # of the images before they were brought to the model's
    doubt: str = ""  # why training images may be among them, in words
    left_out: Scores | None = None  # of training images, each answered as if it had not been there

    __repr__ = brief

    @property
    def words(self) -> str:
        """Which images are measured, and which are left out and why."""
        if self.left_out is not None:
            return (
                f"All images of {self.data} were used in training. Measured by leave-one-out on "
                f"{_count(len(self.split), 'image')}."
            )
        words = f"{_count(len(self.split), 'image')} of {self.data}, {_split_phrase(self.name, self.own_splits)}; left out: "
        reasons = (
            (self.trained_on, "used to train or calibrate"),
            (self.unlabelled, "without a label"),
            (self.undrawn, "not drawn"),
        )
        words += ", ".join(f"{count} {reason}" for count, reason in reasons if count) or "none"
        leaked = int(self.leaked.sum())
        words += f". {leaked} of the measured images were also used to train or calibrate" if leaked else ""
        words += f". {self.doubt}" if self.doubt else ""
        if self.skipped:
            first = f"{self.skipped[0].file}: {self.skipped[0].reason.rstrip('.')}"
            words += f". {_count(len(self.skipped), 'file')} skipped ({first})"
        return words + "."

    def figures(self) -> dict[str, Any]:
        """Return the same as JSON can hold it."""
        return {
            "words": self.words,
            "split": self.name,
            "own_splits": self.own_splits,
            "images": len(self.split),
            "leaked": int(self.leaked.sum()),
            "leave_one_out": self.left_out is not None,
            "left_out": {"trained_on": self.trained_on, "unlabelled": self.unlabelled, "undrawn": self.undrawn},
            "skipped": [asdict(skip) for skip in self.skipped],
        }

    def evaluate(self, classifier: Classifier) -> Evaluation:
        """Encode the images by the classifier that they were selected for, once for all protocols."""
        if self.left_out is not None:
            return Evaluation(
                scores=self.left_out, split=self.split, labels=self.labels, leaks=self.leaked, left_out=True
            )
        return Evaluation.of(classifier, self.split, self.labels, self.leaked)

    def draw(self, most: int | None, seed: int) -> "TestSet":
        """Return ``most`` of the images, drawn at random; all for None."""
        count = len(self.split)
        if most is None or most >= count:
            return self
        rows = draw_rows(count, most, seed)
        return replace(
            self,
            split=self.split.select(rows),
            rows=self.rows[rows],
            leaked=self.leaked[rows],
            left_out=None if self.left_out is None else self.left_out[rows],
            undrawn=self.undrawn + count - most,
        )


def select_test_set(
    classifier: Classifier, data: Dataset, split: str | None = None, *, unknown: bool = False
) -> TestSet:
    """Return the images that a classifier is measured on, resized where needed, by the rule at the top of this file.

    ``split`` is train, val, test or all; None is the rule. ``unknown`` images are of none of the labels, so they need no label,
    and any split will do where there is no test split.
    """
    return select_test_sets([(classifier, data)], split, unknown=unknown)[0]


def select_test_sets(
    pairs: Sequence[tuple[Classifier, Dataset]], split: str | None = None, *, unknown: bool = False
) -> list[TestSet]:
    """Return the same images for several classifiers, without those that any of them was trained or calibrated on.

    Each classifier comes with the same data, read as its model takes them; the rest is as in ``select_test_set``.
    """
    name, names, leaves = _choose(pairs[0][1], split, unknown=unknown)
    pairs = _readable(pairs, names)
    first = pairs[0][1]
    divided_by_fit = name == ALL and leaves and not first.own_splits
    own = [_made_from(classifier, first) for classifier, _ in pairs]
    blind = [classifier.origin.train_digests is None for classifier, _ in pairs]
    doubt = f"{NO_HASHES}, so overlap cannot be detected" if any(blind) else ""
    if divided_by_fit and any(a and b for a, b in zip(own, blind, strict=True)):
        name, names, doubt = "test", ("test",), f"{NO_HASHES}, so the images that fit holds out are measured"
    splits = [_pool(data, names) for _, data in pairs]
    leaks = [leaked_rows(classifier, pooled.images) for (classifier, _), pooled in zip(pairs, splits, strict=True)]
    if not doubt and divided_by_fit and any(a and not leak.any() for a, leak in zip(own, leaks, strict=True)):
        doubt = SAME_NAME
    # which images lack the label they need; where several may be true, none of them is an answer, too
    blank = ~np.asarray(splits[0].labelled) & (not splits[0].multilabel and not unknown)
    usable = ~blank & ~np.any(leaks, 0) if leaves else ~blank
    rows, unlabelled = np.flatnonzero(usable), int(blank.sum())
    trained_on = len(usable) - unlabelled - len(rows)
    if not len(rows):
        answers = [
            left_out_answers(classifier_of_pair, pooled, data.labels)
            for (classifier_of_pair, data), pooled in zip(pairs, splits, strict=True)
        ]
        if not (trained_on and leaves and not unlabelled and all(answers)):
            raise DataError(_nothing_left(first, name, trained_on, unlabelled))
        return [
            _training_images(data, pooled, answer)
            for (_, data), pooled, answer in zip(pairs, splits, filter(None, answers), strict=True)
        ]
    return [
        TestSet(
            data=data.name,
            name=name,
            own_splits=data.own_splits,
            labels=data.labels,
            split=pooled.select(rows),
            rows=rows,
            leaked=leak[rows],
            trained_on=trained_on,
            unlabelled=unlabelled,
            skipped=data.skipped,
            shape=data.shape or (),
            doubt=doubt,
        )
        for (_, data), pooled, leak in zip(pairs, splits, leaks, strict=True)
    ]


def _training_images(data: Dataset, split: Split, answers: LeftOutAnswers) -> TestSet:
    """Return training images that can be left out as a test set."""
    return TestSet(
        data=data.name,
        name="train",
        own_splits=data.own_splits,
        labels=data.labels,
        split=split.select(answers.rows),
        rows=answers.rows,
        leaked=np.zeros(len(answers.rows), bool),
        trained_on=0,
        unlabelled=0,
        skipped=data.skipped,
        shape=data.shape or (),
        left_out=answers.scores,
    )


def _choose(data: Dataset, split: str | None, *, unknown: bool) -> tuple[str, tuple[str, ...], bool]:
    """Return what is measured of data: its name, its splits, and whether training images are left out."""
    every = tuple(name for name in SPLITS if name in data.splits)
    if split is not None and split not in CHOICES:
        raise UsageError(f'Splits are {listing(CHOICES)}; given "{split}".{suggest(split, CHOICES)}')
    if split == ALL:
        return ALL, every, False
    preferred = split or "test"
    if split is None and not (data.own_splits and (preferred in every or not unknown)):
        return ALL, every, True
    if preferred not in every:
        raise DataError(
            f'"{data.name}" has no {preferred} split; it has: {listing(every)}. Split it (labelwise data split), or choose '
            f"one with --split: {listing((*every, ALL))}."
        )
    return preferred, (preferred,), preferred == "test"


def _readable(pairs: Sequence[tuple[Classifier, Dataset]], names: Sequence[str]) -> list[tuple[Classifier, Dataset]]:
    """Return the pairs with data as each model takes them, or raise an error where one cannot, or readings differ."""
    pairs = [
        (classifier_of_pair, readable(data, names, classifier_of_pair.shape)) for classifier_of_pair, data in pairs
    ]
    for classifier, data in pairs:
        _check_fit(classifier, data)
        _check_same(data, pairs[0][1])
    return pairs


def _made_from(classifier: Classifier, data: Dataset) -> bool:
    """Return whether a classifier says that it was trained on these data: their name, and as many images as fit takes."""
    training = classifier.origin.summary.get("training", {})
    train, val, test = (len(data.splits.get(name, ())) for name in SPLITS)
    sizes = (train, train + val, train + val + test)
    return "test" in data.splits and training.get("data") == data.name and training.get("images") in sizes


def _pool(data: Dataset, names: Sequence[str]) -> Split:
    """Return the images of these splits, one after another."""
    splits = {name: data.splits[name] for name in names}
    pooled = pool(replace(data, splits=splits))
    has_files = any(split.files for split in splits.values())
    return pooled if has_files else replace(pooled, files=())


def _check_fit(classifier: Classifier, data: Dataset) -> None:
    """Raise an error where a model takes images and the data are features, or the other way round."""
    shape = classifier.shape
    if (len(shape) == 1) != bool(data.features) or (len(shape) == 1 and shape != data.shape):
        expected, holds = (
            f"features of {size[0]} numbers" if len(size) == 1 else f"images {list(size)}"
            for size in (shape, data.shape or ())
        )
        raise DataError(f'The classifier takes {expected}, but "{data.name}" has {holds}. Give matching data.')


def _check_same(data: Dataset, rival: Dataset) -> None:
    """Raise an error unless two readings of one data set hold the same images in the same order."""
    for name in {*data.splits, *rival.splits}:
        first, second = data.splits.get(name), rival.splits.get(name)
        if (
            first is None
            or second is None
            or first.files != second.files
            or not np.array_equal(np.asarray(first.targets), np.asarray(second.targets))
        ):
            raise DataError(
                f'Classifiers must be compared on the same images, but "{data.name}" read at different sizes differs in '
                f"{name}. Measure them one by one with evaluate."
            )


def _nothing_left(data: Dataset, name: str, trained_on: int, unlabelled: int) -> str:
    """Return why no image is left to measure, and what to do, in words."""
    place = f'"{data.name}", {_split_phrase(name, data.own_splits)}'
    if not trained_on:
        return f"{place}: no labelled image to measure. Give images with labels, or another split."
    also = f", and {unlabelled} without a label" if unlabelled else ""
    return (
        f"{place}: no image is left to measure: {trained_on} were used to train or calibrate{also}. Give other "
        "images, or cross-validate: labelwise evaluate MODEL DATA --folds 5. To measure them anyway, with "
        "figures that are too optimistic: --split all."
    )


def _split_phrase(name: str, own_splits: bool) -> str:
    """Return which images of the data are meant, in words."""
    if own_splits:
        return "all splits" if name == ALL else f"{name} split"
    return "without splits" if name == ALL else f"the {name} split that fit makes"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
