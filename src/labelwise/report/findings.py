"""What a report says of one case, as numbers: every figure that applies, and in words why the others do not."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from labelwise.core import Classifier
from labelwise.data.dataset import Split
from labelwise.errors import DataError, UnsupportedError, UsageError
from labelwise.evaluate.answers import uncalibrated
from labelwise.evaluate.closed import ClosedResult, evaluate_closed
from labelwise.evaluate.joint import find_plane
from labelwise.evaluate.multilabel import MultilabelResult, asked_truths, evaluate_multilabel
from labelwise.evaluate.ordinal import OrdinalResult, evaluate_ordinal, find_order
from labelwise.evaluate.outliers import OutlierResult, evaluate_outliers
from labelwise.evaluate.retrieval import RetrievalResult, evaluate_retrieval
from labelwise.evaluate.verification import VerificationResult, evaluate_verification
from labelwise.evaluate.zero_shot import ZeroShotResult, evaluate_zero_shot
from labelwise.metrics import Reliability, class_accuracies, confusion_matrix, reliability
from labelwise.ops.detection import DetCurve, det_curve
from labelwise.ops.ranking import f1_scores
from labelwise.report.case import Case
from labelwise.tasks.calibrate import calibration_errors
from labelwise.tasks.outliers import outlier_scores
from labelwise.tasks.verify import scored_pairs

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


@dataclass(frozen=True, eq=False, kw_only=True)
class Findings:
    """All figures of one case; None where one does not apply, and ``left_out`` says why.

    Attributes:
        right: whether the answer to each image is right ``[n]``; where several labels may be true, all answers.
        sure: how probable the answer was said to be ``[n]``; where several may be true, the least sure of its answers.
        chosen: the place of the answered label ``[n]``.
        compared: how many images were compared with each other.
    """

    right: Tensor
    sure: Tensor
    chosen: Tensor
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

    part = _drawn(case.split, seed)
    closed = None if case.several else _closed(case)
    several = _several(case) if case.several else None
    right, sure, chosen = answered(case)
    verification = attempt("Same or different", lambda: _verification(case, part, seed))
    return Findings(
        right=right,
        sure=sure,
        chosen=chosen,
        closed=closed,
        several=several,
        calibration=_calibration(case),
        confusion=None if case.several else confusion_matrix(chosen, case.targets, len(case.names)),
        each=_each_of_several(case, several) if several else _each(case, chosen),
        unknown=_unknown(case),
        zero_shot=attempt("Seen and unseen labels", lambda: _zero_shot(case)),
        ordinal=attempt("Ordered labels", lambda: _ordinal(case)),
        verification=verification,
        det=_det(case, part, verification, seed) if verification else None,
        retrieval=attempt("Retrieval", lambda: _leak(evaluate_retrieval(case.coded, part), case)),
        compared=len(part),
        plane=attempt("Map of labels", lambda: _plane(case.classifier)),
        left_out=left_out,
    )


def answered(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """Return of each image whether its answer is right, how probable it was said to be, and the answered label ``[n]``."""
    chosen = case.scores.argmax(1)
    classifier = case.coded
    if not case.several:
        return chosen == case.targets, classifier.probabilities(case.scores).amax(1), chosen
    asked, truths = asked_truths(case.classifier, case.split, case.labels)
    columns = [case.classifier.labels.index(name) for name in asked.labels.names]
    answers = classifier.answers(case.scores)[:, columns]
    right = ((answers >= 0.5) == truths.cpu()).all(1)
    return right, torch.maximum(answers, 1 - answers).amin(1), chosen


def _drawn(split: Split, seed: int) -> Split:
    """Return the images to compare with each other: all, or so many drawn at random."""
    if len(split) <= COMPARED:
        return split
    rows = torch.randperm(len(split), generator=torch.Generator().manual_seed(seed))[:COMPARED]
    return split.select(rows.sort().values)


def _leak(result: Any, case: Case) -> Any:
    """Return a result with the share of leaked images, which codes cannot tell."""
    return replace(result, leaked=case.leaked)


def _closed(case: Case) -> ClosedResult:
    found: ClosedResult = _leak(evaluate_closed(case.coded, case.split, case.labels), case)
    return found


def _several(case: Case) -> MultilabelResult:
    found: MultilabelResult = _leak(evaluate_multilabel(case.coded, case.split, case.labels), case)
    return found


def _calibration(case: Case) -> CalibrationFigures:
    before, truth = uncalibrated(case.coded), case.targets
    asked, columns = case.coded, list(range(len(case.names)))
    if case.several:
        asked, truth = asked_truths(case.coded, case.split, case.labels)
        columns = [case.classifier.labels.index(name) for name in asked.labels.names]
        before = before.select(asked.labels.names)
    codes = case.split.images.to(case.coded.codes.device)
    with torch.no_grad():
        raw = before.scores_of_codes(codes).cpu()
    scores = case.scores[:, columns]
    truth = truth.cpu()

    def bins(classifier: Classifier, given: Tensor) -> Reliability:
        if case.several:
            return reliability(classifier.answers(given).flatten(), truth.flatten())
        sure, chosen = classifier.probabilities(given).max(1)
        return reliability(sure, chosen == truth)

    return CalibrationFigures(
        errors_before=calibration_errors(before, raw, truth),
        errors_after=calibration_errors(asked, scores, truth),
        before=bins(before, raw),
        after=bins(asked, scores),
    )


def _each(case: Case, chosen: Tensor) -> tuple[LabelFigures, ...]:
    k = len(case.names)
    counts = confusion_matrix(chosen, case.targets, k)
    images, said, hits = counts.sum(1).tolist(), counts.sum(0).tolist(), counts.diagonal().tolist()
    shares = class_accuracies(chosen, case.targets, k).tolist()
    wrong = counts.clone().fill_diagonal_(0)
    most, place = (piece.tolist() for piece in wrong.max(1))
    return tuple(
        LabelFigures(
            label=name,
            images=images[i],
            accuracy=shares[i] if images[i] else None,
            precision=hits[i] / said[i] if said[i] else None,
            mistaken=(case.names[place[i]], most[i]) if most[i] else None,
        )
        for i, name in enumerate(case.names)
    )


def _each_of_several(case: Case, result: MultilabelResult) -> tuple[LabelFigures, ...]:
    asked, truths = asked_truths(case.coded, case.split, case.labels)
    truths = truths.cpu()
    columns = [case.classifier.labels.index(name) for name in asked.labels.names]
    yes = asked.answers(case.scores[:, columns]) >= 0.5
    _, f1 = f1_scores(yes, truths)
    images, said, hits = truths.sum(0).tolist(), yes.sum(0).tolist(), (yes & truths).sum(0).tolist()
    return tuple(
        LabelFigures(
            label=name,
            images=images[i],
            accuracy=hits[i] / images[i] if images[i] else None,
            precision=hits[i] / said[i] if said[i] else None,
            average_precision=result.average_precision[name],
            f1=float(f1[i]) if images[i] else None,
        )
        for i, name in enumerate(asked.labels.names)
    )


def _unknown(case: Case) -> UnknownFigures:
    device = case.coded.codes.device
    codes = case.split.images.to(device)
    with torch.no_grad():
        known = outlier_scores(case.coded, codes).cpu()
        strange = None if case.strange is None else outlier_scores(case.coded, case.strange).cpu()
        result = None if case.strange is None else evaluate_outliers(case.coded, codes, case.strange)
    rule = case.classifier.outlier
    return UnknownFigures(known=known, strange=strange, limit=None if rule is None else rule.limit, result=result)


def _zero_shot(case: Case) -> ZeroShotResult:
    if case.several:
        raise DataError("Several labels may be true of one image, so seen and unseen labels do not compete.")
    if not case.classifier.described:
        raise DataError("Every label of this classifier had images; none is known from a description alone.")
    found: ZeroShotResult = _leak(evaluate_zero_shot(case.coded, case.split, case.labels), case)
    return found


def _ordinal(case: Case) -> OrdinalResult:
    if case.several or case.classifier.multilabel:
        raise DataError("Several labels may be true of one image, so there is no level to be off by.")
    if find_order(case.classifier, case.labels) is None:
        raise DataError("The labels have no order.")
    found: OrdinalResult = _leak(evaluate_ordinal(case.coded, case.split, case.labels), case)
    return found


def _verification(case: Case, part: Split, seed: int) -> VerificationResult:
    found: VerificationResult = _leak(evaluate_verification(case.coded, part, most=PAIRS, seed=seed), case)
    return found


def _det(case: Case, part: Split, found: VerificationResult, seed: int) -> DetCurve:
    codes = part.images.to(case.coded.codes.device)
    return det_curve(*scored_pairs(case.coded.model, codes, part.targets, found.by, (PAIRS, seed)))


def _plane(classifier: Classifier) -> Tensor:
    """Return where labels lie ``[k, 2]``: the two directions in which their codes differ most."""
    codes = classifier.codes.detach().double().cpu().flatten(1)
    if len(codes) < 3 or codes.shape[1] < 2:
        raise DataError(f"{len(codes)} labels with codes of {codes.shape[1]} numbers do not span a plane.")
    if float(codes.std(0).max()) < 1e-12:
        raise DataError("All label codes are the same.")
    return torch.from_numpy(find_plane("pca").fit_transform(codes.numpy()))
