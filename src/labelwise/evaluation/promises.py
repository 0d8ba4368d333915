"""Promises against what was measured: wrong answers with ``max_error``, and lists of labels with ``coverage``."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from labelwise.core.arrays import Array
from labelwise.core.coarser import Tree
from labelwise.core.metrics import wilson
from labelwise.core.scores import Scores
from labelwise.evaluation.evaluation import Evaluation
from labelwise.support.errors import DataError, UnsupportedError

ERRORS = (0.02, 0.05, 0.1, 0.2)  # promised shares of wrong answers
COVERAGES = (0.8, 0.9, 0.95)  # promised shares of lists with the right label


@dataclass(frozen=True, kw_only=True)
class ErrorFigures:
    """What answers with ``max_error`` were."""

    promise: float
    wrong: float  # the share of images with a wrong answer
    interval: tuple[float, float]  # 95 %, Wilson
    depths: tuple[float, ...]  # the share answered with a label, with its parent, with the parent of that, ...
    unsure: float
    unknown: float


@dataclass(frozen=True, kw_only=True)
class ListFigures:
    """What lists with ``coverage`` were."""

    promise: float
    covered: float  # the share of lists with the right label
    interval: tuple[float, float]  # 95 %, Wilson
    size: float  # how many labels a list has on average
    single: float  # the share of lists with one label


@dataclass(frozen=True, kw_only=True)
class PromiseResult:
    """Promised and measured shares, on images that the classifier was neither trained nor calibrated on."""

    images: int
    errors: tuple[ErrorFigures, ...]  # none where labels have no parents and nothing else was asked
    lists: tuple[ListFigures, ...]


def measure_promises(
    evaluation: Evaluation, *, max_error: float | None = None, coverage: float | None = None
) -> PromiseResult:
    """Return what was measured for several promises, these among them.

    Wrong answers are measured where labels have parents or ``max_error`` is given, lists where ``coverage`` is given.
    """
    coarser = max_error is not None or evaluation.classifier.labels.parents is not None
    if not coarser and coverage is None:
        raise UnsupportedError("The labels have no parents. Measure promises with --max-error 0.05 or --coverage 0.9.")
    if evaluation.classifier.origin.train_digests is None:
        raise DataError("The classifier has no hashes of its training images, so none is known to be kept out.")
    held_out = np.flatnonzero(~evaluation.leaks)
    if evaluation.left_out or not len(held_out):  # leave-one-out chose the limits of promises
        raise DataError("The classifier was trained on all of these images. Measure promises on others.")
    scores, targets = evaluation[held_out].labelled()
    return PromiseResult(
        images=len(scores),
        errors=tuple(_errors(scores, targets, _with_value(ERRORS, max_error))) if coarser else (),
        lists=() if coverage is None else tuple(_lists(scores, targets, _with_value(COVERAGES, coverage))),
    )


def _with_value(usual: tuple[float, ...], extra: float | None) -> list[float]:
    return sorted({*usual, *(() if extra is None else (extra,))})


def _errors(scores: Scores, targets: Array, promises: list[float]) -> Iterator[ErrorFigures]:
    limits = [scores.classifier.error_limit(promise) for promise in promises]
    tree, unknown = Tree.of(scores.classifier.labels), scores.unknown
    parts = zip(scores.parts(), _parts(scores, targets), strict=True)
    walks = [_walk(tree, part.probabilities, truth) for part, truth in parts]
    mistakes, sure, names = map(np.concatenate, zip(*walks, strict=True))
    for promise, limit in zip(promises, limits, strict=True):
        count = (sure > limit).sum(1)
        has_answer = ~unknown & (count > 0)
        margin = names[:, -1] - np.take_along_axis(names, np.maximum(count - 1, 0)[:, None], 1)[:, 0]
        wrong = float((has_answer & (mistakes > limit)).mean())
        yield ErrorFigures(
            promise=promise,
            wrong=wrong,
            interval=wilson(wrong, len(scores)),
            depths=tuple(float((has_answer & (margin == depth)).mean()) for depth in range(len(tree.groups))),
            unsure=float((~unknown & (count == 0)).mean()),
            unknown=float(unknown.mean()),
        )


def _walk(tree: Tree, probabilities: Array, targets: Array) -> tuple[Array, Array, Array]:
    """Return the mistake of each image ``[n]``, and of each step ``[n, T]`` its probability and how many names lead there."""
    steps = tree.steps(probabilities)
    names = [np.array([len(path) for path in paths])[steps.groups[:, at]] for at, paths in enumerate(tree.paths)]
    return tree.mistakes(probabilities, targets), steps.probabilities, np.stack(names, 1)


def _lists(scores: Scores, targets: Array, promises: list[float]) -> Iterator[ListFigures]:
    size: dict[float, list[Array]] = {promise: [] for promise in promises}
    hits: dict[float, list[Array]] = {promise: [] for promise in promises}
    for part, truth in zip(scores.parts(), _parts(scores, targets), strict=True):
        for promise in promises:
            in_list = part.covering(promise)
            size[promise].append(in_list.sum(1))
            hits[promise].append(in_list[np.arange(len(part)), truth])
    for promise in promises:
        sizes, coverage = np.concatenate(size[promise]), float(np.concatenate(hits[promise]).mean())
        yield ListFigures(
            promise=promise,
            covered=coverage,
            interval=wilson(coverage, len(scores)),
            size=float(sizes.mean()),
            single=float((sizes == 1).mean()),
        )


def _parts(scores: Scores, targets: Array) -> list[Array]:
    """Return the targets in the parts of scores."""
    return np.split(targets, np.cumsum([len(part) for part in scores.parts()])[:-1])
