"""Cross-validation: each image is measured once, by a classifier that was fitted without it and all that belongs to it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from labelwise.core.classifier import Classifier
from labelwise.core.metrics import accuracy, expected_calibration_error, per_class_accuracy, wilson
from labelwise.core.model import prepared
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.test_set import ALL, TestSet, select_test_set
from labelwise.fitting.choice import encoder_of
from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset, Split
from labelwise.images.split.lookalikes import lookalike_groups
from labelwise.images.split.make import folds_of
from labelwise.images.view import View
from labelwise.support.errors import DataError, UnsupportedError
from labelwise.train.networks.encoder import Encoder
from labelwise.train.stages import Method, Run


@dataclass(frozen=True, kw_only=True)
class FoldsResult:
    """Figures of a method on labelled images, each measured by a classifier that did not see it."""

    images: int  # how many were measured
    groups: int  # how many of them have nothing to do with each other: lookalikes, or a group of the data, count once
    folds: int  # classifiers fitted
    accuracy: float  # share of images whose best label is the true one, whatever the unknown threshold
    low: float  # with high: the 95 % interval of the accuracy, counted over groups
    high: float
    class_accuracy: float  # the accuracy averaged over labels
    ece: float  # expected calibration error of the best label's probability
    unknown: float  # share of images called unknown
    alone: int  # images that could not be measured: no image of their label is outside their fold
    by_fold: tuple[float, ...]  # the accuracy of each fold


def evaluate_folds(
    classifier: Classifier,
    data: Dataset,
    folds: int = 5,
    run: Run | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> FoldsResult:
    """Return how good a classifier's method is on all labelled images of data, whatever their split: refitted once per fold.

    Images that belong together (``Split.groups``, else those that look alike) are in one fold. A frozen encoder runs once over each image.
    ``run`` has seed and device of each fit; ``tell`` is called with a line of progress before each.
    """
    method = _refittable(classifier)
    part = select_test_set(classifier, data, ALL)
    if part.split.multilabel:
        raise UnsupportedError(f'Several labels may be true of one image of "{data.name}"; folds count one for each.')
    groups = part.split.groups or lookalike_groups(part.split.images)
    fold = torch.from_numpy(folds_of(groups, part.split.targets, folds, (run or Run()).seed))
    method, whole = _on_features(classifier, method, replace(part.split, groups=groups))
    answers = []
    for number in range(folds):
        rows = [(fold != number).nonzero()[:, 0], (fold == number).nonzero()[:, 0]]
        tell(f"fold {number + 1} of {folds}: {len(rows[0])} images train, {len(rows[1])} are measured")
        train = Dataset(name=data.name, labels=part.labels, splits={"train": whole.select(rows[0].numpy())})
        answers.append(_answers(fit(train, method, run), whole, rows[1], part))
    return _result(answers, groups, torch.from_numpy(whole.targets))


def _refittable(classifier: Classifier) -> Method:
    method = classifier.origin.method
    if not isinstance(method, Method):
        raise UnsupportedError(
            "This classifier does not say which method made it, so it cannot be fitted again in folds."
        )
    if method.zero_shot or not method.uses_targets:
        what = "fits labels from descriptions" if method.zero_shot else "reads no label of an image"
        raise UnsupportedError(
            f"Folds refit a method to labelled images, and {method.name} {what}. Measure it on images of their own: evaluate without --folds."
        )
    return method


def _on_features(classifier: Classifier, method: Method, split: Split) -> tuple[Method, Split]:
    """Return the method and its images with the features of a frozen encoder in their place, computed once for all folds."""
    encoder = encoder_of(method)
    if not encoder.frozen or len(split.shape) != 3 or getattr(method, "adversarial", None) is not None:
        return method, split
    features = prepared(classifier.model, split.images).cpu()
    if features.ndim != 2:
        return method, split
    head = replace(method, encoder=Encoder(frozen=True, code_size=encoder.code_size), view=View())  # type: ignore[call-arg]
    return head, replace(split, images=features)


Answers = tuple[Tensor, Tensor, Tensor, Tensor]  # rows, the best label of each, its probability, whether it is unknown


def _answers(classifier: Classifier, whole: Split, rows: Tensor, part: TestSet) -> Answers:
    """Return what a classifier says of some rows, as far as it knows their labels; labels are positions in those of the data."""
    names = classifier.labels.names
    known = torch.tensor([i for i, name in enumerate(part.labels.names) if name in names])
    rows = rows[torch.isin(torch.from_numpy(whole.targets)[rows], known)]
    scores = Evaluation.of(classifier, whole.select(rows.numpy()), part.labels).scores
    places = torch.tensor([part.labels.index(name) for name in names])
    best = places[torch.from_numpy(scores.best)] if len(rows) else rows
    return (
        rows,
        best,
        torch.from_numpy(scores.probabilities.max(1)) if len(rows) else rows.float(),
        torch.from_numpy(scores.unknown),
    )


def _result(answers: list[Answers], groups: tuple[str, ...], targets: Tensor) -> FoldsResult:
    rows, best, sure, unknown = (torch.cat(column) for column in zip(*answers, strict=True))
    if not len(rows):
        raise DataError("No label has images in two folds, so none can be measured. Add pictures of each label.")
    truth = targets[rows]
    share, alone = accuracy(best, truth), len(targets) - len(rows)
    count = len({groups[row] or row for row in rows.tolist()})
    low, high = wilson(share, count)
    return FoldsResult(
        images=len(rows),
        groups=count,
        folds=len(answers),
        accuracy=share,
        low=low,
        high=high,
        class_accuracy=per_class_accuracy(best, truth),
        ece=expected_calibration_error(sure, (best == truth).double()),
        unknown=float(unknown.double().mean()),
        alone=alone,
        by_fold=tuple(accuracy(each, targets[at]) for at, each, _, _ in answers if len(at)),
    )
