"""Calibrate: make probabilities mean what they say, and choose when to answer "unknown"."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from labelwise.calibration import Calibration
from labelwise.classifier import Classifier
from labelwise.errors import DataError, UsageError
from labelwise.metrics import expected_calibration_error
from labelwise.ops.calibration import fit_platt, fit_platt_each, fit_temperature
from labelwise.ops.targets import several_true
from labelwise.scores import Scores


def calibrate(scores: Scores, targets: Tensor, *, keep: float = 0.95) -> Classifier:
    """Return the classifier with its calibration and outlier rule fitted on images that training never saw.

    ``targets`` are their labels ``[n]``, -1 where there is none, or, where several may be true, which are ``[n, k]`` (bool). The
    outlier rule lets the share ``keep`` of these images pass as known.
    """
    if not 0 < keep < 1:
        raise UsageError(f"The share of images to keep as known lies between 0 and 1; given {keep}.")
    classifier = scores.classifier
    _check_targets(classifier, targets)
    if not several_true(targets):
        rows = (targets >= 0).nonzero()[:, 0]
        scores, targets = scores[rows], targets[rows]
    if len(targets) < 2:
        raise DataError(f"Calibration needs at least two labelled held-out images; given {len(targets)}.")
    targets = targets.to(scores.embeddings.device)
    raw = replace(
        classifier, calibration=classifier.calibration.bare(), familiarity=replace(classifier.familiarity, rule=None)
    )
    before = scores.of(raw)
    fitted = replace(raw, calibration=_fitted(raw.calibration, before.log_odds, targets))
    after = before.of(fitted)
    figures = {"images": len(targets), "keep": keep, **calibration_errors(before, targets, "_before")}
    figures |= calibration_errors(after, targets, "_after")
    origin = replace(classifier.origin, summary={**classifier.origin.summary, "calibration": figures})
    return replace(fitted, familiarity=fitted.familiarity.fit(after, keep), origin=origin.with_images(scores.images))


def _fitted(bare: Calibration, log_odds: Tensor, targets: Tensor) -> Calibration:
    """Return the calibration under which these log-odds ``[n, k]`` are most probable."""
    if bare.multilabel:
        return bare.fitted(*fit_platt_each(log_odds, targets), 1.0)
    scale, offset = (1.0, 0.0) if bare.exclusive else fit_platt(log_odds, targets)
    return bare.fitted(scale, offset, fit_temperature(log_odds * scale + offset, targets))


def _check_targets(classifier: Classifier, targets: Tensor) -> None:
    """Raise an error unless targets are ``[n]``, or ``[n, k]`` (bool) where several labels may be true."""
    k = len(classifier.labels)
    fits = targets.shape == (len(targets), k) and targets.dtype == torch.bool
    if not (fits if classifier.calibration.multilabel else targets.ndim == 1):
        wanted = f"yes or no (bool) to each of its {k} labels" if classifier.calibration.multilabel else "one label"
        raise DataError(
            f"This classifier takes {wanted} for each image; given targets {targets.dtype} {list(targets.shape)}."
        )


def uncalibrated(scores: Scores) -> Scores:
    """Return the model's own scores: no calibration, though seen labels stay held back."""
    return scores.of(replace(scores.classifier, calibration=scores.classifier.calibration.bare()))


def calibration_errors(scores: Scores, targets: Tensor, suffix: str = "") -> dict[str, float]:
    """Return the expected calibration error of yes/no answers, and of the chosen label if there is one."""
    if several_true(targets):
        return {f"answer_ece{suffix}": expected_calibration_error(scores.yes.flatten(), targets.flatten())}
    best, chosen = scores.probabilities.max(1)
    truth = one_hot(targets, scores.yes.shape[1]).flatten().bool()
    return {
        f"ece{suffix}": expected_calibration_error(best, chosen == targets),
        f"answer_ece{suffix}": expected_calibration_error(scores.yes.flatten(), truth),
    }
