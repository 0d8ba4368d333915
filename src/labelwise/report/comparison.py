"""Several classifiers on the same test images, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from labelwise.evaluate.paired import PairedResult, compare_answers
from labelwise.metrics import Reliability
from labelwise.ops.detection import DetCurve
from labelwise.report.case import Case
from labelwise.report.examples import is_picture, said, small, truth
from labelwise.report.figures import to_json
from labelwise.report.findings import Findings
from labelwise.report.pages import Picture, percent

Both = tuple[Case, Findings]


class Disagreement(NamedTuple):
    """An image that some answer right and others wrong: its picture if any, each one's answer, the truth, the file."""

    picture: Picture | None
    answers: list[tuple[str, bool, str]]
    truth: str
    file: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """Classifiers beside each other, the first of which the others are measured against.

    Attributes:
        paired: how each after the first differs from it.
        figures: by what they say, for each classifier; those that apply to one at least.
        reliability: the name, the bins and the colour of each.
        det: the name, the equal error rate, the curve and the colour of each that compares pictures.
        mixed: how many images some answer right and others wrong.
        disagreements: the surest of these.
    """

    paired: list[tuple[str, PairedResult]]
    figures: dict[str, list[float | None]]
    reliability: list[tuple[str, Reliability, int]]
    det: list[tuple[str, float, DetCurve, int]]
    mixed: int
    disagreements: list[Disagreement]


def compare(both: Sequence[Both], seed: int, most: int) -> Comparison:
    """Return the comparison of classifiers; ``seed`` draws test images again, ``most`` is half of the images to show."""
    first = both[0][1].right
    kind = "answer_ece" if both[0][0].tested.multilabel else "ece"
    right = torch.stack([found.right for _, found in both])
    mixed = right.any(0) & ~right.all(0)
    sure = torch.stack([found.sure for _, found in both]).double().mean(0)
    rows = torch.where(mixed, sure, -1.0).argsort(descending=True, stable=True)[: min(int(mixed.sum()), 2 * most)]
    return Comparison(
        paired=[(case.name, compare_answers(first, found.right, seed=seed)) for case, found in both[1:]],
        figures=_figures([found for _, found in both]),
        reliability=[
            (f"{case.name}: ECE {percent(found.calibration.errors_after[kind])}", found.calibration.after, i)
            for i, (case, found) in enumerate(both)
        ],
        det=[
            (case.name, found.verification.eer, found.det, i)
            for i, (case, found) in enumerate(both)
            if found.det is not None and found.verification is not None
        ],
        mixed=int(mixed.sum()),
        disagreements=[_disagreement(both, row) for row in rows.tolist()],
    )


def paired_figures(comparison: Comparison, first: str) -> list[dict[str, Any]]:
    """Return how each differs from the first, as JSON can hold it."""
    return [{"model": name, "against": first, **to_json(result)} for name, result in comparison.paired]


def _figures(every: Sequence[Findings]) -> dict[str, list[float | None]]:
    closed, several = [one.closed for one in every], [one.several for one in every]
    figures = {
        "accuracy": [one.accuracy if one else None for one in closed],
        "accuracy, mean of labels": [one.class_accuracy if one else None for one in closed],
        "mean average precision": [one.mean_average_precision if one else None for one in several],
        "micro F1": [one.micro_f1 if one else None for one in several],
        "every answer right": [one.exact if one else None for one in several],
        "calibration error (ECE)": [one.calibration.errors_after.get("ece") for one in every],
        "ECE of yes and no": [one.calibration.errors_after.get("answer_ece") for one in every],
        "strange pictures told (AUROC)": [r.auroc if (r := one.unknown.result) else None for one in every],
        "harmonic mean of seen, unseen": [z.harmonic if (z := one.zero_shot) else None for one in every],
        "within one level": [o.median.within_one if (o := one.ordinal) else None for one in every],
        "pairs: equal error rate": [v.eer if (v := one.verification) else None for one in every],
        "retrieval: R@1": [q.recall.get(1) if (q := one.retrieval) else None for one in every],
    }
    return {name: values for name, values in figures.items() if any(value is not None for value in values)}


def _disagreement(both: Sequence[Both], row: int) -> Disagreement:
    case = both[0][0]
    answers = [(one.name, bool(found.right[row]), said(one, found, row)) for one, found in both]
    shown = small(case.images[row], case.file(row)) if is_picture(case.images) else None
    return Disagreement(shown, answers, truth(case, row), case.file(row))
