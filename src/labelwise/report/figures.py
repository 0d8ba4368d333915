"""The figures of a report as JSON can hold them."""

import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from torch import Tensor

from labelwise.metrics import Reliability
from labelwise.report.case import Case
from labelwise.report.cautions import cautions

PLAIN = [
    "method",
    "accuracy",
    "closed",
    "several",
    "each",
    "zero_shot",
    "ordinal",
    "verification",
    "retrieval",
    "speed",
    "left_out",
]


def case_figures(case: Case) -> dict[str, Any]:
    """Return all figures of a case."""
    errors, unknown = case.calibration, case.unknown
    figures: dict[str, Any] = {"model": case.name, "labels": len(case.names), "images": len(case)}
    figures |= {name: getattr(case, name) for name in PLAIN}
    figures["calibration"] = {
        "before": {**errors.errors_before, "bins": _bins(errors.before)},
        "after": {**errors.errors_after, "bins": _bins(errors.after)},
    }
    figures["confusion"] = None if case.confusion is None else _counts(case.confusion, case.names)
    figures["unknown"] = {"limit": unknown.limit, "figures": unknown.result}
    figures |= {"compared_images": case.compared, "leaked": case.tested.leaked, "warnings": cautions(case)}
    plain: dict[str, Any] = to_json(figures)
    return plain


def to_json(value: Any) -> Any:
    """Return a value as JSON can hold it: numbers that are not finite become None, and curves are left out."""
    if isinstance(value, Tensor):
        return to_json(value.tolist())
    if is_dataclass(value) and not isinstance(value, type):
        return to_json({name: part for name, part in vars(value).items() if name != "curve"})
    if isinstance(value, Mapping):
        return {str(key): to_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _bins(table: Reliability) -> list[dict[str, Any]]:
    rows = zip(table.confidence.tolist(), table.accuracy.tolist(), table.count.tolist(), strict=True)
    return [{"confidence": sure, "accuracy": right, "count": count} for sure, right, count in rows if count]


def _counts(counts: Tensor, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return each pair of a true and an answered label that occurs, the true labels in their order."""
    return [
        {"true": names[row], "said": names[column], "count": int(counts[row, column])}
        for row, column in counts.nonzero().tolist()
    ]
