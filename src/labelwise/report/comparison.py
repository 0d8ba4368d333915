"""Several classifiers on the same test images, side by side."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from labelwise.evaluate.paired import PairedResult, compare_answers
from labelwise.metrics import Reliability
from labelwise.ops.detection import DetCurve
from labelwise.report.case import Case
from labelwise.report.examples import said, small, truth
from labelwise.report.pages import Picture, percent


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


def compare(cases: Sequence[Case], seed: int, most: int) -> Comparison:
    """Return the comparison of classifiers; ``seed`` draws test images again, ``most`` is half of the images to show."""
    kind = "answer_ece" if cases[0].tested.multilabel else "ece"
    right = torch.stack([case.right for case in cases])
    mixed = right.any(0) & ~right.all(0)
    sure = torch.stack([case.sure for case in cases]).double().mean(0)
    rows = torch.where(mixed, sure, -1.0).argsort(descending=True, stable=True)[: min(int(mixed.sum()), 2 * most)]
    figures = {name: [get(case) for case in cases] for name, get in FIGURES.items()}
    return Comparison(
        paired=[(case.name, compare_answers(right[0], case.right, seed=seed)) for case in cases[1:]],
        figures={name: values for name, values in figures.items() if any(value is not None for value in values)},
        reliability=[
            (f"{case.name}: ECE {percent(case.calibration.errors_after[kind])}", case.calibration.after, i)
            for i, case in enumerate(cases)
        ],
        det=[
            (case.name, case.verification.eer, case.det, i)
            for i, case in enumerate(cases)
            if case.det is not None and case.verification is not None
        ],
        mixed=int(mixed.sum()),
        disagreements=[_disagreement(cases, row) for row in rows.tolist()],
    )


FIGURES: Mapping[str, Callable[[Case], float | None]] = {
    "accuracy": lambda case: case.closed and case.closed.accuracy,
    "accuracy, mean of labels": lambda case: case.closed and case.closed.class_accuracy,
    "mean average precision": lambda case: case.several and case.several.mean_average_precision,
    "micro F1": lambda case: case.several and case.several.micro_f1,
    "every answer right": lambda case: case.several and case.several.exact,
    "calibration error (ECE)": lambda case: case.calibration.errors_after.get("ece"),
    "ECE of yes and no": lambda case: case.calibration.errors_after.get("answer_ece"),
    "strange pictures told (AUROC)": lambda case: case.unknown.result and case.unknown.result.auroc,
    "harmonic mean of seen, unseen": lambda case: case.zero_shot and case.zero_shot.harmonic,
    "within one level": lambda case: case.ordinal and case.ordinal.median.within_one,
    "pairs: equal error rate": lambda case: case.verification and case.verification.eer,
    "retrieval: R@1": lambda case: case.retrieval and case.retrieval.recall.get(1),
}


def _disagreement(cases: Sequence[Case], row: int) -> Disagreement:
    split = cases[0].tested.split
    answers = [(case.name, bool(case.right[row]), said(case, row)) for case in cases]
    return Disagreement(small(split.images[row], split.files[row]), answers, truth(cases[0], row), split.files[row])
