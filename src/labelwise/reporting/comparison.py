"""Compare several classifiers on the same test images."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from labelwise.evaluation.paired import compare_answers
from labelwise.reporting.case import Case
from labelwise.reporting.examples import answer_words, small, truth
from labelwise.reporting.pages import percent


def compare(cases: Sequence[Case], seed: int, most: int) -> dict[str, Any]:
    """Return the comparison of the first classifier with the others, with curves for ``plots``.

    ``seed`` is of the bootstrap; twice ``most`` images are shown.
    """
    kind = "answer_ece" if cases[0].evaluation.multilabel else "ece"
    right = np.stack([case.right for case in cases])
    partly_right = right.any(0) & ~right.all(0)
    sure = np.mean([case.sure for case in cases], 0, np.float64)
    rows = np.argsort(-np.where(partly_right, sure, -1.0), kind="stable")[: min(int(partly_right.sum()), 2 * most)]
    errors = [percent(case.calibration.errors_after[kind]) for case in cases]
    return {
        "paired": [(case.name, compare_answers(right[0], case.right, seed=seed)) for case in cases[1:]],
        "reliability": [
            (f"{case.name}: {error}", case.calibration.after, i)
            for i, (case, error) in enumerate(zip(cases, errors, strict=True))
        ],
        "det": [
            (case.name, case.verification.eer, case.verification.curve, i)
            for i, case in enumerate(cases)
            if case.verification
        ],
        "mixed": int(partly_right.sum()),  # images that only some answer right
        "disagreements": [_disagreement(cases, row) for row in rows.tolist()],  # the most confident of them
    }


def _disagreement(cases: Sequence[Case], row: int) -> dict[str, Any]:
    split = cases[0].evaluation.split
    return {
        "image": small(split.images.select([row]), split.files[row]),
        "answers": [(case.name, bool(case.right[row]), answer_words(case, row)) for case in cases],
        "truth": truth(cases[0], row),
        "file": split.files[row],
    }
