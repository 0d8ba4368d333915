"""Calibrate: make probabilities mean what they say, and choose when to answer "unknown"."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from labelwise.core import Classifier, check_shape
from labelwise.data.fingerprints import with_seen
from labelwise.errors import DataError, UsageError
from labelwise.metrics import expected_calibration_error
from labelwise.ops.calibration import fit_platt, fit_platt_each, fit_temperature
from labelwise.tasks.outliers import fit_outlier_rule


def calibrate(classifier: Classifier, images: Tensor, targets: Tensor, *, keep: float = 0.95) -> Classifier:
    """Return the classifier with scale, offset, temperature and outlier rule fitted on held-out images.

    Args:
        classifier: any classifier; an earlier calibration is replaced.
        images: held-out images that training never saw ``[n, c, h, w]``.
        targets: their labels ``[n]``; where several may be true of an image, which are, ``[n, k]`` (bool).
        keep: the share of these images that the outlier rule must let pass as known.
    """
    check_shape(images, classifier.model.spec.shape)
    _check_targets(classifier, targets)
    if targets.ndim == 1:
        labelled = targets >= 0
        images, targets = images[labelled.to(images.device)], targets[labelled]
    done = calibrate_codes(classifier, classifier.encode(images), targets, keep=keep)
    return with_seen(done, images)


def calibrate_codes(classifier: Classifier, codes: Tensor, targets: Tensor, *, keep: float = 0.95) -> Classifier:
    """Return the same as ``calibrate``, from the codes ``[n, d]`` of held-out images."""
    if not 0 < keep < 1:
        raise UsageError(f"The share of images to keep as known lies between 0 and 1; given {keep}.")
    targets = targets.to(classifier.codes.device)
    if len(targets) < 2:
        raise DataError(f"Calibration needs at least two labelled held-out images; given {len(targets)}.")
    _check_targets(classifier, targets)
    factor, shift = classifier.handicap()
    raw = replace(classifier, scale=factor, offset=shift, temperature=1.0, outlier=None)
    scores = raw.scores_of_codes(codes.float())
    scale: float | Tensor
    offset: float | Tensor
    if classifier.multilabel:
        scale, offset = fit_platt_each(scores, targets)
    else:
        scale, offset = (1.0, 0.0) if raw.model.exclusive else fit_platt(scores, targets)
    scaled = scores * scale + offset
    temperature = 1.0 if classifier.multilabel else fit_temperature(scaled, targets)
    fitted = replace(raw, scale=factor * scale, offset=shift * scale + offset, temperature=temperature)
    rule = fit_outlier_rule(fitted, codes, keep)
    figures = {"images": len(targets), "keep": keep, **calibration_errors(raw, scores, targets, "_before")}
    figures |= calibration_errors(fitted, scaled, targets, "_after")
    return replace(fitted, outlier=rule, summary={**classifier.summary, "calibration": figures})


def _check_targets(classifier: Classifier, targets: Tensor) -> None:
    """Raise an error unless targets are ``[n]``, or ``[n, k]`` (bool) where several labels may be true."""
    k = len(classifier.labels)
    fits = targets.shape == (len(targets), k) and targets.dtype == torch.bool
    if not (fits if classifier.multilabel else targets.ndim == 1):
        wanted = f"yes or no (bool) to each of its {k} labels" if classifier.multilabel else "one label"
        raise DataError(
            f"This classifier takes {wanted} for each image; given targets {targets.dtype} {list(targets.shape)}."
        )


def calibration_errors(classifier: Classifier, scores: Tensor, targets: Tensor, suffix: str = "") -> dict[str, float]:
    """Return the expected calibration error of yes/no answers, from scores ``[n, k]``, and of the chosen label if there is one.

    Args:
        classifier: what gave the scores.
        scores: calibrated ones.
        targets: ``[n]``, or which labels are true ``[n, k]`` (bool).
        suffix: ends the names of the figures.
    """
    answers = classifier.answers(scores).flatten()
    if targets.ndim == 2:
        return {f"answer_ece{suffix}": expected_calibration_error(answers, targets.flatten())}
    best, chosen = classifier.probabilities(scores).max(1)
    truth = one_hot(targets, scores.shape[1]).flatten().bool()
    return {
        f"ece{suffix}": expected_calibration_error(best, chosen == targets),
        f"answer_ece{suffix}": expected_calibration_error(answers, truth),
    }
