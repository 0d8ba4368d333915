"""Several classifiers on the same test images, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from labelwise.evaluate.paired import PairedResult, compare_answers
from labelwise.metrics import Reliability
from labelwise.ops.detection import DetCurve
from labelwise.report.case import Case
from labelwise.report.examples import answer_words, small, truth
from labelwise.report.pages import Picture, percent


class Disagreement(NamedTuple):
    """An image that some answer right and others wrong: its picture if any, each one's answer, the truth, the file."""

    picture: Picture | None
    answers: list[tuple[str, bool, str]]
    truth: str
    file: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """Classifiers beside each other, the first of which the others are measured against; curves as ``plots`` takes them."""

    paired: list[tuple[str, PairedResult]]
    reliability: list[tuple[str, Reliability, int]]
    det: list[tuple[str, float, DetCurve, int]]
    mixed: int  # how many images some answer right and others wrong
    disagreements: list[Disagreement]  # the surest of these


def compare(cases: Sequence[Case], seed: int, most: int) -> Comparison:
    """Return the comparison of classifiers; ``seed`` draws test images again, ``most`` is half of the images to show."""
    kind = "answer_ece" if cases[0].tested.multilabel else "ece"
    right = torch.stack([case.right for case in cases])
    mixed = right.any(0) & ~right.all(0)
    sure = torch.stack([case.sure for case in cases]).double().mean(0)
    rows = torch.where(mixed, sure, -1.0).argsort(descending=True, stable=True)[: min(int(mixed.sum()), 2 * most)]
    return Comparison(
        paired=[(case.name, compare_answers(right[0], case.right, seed=seed)) for case in cases[1:]],
        reliability=[
            (f"{case.name}: ECE {percent(case.calibration.errors_after[kind])}", case.calibration.after, i)
            for i, case in enumerate(cases)
        ],
        det=[
            (case.name, case.verification.eer, case.verification.curve, i)
            for i, case in enumerate(cases)
            if case.verification is not None
        ],
        mixed=int(mixed.sum()),
        disagreements=[_disagreement(cases, row) for row in rows.tolist()],
    )


def _disagreement(cases: Sequence[Case], row: int) -> Disagreement:
    split = cases[0].tested.split
    answers = [(case.name, bool(case.right[row]), answer_words(case, row)) for case in cases]
    return Disagreement(small(split.images[row], split.files[row]), answers, truth(cases[0], row), split.files[row])
