"""``lw.evaluate``: every figure that applies to a classifier and data, in one call."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.core.classifier import Classifier
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.figures import Figures, confusion_of, label_figures
from labelwise.evaluation.operating import operating_points
from labelwise.evaluation.protocols import all_new, run_protocols
from labelwise.evaluation.test_set import TestSet, select_test_set
from labelwise.images.catalogue import load, load_unlabelled
from labelwise.images.dataset import UNLABELLED, Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import UsageError, listing

Data = Dataset | TestSet | str | Path | tuple[Any, Any]


def evaluate(
    classifier: Classifier,
    data: Data,
    *,
    split: str | None = None,
    unknown: Any = None,
    protocols: Iterable[str] = (),
    seed: int = 0,
) -> Figures:
    """Measure a classifier.

    Args:
        classifier: the classifier to measure.
        data: a dataset, a name or path of data, or images and their labels: ``(paths, ["owl", "wren", ...])``. Without images
            that the classifier was trained on, see ``test_set``.
        split: train, val, test or all; None is the test split if there is one, otherwise every image not seen in training.
        unknown: out-of-distribution images to detect, as data or images.
        protocols: additional protocols: verification, retrieval, episodes, promises; or their options by name:
            ``{"promises": {"coverage": 0.9}}``.
        seed: the random seed.

    >>> figures = lw.evaluate(classifier, data)
    >>> print(figures)  # doctest: +ELLIPSIS
    images measured ...
    """
    if not isinstance(classifier, Classifier):
        raise UsageError(
            f"The classifier comes first: lw.evaluate(classifier, data); given {type(classifier).__name__}."
        )
    test_set = data if isinstance(data, TestSet) else select_test_set(classifier, read_data(classifier, data), split)
    evaluation, outliers = test_set.evaluate(classifier), None
    if unknown is not None:
        is_test_set = isinstance(unknown, TestSet)
        outliers = (
            unknown if is_test_set else select_test_set(classifier, read_unknown(classifier, unknown), unknown=True)
        )
        evaluation = replace(evaluation, outliers=classifier.scores(outliers.split.images))
    options = {name: {"seed": seed} for name in ("verification", "retrieval", "episodes")}
    return measure(evaluation, test_set, protocols, options, unknown=outliers)


def measure(
    evaluation: Evaluation,
    test_set: TestSet,
    protocols: Iterable[str] = (),
    options: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    unknown: TestSet | None = None,
) -> Figures:
    """Return the figures of encoded images; ``options`` are protocol options by name."""
    usual, own = options or {}, protocols if isinstance(protocols, Mapping) else {}
    options = {name: {**usual.get(name, {}), **own.get(name, {})} for name in {*usual, *own}}
    records, reasons = run_protocols(evaluation, protocols, options)
    new = all_new(evaluation)
    confusion = None if new or evaluation.multilabel else confusion_of(evaluation)
    operating = () if new else operating_points(evaluation)
    return Figures(
        test_set=test_set,
        label_names=evaluation.classifier.labels.names,
        leaked=evaluation.leaked,
        labels=() if new else label_figures(evaluation, records.get("multilabel"), confusion, operating),
        confusion=confusion,
        results=records,
        left_out=reasons,
        unknown_set=unknown,
        operating=operating,
    )


def read_data(classifier: Classifier, data: Dataset | str | Path | tuple[Any, Any]) -> Dataset:
    """Return the data as a data set."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, str | Path):
        return load(data)
    if not isinstance(data, tuple) or len(data) != 2:
        raise UsageError(
            f"Data must be a path, a Dataset, or images and labels; given {type(data).__name__}. "
            "Try lw.evaluate(classifier, (images, labels))."
        )
    images, targets_of_user = data
    labels, targets = _targets(classifier, targets_of_user)
    batch = classifier.images(images)
    if len(batch) != len(targets):
        raise UsageError(f"Give one label per image; given {len(batch)} images and {len(targets)} labels.")
    return Dataset(
        name="images", labels=labels, splits={"test": Split(images=batch, targets=targets)}, own_splits=False
    )


def read_unknown(classifier: Classifier, images: Any) -> Dataset:
    """Return out-of-distribution images, from data or images alone, as a data set."""
    if isinstance(images, Dataset):
        return images
    if isinstance(images, str | Path):
        return load_unlabelled(images)
    batch = classifier.images(images)
    outliers = Split(images=batch, targets=np.full(len(batch), -1))
    return Dataset(name="unknown", labels=Labels(names=(UNLABELLED,)), splits={"test": outliers}, own_splits=False)


def _targets(classifier: Classifier, given: Any) -> tuple[Labels, Any]:
    """Return labels, and targets from names, positions of the classifier's labels, or a bool for each."""
    if all(isinstance(name, str) for name in given):
        names = tuple(dict.fromkeys(given))
        return Labels(names=names), np.array([names.index(name) for name in given])
    targets, own = np.asarray(given), classifier.labels
    if targets.ndim == 2 and targets.shape[1] == len(own):
        return own, targets.astype(bool)
    if targets.ndim != 1 or targets.dtype.kind not in "iu":
        raise UsageError(f"Labels must be names, or positions in the classifier's labels: {listing(own.names)}.")
    return own, targets.astype(np.int64)
