"""Figures of a report that evaluation does not give as they are: of each label, of probabilities, of "unknown", of the map."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labelwise.core.metrics import Reliability, reliability
from labelwise.core.ranking import f1_scores
from labelwise.core.scores import Scores
from labelwise.evaluation.closed import ClosedResult
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.multilabel import MultilabelResult
from labelwise.evaluation.ordinal import OrdinalResult, evaluate_ordinal, find_order
from labelwise.evaluation.outliers import OutlierResult, evaluate_outliers
from labelwise.evaluation.plane import find_plane
from labelwise.evaluation.zero_shot import ZeroShotResult, evaluate_zero_shot
from labelwise.support.errors import DataError
from labelwise.tasks.calibrate import calibration_errors, uncalibrated


@dataclass(frozen=True, eq=False, kw_only=True)
class CalibrationFigures:
    """Probabilities beside the truth, before and after calibration; errors as ``calibration_errors`` names them."""

    errors_before: Mapping[str, float]
    errors_after: Mapping[str, float]
    before: Reliability
    after: Reliability


@dataclass(frozen=True, kw_only=True)
class LabelFigures:
    """One label of the test."""

    label: str
    images: int
    accuracy: float | None  # the share of its images that is answered right, or yes where several labels may be true
    precision: float | None  # the share of its answers that is right
    mistaken: tuple[str, int] | None = None  # what its images are most often taken for, and how often
    average_precision: float | None = None  # where several labels may be true
    f1: float | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class UnknownFigures:
    """Outlier scores of the test images ``[n]`` and of strange ones ``[m]``, the limit, and the figures of telling them apart."""

    known: Tensor
    strange: Tensor | None
    limit: float | None
    result: OutlierResult | None

    @property
    def flagged(self) -> float:
        """The share of test images beyond the limit."""
        return 0.0 if self.limit is None else float((self.known > self.limit).double().mean())


def answered(evaluation: Evaluation) -> tuple[Tensor, Tensor]:
    """Return of each image whether its answer is right, all of them where several labels may be true; and how sure it was ``[n]``.

    Where several labels may be true, an image is as sure as the least sure of its answers.
    """
    if not evaluation.multilabel:
        right = evaluation.scores.best == np.asarray(evaluation.targets)
        return torch.from_numpy(right), torch.from_numpy(evaluation.scores.probabilities.max(1))
    scores, truths = evaluation.asked()
    right = ((scores.yes >= 0.5) == np.asarray(truths)).all(1)
    return torch.from_numpy(right), torch.from_numpy(np.maximum(scores.yes, 1 - scores.yes).min(1))


def answer_errors(evaluation: Evaluation) -> Tensor:
    """Return how far each probability of a yes is from the truth ``[n, k]``; 0 where the data do not say it of a label."""
    scores, truths = evaluation.asked()
    columns = [evaluation.classifier.labels.index(name) for name in scores.classifier.labels.names]
    errors = np.zeros_like(evaluation.scores.yes)
    errors[:, columns] = abs(scores.yes - np.asarray(truths))
    return torch.from_numpy(errors)


def calibration(evaluation: Evaluation, result: ClosedResult | MultilabelResult | None) -> CalibrationFigures:
    """Return probabilities beside the truth; the result holds the errors after calibration."""
    after, truth = evaluation.asked() if evaluation.multilabel else evaluation.labelled()
    before = uncalibrated(after)

    def bins(scores: Scores) -> Reliability:
        if evaluation.multilabel:
            return reliability(scores.yes.ravel(), np.asarray(truth).ravel())
        return reliability(scores.probabilities.max(1), scores.probabilities.argmax(1) == np.asarray(truth))

    errors_before = calibration_errors(before, truth)
    errors_after = {kind: getattr(result, kind) for kind in errors_before}
    return CalibrationFigures(
        errors_before=errors_before, errors_after=errors_after, before=bins(before), after=bins(after)
    )


def each_label(
    evaluation: Evaluation, several: MultilabelResult | None, counts: Tensor | None
) -> tuple[LabelFigures, ...]:
    """Return the figures of each label, from the result of all where several may be true, else from the confusion ``[k, k]``."""
    names: tuple[str, ...]
    more: list[dict[str, Any]]
    if counts is not None:
        names, totals = evaluation.classifier.labels.names, (counts.sum(1), counts.sum(0), counts.diagonal())
        often, others = (piece.tolist() for piece in counts.clone().fill_diagonal_(0).max(1))
        more = [{"mistaken": (names[i], n) if n else None} for i, n in zip(others, often, strict=True)]
    else:
        assert several is not None
        scores, truths = evaluation.asked()
        names, yes = scores.classifier.labels.names, torch.from_numpy(scores.yes >= 0.5)
        totals, f1 = (truths.sum(0), yes.sum(0), (yes & truths).sum(0)), f1_scores(yes, truths)[1].tolist()
        present = truths.any(0).tolist()
        more = [
            {"average_precision": several.average_precision[name], "f1": f1[i] if present[i] else None}
            for i, name in enumerate(names)
        ]
    return tuple(
        LabelFigures(
            label=name,
            images=images,
            accuracy=hits / images if images else None,
            precision=hits / answers if answers else None,
            **rest,
        )
        for name, images, answers, hits, rest in zip(names, *(total.tolist() for total in totals), more, strict=True)
    )


def unknown(known: Scores, strange: Scores | None) -> UnknownFigures:
    """Return the outlier scores of test images, and how well strange ones are told from them."""
    rule = known.classifier.familiarity.rule
    return UnknownFigures(
        known=torch.from_numpy(known.outlier_score),
        strange=None if strange is None else torch.from_numpy(strange.outlier_score),
        limit=None if rule is None else rule.limit,
        result=None if strange is None else evaluate_outliers(known, strange),
    )


def zero_shot(evaluation: Evaluation) -> ZeroShotResult:
    """Return the figures of seen and unseen labels, or raise why there are none."""
    if evaluation.multilabel:
        raise DataError("Several labels may be true of one image, so seen and unseen labels do not compete.")
    if not evaluation.classifier.unseen:
        raise DataError("Every label of this classifier had images; none is known from a description alone.")
    return evaluate_zero_shot(evaluation)


def ordinal(evaluation: Evaluation) -> OrdinalResult:
    """Return the figures of ordered labels, or raise why there are none."""
    if evaluation.multilabel or evaluation.classifier.calibration.multilabel:
        raise DataError("Several labels may be true of one image, so there is no level to be off by.")
    if find_order(evaluation.classifier, evaluation.labels) is None:
        raise DataError("The labels have no order.")
    return evaluate_ordinal(evaluation)


def plane(evaluation: Evaluation) -> Tensor:
    """Return where labels lie ``[k, 2]``: the two directions in which their embeddings differ most."""
    points = evaluation.classifier.label_embeddings.astype(np.float64)
    if len(points) < 3 or points.shape[1] < 2:
        raise DataError(f"{len(points)} labels with embeddings of {points.shape[1]} numbers do not span a plane.")
    if float(points.std(0).max()) < 1e-12:
        raise DataError("All label embeddings are the same.")
    return torch.from_numpy(find_plane("pca").fit_transform(points))
