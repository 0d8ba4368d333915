"""What a report says of one case, as numbers: every figure that applies, and in words why the others do not."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from labelwise.classifier import Classifier
from labelwise.errors import DataError, UnsupportedError, UsageError
from labelwise.evaluate.closed import ClosedResult, evaluate_closed
from labelwise.evaluate.multilabel import MultilabelResult, evaluate_multilabel
from labelwise.evaluate.ordinal import OrdinalResult, evaluate_ordinal, find_order
from labelwise.evaluate.outliers import OutlierResult, evaluate_outliers
from labelwise.evaluate.retrieval import RetrievalResult, evaluate_retrieval
from labelwise.evaluate.tested import Tested
from labelwise.evaluate.verification import VerificationResult, verification_with_curve
from labelwise.evaluate.zero_shot import ZeroShotResult, evaluate_zero_shot
from labelwise.metrics import Reliability, confusion_matrix, reliability
from labelwise.ops.detection import DetCurve
from labelwise.ops.plane import find_plane
from labelwise.ops.ranking import f1_scores
from labelwise.report.case import Case
from labelwise.scores import Scores
from labelwise.tasks.calibrate import calibration_errors, uncalibrated

COMPARED = 2_000  # images compared with each other, at most
PAIRS = 50_000  # pairs of each kind behind the DET curve, at most

T = TypeVar("T")


@dataclass(frozen=True, eq=False, kw_only=True)
class CalibrationFigures:
    """Probabilities beside the truth, before and after calibration; errors as ``calibration_errors`` names them."""

    errors_before: Mapping[str, float]
    errors_after: Mapping[str, float]
    before: Reliability
    after: Reliability


@dataclass(frozen=True, kw_only=True)
class LabelFigures:
    """One label of the test.

    Attributes:
        label: its name.
        images: test images of it.
        accuracy: the share of them that is answered right; of yes answers where several labels may be true.
        precision: the share of its answers that is right; None where it was never answered.
        mistaken: what its images are most often taken for, and how often; None where never.
        average_precision: where several labels may be true.
        f1: likewise.
    """

    label: str
    images: int
    accuracy: float | None
    precision: float | None
    mistaken: tuple[str, int] | None = None
    average_precision: float | None = None
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Findings:
    """All figures of one case; None where one does not apply, and ``left_out`` says why.

    Attributes:
        right: whether the answer to each image is right ``[n]``; where several labels may be true, all answers.
        sure: how probable the answer was said to be ``[n]``; where several may be true, the least sure of its answers.
        chosen: the place of the answered label ``[n]``.
        errors: where several labels may be true, how far each probability of a yes is from the truth ``[n, k]``; 0 where the
            data do not say it of a label.
        compared: how many images were compared with each other.
    """

    right: Tensor
    sure: Tensor
    chosen: Tensor
    errors: Tensor | None
    closed: ClosedResult | None
    several: MultilabelResult | None
    calibration: CalibrationFigures
    confusion: Tensor | None
    each: tuple[LabelFigures, ...]
    unknown: UnknownFigures
    zero_shot: ZeroShotResult | None
    ordinal: OrdinalResult | None
    verification: VerificationResult | None
    det: DetCurve | None
    retrieval: RetrievalResult | None
    compared: int
    plane: Tensor | None
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """The share of images whose answer is right."""
        return float(self.right.double().mean())


def find(case: Case, seed: int) -> Findings:
    """Return all figures of a case; ``seed`` draws images and pairs where there are many."""
    left_out: dict[str, str] = {}

    def attempt(what: str, run: Callable[[], T]) -> T | None:
        try:
            return run()
        except (DataError, UnsupportedError, UsageError) as error:
            left_out[what] = str(error)
            return None

    tested = case.tested
    part = _drawn(tested, seed)
    right, sure, chosen = _answered(tested)
    closed, several, counts = None, None, None
    if tested.multilabel:
        several = evaluate_multilabel(tested)
        each, after = _each_of_several(tested, several), {"answer_ece": several.answer_ece}
    else:
        closed, counts = evaluate_closed(tested), confusion_matrix(chosen, tested.targets, len(case.names))
        each, after = _each(case.names, counts), {"ece": closed.ece, "answer_ece": closed.answer_ece}
    pairs = attempt("Same or different", lambda: verification_with_curve(part, most=PAIRS, seed=seed))
    verification, curve = pairs or (None, None)
    return Findings(
        right=right,
        sure=sure,
        chosen=chosen,
        errors=_errors(tested) if several else None,
        closed=closed,
        several=several,
        calibration=_calibration(tested, after),
        confusion=counts,
        each=each,
        unknown=_unknown(case),
        zero_shot=attempt("Seen and unseen labels", lambda: _zero_shot(tested)),
        ordinal=attempt("Ordered labels", lambda: _ordinal(tested)),
        verification=verification,
        det=curve,
        retrieval=attempt("Retrieval", lambda: evaluate_retrieval(part)),
        compared=len(part),
        plane=attempt("Map of labels", lambda: _plane(case.classifier)),
        left_out=left_out,
    )


def _answered(tested: Tested) -> tuple[Tensor, Tensor, Tensor]:
    """Return of each image whether its answer is right, how probable it was said to be, and the answered label ``[n]``."""
    chosen = tested.scores.best.cpu()
    if not tested.multilabel:
        return chosen == tested.targets, tested.scores.probabilities.amax(1).cpu(), chosen
    scores, truths = tested.asked()
    right = ((scores.yes >= 0.5) == truths).all(1).cpu()
    return right, torch.maximum(scores.yes, 1 - scores.yes).amin(1).cpu(), chosen


def _errors(tested: Tested) -> Tensor:
    """Return how far each probability of a yes is from the truth ``[n, k]``; 0 where the data do not say it of a label."""
    scores, truths = tested.asked()
    columns = [tested.classifier.labels.index(name) for name in scores.classifier.labels.names]
    errors = torch.zeros_like(tested.scores.yes)
    errors[:, columns] = (scores.yes - truths.float()).abs()
    return errors.cpu()


def _drawn(tested: Tested, seed: int) -> Tested:
    """Return the images to compare with each other: all, or so many drawn at random."""
    if len(tested) <= COMPARED:
        return tested
    rows = torch.randperm(len(tested), generator=torch.Generator().manual_seed(seed))[:COMPARED]
    return tested[rows.sort().values]


def _calibration(tested: Tested, errors_after: Mapping[str, float]) -> CalibrationFigures:
    after, truth = tested.asked() if tested.multilabel else tested.labelled()
    before = uncalibrated(after)

    def bins(scores: Scores) -> Reliability:
        if tested.multilabel:
            return reliability(scores.yes.flatten().cpu(), truth.flatten().cpu())
        sure, chosen = scores.probabilities.max(1)
        return reliability(sure.cpu(), (chosen == truth).cpu())

    return CalibrationFigures(
        errors_before=calibration_errors(before, truth),
        errors_after=errors_after,
        before=bins(before),
        after=bins(after),
    )


def _each(names: tuple[str, ...], counts: Tensor) -> tuple[LabelFigures, ...]:
    """Return the figures of each label from counts of true labels (rows) and what was said ``[k, k]``."""
    wrong = counts.clone().fill_diagonal_(0)
    most, place = (piece.tolist() for piece in wrong.max(1))
    rows = zip(names, counts.sum(1).tolist(), counts.sum(0).tolist(), counts.diagonal().tolist(), strict=True)
    return tuple(
        LabelFigures(
            label=name,
            images=images,
            accuracy=hits / images if images else None,
            precision=hits / said if said else None,
            mistaken=(names[place[i]], most[i]) if most[i] else None,
        )
        for i, (name, images, said, hits) in enumerate(rows)
    )


def _each_of_several(tested: Tested, result: MultilabelResult) -> tuple[LabelFigures, ...]:
    scores, truths = tested.asked()
    yes = scores.yes >= 0.5
    f1 = f1_scores(yes, truths)[1].tolist()
    counts = (table.sum(0).tolist() for table in (truths, yes, yes & truths))
    rows = zip(scores.classifier.labels.names, *counts, strict=True)
    return tuple(
        LabelFigures(
            label=name,
            images=images,
            accuracy=hits / images if images else None,
            precision=hits / said if said else None,
            average_precision=result.average_precision[name],
            f1=f1[i] if images else None,
        )
        for i, (name, images, said, hits) in enumerate(rows)
    )


def _unknown(case: Case) -> UnknownFigures:
    known, strange, rule = case.tested.scores, case.strange, case.classifier.familiarity.rule
    return UnknownFigures(
        known=known.strangeness.cpu(),
        strange=None if strange is None else strange.strangeness.cpu(),
        limit=None if rule is None else rule.limit,
        result=None if strange is None else evaluate_outliers(known, strange),
    )


def _zero_shot(tested: Tested) -> ZeroShotResult:
    if tested.multilabel:
        raise DataError("Several labels may be true of one image, so seen and unseen labels do not compete.")
    if not tested.classifier.unseen:
        raise DataError("Every label of this classifier had images; none is known from a description alone.")
    return evaluate_zero_shot(tested)


def _ordinal(tested: Tested) -> OrdinalResult:
    if tested.multilabel or tested.classifier.calibration.multilabel:
        raise DataError("Several labels may be true of one image, so there is no level to be off by.")
    if find_order(tested.classifier, tested.labels) is None:
        raise DataError("The labels have no order.")
    return evaluate_ordinal(tested)


def _plane(classifier: Classifier) -> Tensor:
    """Return where labels lie ``[k, 2]``: the two directions in which their embeddings differ most."""
    points = classifier.label_embeddings.detach().double().cpu().flatten(1)
    if len(points) < 3 or points.shape[1] < 2:
        raise DataError(f"{len(points)} labels with embeddings of {points.shape[1]} numbers do not span a plane.")
    if float(points.std(0).max()) < 1e-12:
        raise DataError("All label embeddings are the same.")
    return torch.from_numpy(find_plane("pca").fit_transform(points.numpy()))
