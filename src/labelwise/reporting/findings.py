"""Figures of the report page only: reliability, confidence, outlier scores, the map of labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.core.classifier import Classifier
from labelwise.core.metrics import Reliability, reliability
from labelwise.core.scores import Scores
from labelwise.evaluation.closed_set import ClosedResult
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.multilabel import MultilabelResult
from labelwise.evaluation.outliers import OutlierResult
from labelwise.evaluation.plane import find_plane
from labelwise.support.errors import DataError
from labelwise.tasks.calibrate import calibration_errors, uncalibrated

Floats = NDArray[np.floating]


@dataclass(frozen=True, eq=False, kw_only=True)
class CalibrationFigures:
    """Reliability before and after calibration; errors as in ``calibration_errors``."""

    errors_before: Mapping[str, float]
    errors_after: Mapping[str, float]
    before: Reliability
    after: Reliability


@dataclass(frozen=True, eq=False, kw_only=True)
class UnknownFigures:
    """Outlier scores of test images ``[n]`` and outliers ``[m]``, the limit, and detection figures."""

    known: Floats
    outliers: Floats | None
    limit: float | None
    result: OutlierResult | None

    @property
    def flagged(self) -> float:
        """The share of test images beyond the limit."""
        return 0.0 if self.limit is None else float((self.known > self.limit).mean())


def answer_results(evaluation: Evaluation) -> tuple[NDArray[np.bool_], Floats]:
    """Return whether each answer is right, and its probability ``[n]``.

    Where several labels may be true, all answers must be right, and the least probable of them counts.
    """
    if not evaluation.multilabel:
        scores = evaluation.scores
        best = np.asarray(scores.best)
        return best == evaluation.targets, np.take_along_axis(scores.probabilities, best[:, None], 1)[:, 0]
    scores, truths = evaluation.asked_labels()
    accepted = np.asarray(scores.yes)
    return (scores.agreed == truths).all(1), np.maximum(accepted, 1 - accepted).min(1)


def answer_errors(evaluation: Evaluation) -> Floats:
    """Return the error of each yes probability ``[n, k]``; 0 for labels missing in the data."""
    scores, truths = evaluation.asked_labels()
    columns = [evaluation.classifier.labels.index(name) for name in scores.classifier.labels.names]
    errors = np.zeros_like(np.asarray(evaluation.scores.yes))
    errors[:, columns] = abs(np.asarray(scores.yes) - truths)
    return errors


def calibration(evaluation: Evaluation, result: ClosedResult | MultilabelResult | None) -> CalibrationFigures:
    """Return reliability, with the errors after calibration."""
    after, truth = evaluation.asked_labels() if evaluation.multilabel else evaluation.labelled()
    before = uncalibrated(after)

    def bins(scores: Scores) -> Reliability:
        if evaluation.multilabel:
            return reliability(np.asarray(scores.yes).ravel(), truth.ravel())
        probabilities = np.asarray(scores.probabilities)
        return reliability(probabilities.max(1), probabilities.argmax(1) == truth)

    errors_before = calibration_errors(before, truth)
    errors_after = {kind: getattr(result, kind) for kind in errors_before}
    return CalibrationFigures(
        errors_before=errors_before, errors_after=errors_after, before=bins(before), after=bins(after)
    )


def unknown(evaluation: Evaluation, result: OutlierResult | None) -> UnknownFigures:
    """Return the outlier scores of test images and of outliers."""
    rule, outliers = evaluation.classifier.familiarity.rule, evaluation.outliers
    return UnknownFigures(
        known=np.asarray(evaluation.scores.outlier_score),
        outliers=None if outliers is None else np.asarray(outliers.outlier_score),
        limit=None if rule is None else rule.limit,
        result=result,
    )


def training_estimate(classifier: Classifier) -> Mapping[str, Any] | None:
    """Return the estimate stored at fitting, by leave-one-out or validation images, with ``how`` in words."""
    words = {"leave_one_out": "training images (by leave-one-out)", "validation": "validation images"}
    summary = classifier.origin.summary
    origin = {"labels_by": summary.get("labels_by", "")}
    return next(({**summary[kind], **origin, "how": basis} for kind, basis in words.items() if kind in summary), None)


def plane(evaluation: Evaluation) -> Floats:
    """Return positions of labels ``[k, 2]``: the two principal components of their embeddings."""
    embeddings = evaluation.classifier.label_embeddings
    points = np.asarray(embeddings, np.float64).reshape(len(embeddings), -1)
    if len(points) < 3 or points.shape[1] < 2:
        raise DataError(f"A map needs embeddings that span a plane; given {len(points)} of {points.shape[1]} numbers.")
    if float(points.std(0, ddof=1).max()) < 1e-12:
        raise DataError("All label embeddings are the same.")
    return np.asarray(find_plane("pca").fit_transform(points))
