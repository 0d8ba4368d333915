"""The ordinal protocol: the size of errors in levels, and the coverage of level intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labelwise.core.classifier import Classifier
from labelwise.evaluation.evaluation import Evaluation
from labelwise.images.describe.labels import Labels
from labelwise.tasks.rank import covering_levels, expected_ranks, level_columns, level_probabilities, median_levels


@dataclass(frozen=True, kw_only=True)
class LevelFigures:
    """Figures of one predicted level per image."""

    accuracy: float  # accuracy
    mean_absolute_error: float  # mean absolute error in levels
    kappa: float | None  # Cohen's kappa with quadratic weights; None if all images have one level
    within_one: float  # share at most one level off


@dataclass(frozen=True, kw_only=True)
class OrdinalResult:
    """Figures on test images with ordered labels."""

    images: int  # number of test images
    levels: tuple[str, ...]  # labels from lowest to highest
    best: LevelFigures  # predicting the most probable level, best for accuracy
    median: LevelFigures  # predicting the median level, best for the absolute error
    # rank correlation of expected rank and true level; None if either is constant
    spearman: float | None
    coverage: float  # requested coverage of level intervals
    # share of images with their true level in the interval; at least coverage if calibrated
    covered: float
    width: float  # mean size of an interval in levels
    leaked: float  # share of test images seen in training or calibration; should be 0


def evaluate_ordinal(
    evaluation: Evaluation, *, order: Sequence[str] | None = None, coverage: float = 0.8
) -> OrdinalResult:
    """Return the figures of test images with one ordered label each.

    ``order`` is the classifier's labels from the lowest to the highest, None as ``find_order`` says; an interval of levels
    must hold a probability of ``coverage`` at least.
    """
    from scipy.stats import spearmanr

    classifier = evaluation.classifier
    columns = level_columns(classifier, order or find_order(classifier, evaluation.labels))
    scores, targets = evaluation.labelled()
    truth = np.argsort(columns)[targets]
    probabilities = level_probabilities(scores, columns)
    levels, ranks = np.asarray(probabilities), np.asarray(expected_ranks(probabilities))
    first, last = map(np.asarray, covering_levels(probabilities, coverage))
    varied = bool((truth != truth[0]).any() and (ranks != ranks[0]).any())
    return OrdinalResult(
        images=len(scores),
        levels=tuple(classifier.labels.names[column] for column in columns),
        best=level_figures(levels.argmax(1), truth, len(columns)),
        median=level_figures(np.asarray(median_levels(probabilities)), truth, len(columns)),
        spearman=float(spearmanr(ranks, truth).statistic) if varied else None,
        coverage=coverage,
        covered=float(((first <= truth) & (truth <= last)).mean()),
        width=float((last - first + 1).mean()),
        leaked=evaluation.leaked,
    )


def level_figures(answers: NDArray[np.int64], truth: NDArray[np.int64], levels: int) -> LevelFigures:
    """Return the figures of predicted and true levels ``[n]``, from 0."""
    errors = abs(answers - truth)
    varied = bool((truth != truth[0]).any())
    return LevelFigures(
        accuracy=float((errors == 0).mean()),
        mean_absolute_error=float(errors.mean()),
        kappa=weighted_kappa(answers, truth, levels) if varied else None,
        within_one=float((errors <= 1).mean()),
    )


def weighted_kappa(answers: NDArray[np.int64], truth: NDArray[np.int64], levels: int) -> float:
    """Return Cohen's kappa with quadratic weights for predicted and true levels ``[n]``."""
    first, second = (np.bincount(levels_of_one, minlength=levels) / len(truth) for levels_of_one in (answers, truth))
    weights = np.subtract.outer(np.arange(levels), np.arange(levels)) ** 2
    return 1 - float(((answers - truth) ** 2).mean()) / float(first @ weights @ second)


def find_order(classifier: Classifier, labels: Labels) -> list[str] | None:
    """Return the classifier's labels from lowest to highest, or None without a complete order.

    The order of the data counts where it ranks every label of the classifier, and otherwise the classifier's own.
    """
    own = classifier.labels
    described = labels if labels.order is not None and set(own.names) <= set(labels.names) else own
    if described.order is None:
        return None
    ranks = dict(zip(described.names, described.order, strict=True))
    return sorted(own.names, key=ranks.__getitem__)
