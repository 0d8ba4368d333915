"""The ordinal protocol: how far answers are off, and the coverage of intervals of levels."""

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
    """Figures of predicted levels, one for each image."""

    accuracy: float  # the share that is right
    mean_absolute_error: float  # how many levels they are off on average
    kappa: float | None  # Cohen's kappa with quadratic weights; None where all images have one level
    within_one: float  # the share that is at most one level off


@dataclass(frozen=True, kw_only=True)
class OrdinalResult:
    """Figures on test images of ordered labels."""

    images: int  # how many were tested
    levels: tuple[str, ...]  # the labels from the lowest to the highest
    best: LevelFigures  # of the most probable level, which is best for accuracy
    median: LevelFigures  # of the median of the probabilities, which is best for the absolute error
    # rank correlation of the expected rank with the true level; None where either is always the same
    spearman: float | None
    coverage: float  # the probability that an interval of levels should hold
    # the share of images whose true level is in its interval; at least coverage if probabilities are right
    covered: float
    width: float  # how many levels an interval has on average
    leaked: float  # share of the images that the classifier was trained or calibrated on; anything but 0 flatters it


def evaluate_ordinal(
    evaluation: Evaluation, *, order: Sequence[str] | None = None, coverage: float = 0.8
) -> OrdinalResult:
    """Return the figures of test images that have one label each, of ordered ones.

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
    """Return the figures of predicted levels ``[n]`` and true ones ``[n]``, both from 0."""
    off = abs(answers - truth)
    varied = bool((truth != truth[0]).any())
    return LevelFigures(
        accuracy=float((off == 0).mean()),
        mean_absolute_error=float(off.mean()),
        kappa=weighted_kappa(answers, truth, levels) if varied else None,
        within_one=float((off <= 1).mean()),
    )


def weighted_kappa(answers: NDArray[np.int64], truth: NDArray[np.int64], levels: int) -> float:
    """Return Cohen's kappa with quadratic weights, of predicted and true levels ``[n]``."""
    first, second = (np.bincount(each, minlength=levels) / len(truth) for each in (answers, truth))
    apart = np.subtract.outer(np.arange(levels), np.arange(levels)) ** 2
    return 1 - float(((answers - truth) ** 2).mean()) / float(first @ apart @ second)


def find_order(classifier: Classifier, labels: Labels) -> list[str] | None:
    """Return the classifier's labels from the lowest to the highest, or None where nobody orders all of them.

    The order of the data counts where it ranks every label of the classifier, and otherwise the classifier's own.
    """
    own = classifier.labels
    known = labels if labels.order is not None and set(own.names) <= set(labels.names) else own
    if known.order is None:
        return None
    ranks = dict(zip(known.names, known.order, strict=True))
    return sorted(own.names, key=ranks.__getitem__)
