"""Calibrate: fit probabilities and the threshold of "unknown" on held-out images."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labelwise.core.arrays import Array, sigmoid, softmax
from labelwise.core.calibration import Calibration
from labelwise.core.classifier import Classifier
from labelwise.core.metrics import Reliability, expected_calibration_error, pool_reliabilities, reliability
from labelwise.core.platt import fit_platt, fit_platt_each, fit_temperature, most_rows
from labelwise.core.promises import with_promises
from labelwise.core.scores import Scores
from labelwise.images.dataset import several_true, truth_table
from labelwise.support.errors import DataError, UsageError
from labelwise.support.rows import Draws, draw_rows

FOLDS, MANY = 5, 2_000  # folds that calibration is measured on; of more images than this two are enough


def calibrate(
    scores: Scores,
    targets: ArrayLike,
    *,
    keep: float = 0.95,
    nearest: bool | None = None,
    weights: Array | None = None,
) -> Classifier:
    """Return the classifier with calibration and outlier rule fitted on images not seen in training.

    Of very many images some are drawn, see ``most_rows``.

    Args:
        scores: of the images.
        targets: their labels ``[n]``, -1 if there is none, or, where several may be true, which are ``[n, k]`` (bool).
        keep: the share of these images that the outlier rule lets pass as known.
        nearest: its kind; None: that of the former rule.
        weights: of the images ``[n]``, where each has one label: one of weight w counts as w images. None: one.
    """
    if not 0 < keep < 1:
        raise UsageError(f"The share of known images must be between 0 and 1; given {keep}.")
    classifier, right = scores.classifier, np.asarray(targets)
    _check_targets(classifier, right)
    if not several_true(right):
        rows = np.flatnonzero(right >= 0)
        scores, right, weights = scores[rows], right[rows], weights if weights is None else weights[rows]
    if len(right) > (most := most_rows(len(classifier.labels))):
        rows = draw_rows(len(right), most)
        scores, right, weights = scores[rows], right[rows], weights if weights is None else weights[rows]
    if len(right) < 2:
        raise DataError(f"Calibration needs at least two labelled held-out images; given {len(right)}.")
    raw = replace(
        classifier, calibration=classifier.calibration.bare(), familiarity=replace(classifier.familiarity, rule=None)
    )
    before = scores.of(raw)
    calibration, figures = fit_calibration(raw.calibration, before.log_odds, right, weights)
    result = replace(raw, calibration=calibration)
    if not calibration.multilabel:
        result = replace(result, calibration=with_promises(result, before.of(result).log_odds, right, weights))
    figures = {"images": len(right), "keep": keep, **figures}
    origin = replace(classifier.origin, summary={**classifier.origin.summary, "calibration": figures})
    former = classifier.familiarity.rule
    nearest = nearest if nearest is not None else former is not None and former.nearest
    signs = former.sign_weights if former is not None and nearest else (1.0, 1.0)
    familiarity = result.familiarity.fit(before.of(result), keep, weights, nearest=nearest, sign_weights=signs)
    result = replace(result, familiarity=familiarity, origin=origin)
    return replace(result, origin=result.origin_with(scores.images))


def fit_calibration(
    bare: Calibration, log_odds: Array, targets: Array, weights: Array | None = None
) -> tuple[Calibration, dict[str, Any]]:
    """Return the calibration under which these log-odds ``[n, k]`` of ``bare`` are most probable, and figures of its worth.

    They are measured on images that it was not fitted on: these are divided into folds, and each is answered by a
    calibration fitted on the others. Yes/no answers, and the choice among labels, keep plain scores where that does not lower
    both their log loss and their calibration error. The figures are the errors before and after.
    """
    n, k = log_odds.shape
    counts = np.ones(n) if weights is None else weights
    scale, offset, temperature = _fit(bare, log_odds, targets, counts)
    plain, held_out = _probabilities(log_odds, (1.0, 0.0, 1.0)), _held_out(bare, log_odds, targets, counts)
    truth, pair_weights = truth_table(targets, k).ravel(), np.repeat(counts, k)
    answers = _helps(plain[0].ravel(), held_out[0].ravel(), truth, pair_weights) if not bare.exclusive else True
    choice = bare.multilabel or _helps(plain[1], held_out[1], targets, counts)
    if not answers:
        scale, offset, temperature = 1.0, 0.0, temperature / scale if not bare.multilabel else 1.0
    if not choice:
        temperature = float(scale)  # of two maps the second undoes the first
    after = held_out[0] if answers else plain[0], held_out[1] if choice else plain[1]
    if bare.exclusive:  # a score that competes has no meaning alone: answers are the choice
        plain, after = (plain[1], plain[1]), (after[1], after[1])
    figures = {f"{kind}_before": error for kind, error in _errors(*plain, targets, counts).items()}
    figures |= {f"{kind}_after": error for kind, error in _errors(*after, targets, counts).items()}
    choices = {"answer_ece": answers and choice if bare.exclusive else answers}
    choices |= {} if bare.multilabel else {"ece": choice}
    return bare.refit(scale, offset, temperature), {**figures, "applied": choices}


Map = tuple[float | Array, float | Array, float]


def _fit(bare: Calibration, log_odds: Array, targets: Array, weights: Array) -> Any:
    """Return scale, offset and temperature under which these log-odds ``[n, k]`` are most probable."""
    if bare.multilabel:
        return (*fit_platt_each(log_odds, targets), 1.0)
    scale, offset = (1.0, 0.0) if bare.exclusive else fit_platt(log_odds, targets, weights)
    return scale, offset, fit_temperature(log_odds * scale + offset, targets, weights)


def _probabilities(log_odds: Array, by: Map) -> tuple[Array, Array]:
    """Return the probabilities of a yes, and of each label given that one is right ``[n, k]``, under a map."""
    scale, offset, temperature = by
    odds = log_odds.astype(np.float64) * scale + offset
    return sigmoid(odds), softmax(odds / temperature)


def _held_out(bare: Calibration, log_odds: Array, targets: Array, weights: Array) -> tuple[Array, Array]:
    """Return cross-fitted ``_probabilities``: the map of an image is fitted on the other folds."""
    n = len(targets)
    folds = 2 if n > MANY else min(FOLDS, n)
    fold = Draws(0).permutation(n) % folds
    answers, choice = np.empty(log_odds.shape), np.empty(log_odds.shape)
    for number in range(folds):
        held_out = fold == number
        fold_map = _fit(bare, log_odds[~held_out], targets[~held_out], weights[~held_out])
        answers[held_out], choice[held_out] = _probabilities(log_odds[held_out], fold_map)
    return answers, choice


def _helps(plain: Array, held_out: Array, truth: Array, weights: Array) -> bool:
    """Return whether held-out probabilities are better than plain ones: of a yes ``[m]``, or of each label ``[n, k]``."""
    loss, error = zip(*(_worth(probabilities, truth, weights) for probabilities in (plain, held_out)), strict=True)
    return bool(loss[1] < loss[0] and error[1] <= error[0])


def _worth(probabilities: Array, truth: Array, weights: Array) -> tuple[float, float]:
    """Return the log loss and the calibration error of probabilities, as in ``_helps``."""
    if probabilities.ndim == 1:
        of_truth, best, right = np.where(truth, probabilities, 1 - probabilities), probabilities, truth
    else:
        of_truth = np.take_along_axis(probabilities, truth[:, None], 1)
        best, right = probabilities.max(1), probabilities.argmax(1) == truth
    loss = -np.average(np.log(np.maximum(of_truth, 1e-12)).ravel(), weights=weights)
    return float(loss), expected_calibration_error(best, right, weights=weights)


def _check_targets(classifier: Classifier, targets: Array) -> None:
    """Raise an error unless targets are ``[n]``, or ``[n, k]`` (bool) where several labels may be true."""
    k = len(classifier.labels)
    fits = targets.shape == (len(targets), k) and targets.dtype == np.bool_
    if not (fits if classifier.calibration.multilabel else targets.ndim == 1):
        expected = f"yes or no (bool) to each of its {k} labels" if classifier.calibration.multilabel else "one label"
        raise DataError(
            f"This classifier takes {expected} for each image; given targets {targets.dtype} {list(targets.shape)}."
        )


def uncalibrated(scores: Scores) -> Scores:
    """Return uncalibrated scores, with the seen penalty."""
    return scores.of(replace(scores.classifier, calibration=scores.classifier.calibration.bare()))


def calibration_errors(scores: Scores, targets: ArrayLike) -> dict[str, float]:
    """Return the expected calibration error of yes/no answers, and of the chosen label if there is one."""
    start, right, tables = 0, np.asarray(targets), list[dict[str, Reliability]]()
    for part in scores.parts():
        tables.append(_reliabilities(part.yes, part.probabilities, right[start : start + len(part)]))
        start += len(part)
    return {kind: pool_reliabilities([table[kind] for table in tables]).error for kind in tables[0]}


def _errors(answers: Array, probabilities: Array, targets: Array, weights: Array) -> dict[str, float]:
    return {kind: table.error for kind, table in _reliabilities(answers, probabilities, targets, weights).items()}


def _reliabilities(
    yes: Array, probabilities: Array, targets: Array, weights: Array | None = None
) -> dict[str, Reliability]:
    """Return how often answers are right: yes and no to each label, and the chosen label if there is one."""
    k = yes.shape[1]
    pair_weights = None if weights is None else np.repeat(weights, k)
    answers = reliability(yes.ravel(), truth_table(targets, k).ravel(), weights=pair_weights)
    if several_true(targets):
        return {"answer_ece": answers}
    best, right = probabilities.max(1), probabilities.argmax(1) == targets
    return {"ece": reliability(best, right, weights=weights), "answer_ece": answers}
