"""Plots of a report: reliability, outlier scores, seen over unseen accuracy, errors of pairs, training."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from labelwise.core.metrics import DetCurve, Reliability, wilson
from labelwise.evaluation.promises import PromiseResult
from labelwise.evaluation.zero_shot import ZeroShotResult
from labelwise.reporting.findings import UnknownFigures
from labelwise.reporting.pages import percent
from labelwise.reporting.svg import Axis, Plot, Series, draw, range_of, round_values
from labelwise.support.text import FIGURES

BARS = 30
POINTS = 200  # most points of a curve
STAGES = 6  # most curves
SHARES = (0, 0.25, 0.5, 0.75, 1)
ERRORS = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5)


def reliability(lines: Sequence[tuple[str, Reliability, int]], several: bool) -> Plot:
    """Plot reliability lines, each a name, bins and a colour; ``several`` labels are yes/no questions."""
    labels = ("probability of a yes", "share of yes") if several else ("probability of the answer", "answers right")
    ideal = Series(points=[(0, 0), (1, 1)], name="perfect calibration", colour=5, dashed=True)
    x, y = (Axis(label=label, form="percent", ticks=SHARES) for label in labels)
    series = [ideal, *(_bins(*line) for line in lines)]
    return draw(series, x, y, title="Reliability: accuracy of answers by probability")


def _bins(name: str, bins: Reliability, colour: int) -> Series:
    """Return nonempty bins with 95 % intervals; larger dots have more answers."""
    full = bins.count > 0
    points = list(zip(bins.confidence[full].tolist(), bins.accuracy[full].tolist(), strict=True))
    counts = bins.count[full].tolist()
    total = max(sum(counts), 1)
    titles = [
        f"{c} answers, probability {percent(x)}, right {percent(y)}" for (x, y), c in zip(points, counts, strict=True)
    ]
    sizes = [2.5 + 5 * (c / total) ** 0.5 for c in counts]
    bars = [wilson(y, c) for (_, y), c in zip(points, counts, strict=True)]
    return Series(points=points, name=name, colour=colour, kind="both", sizes=sizes, bars=bars, titles=titles)


def promised_errors(result: PromiseResult) -> Plot:
    """Plot measured against promised error rates."""
    points = [(entry.promise, entry.wrong, entry.interval) for entry in result.errors]
    return _promise_plot(
        points, "wrong answers", 0, max(max(entry.promise, entry.interval[1]) for entry in result.errors) * 1.1
    )


def promised_lists(result: PromiseResult) -> Plot:
    """Plot measured against promised list coverage."""
    points = [(entry.promise, entry.covered, entry.interval) for entry in result.lists]
    return _promise_plot(
        points, "lists with the right label", min(0.75, *(entry.interval[0] for entry in result.lists)), 1
    )


def _promise_plot(
    points: Sequence[tuple[float, float, tuple[float, float]]], title: str, low: float, high: float
) -> Plot:
    titles = [f"promised {percent(promise)}, measured {percent(share)}" for promise, share, _ in points]
    series = [
        Series(points=[(low, low), (high, high)], name="as promised", colour=5, dashed=True),
        Series(
            points=[(promise, share) for promise, share, _ in points],
            name="measured",
            kind="both",
            bars=[interval for _, _, interval in points],
            titles=titles,
        ),
    ]
    x, y = (Axis(label=f"{title}, {kind}", low=low, high=high, form="percent") for kind in ("promised", "measured"))
    return draw(series, x, y, title=f"Share of {title}: measured over promised")


def outlier_scores(figures: UnknownFigures) -> Plot:
    """Plot the histogram of outlier scores with the limit; the last bar includes larger scores."""
    kinds = [("test images of known labels", figures.known, 0)]
    if figures.outliers is not None:
        kinds.append(("unknown images", figures.outliers, 1))
    limit = None if figures.limit is None else (figures.limit, "unknown →")
    values = sorted(score for _, scores, _ in kinds for score in scores.tolist())
    usual = values[min(len(values) - 1, int(0.995 * len(values)))]
    low, high = range_of([values[0], usual, *(limit or ())[:1]])
    series = []
    for name, scores, colour in kinds:
        counts = np.histogram(np.clip(scores, low, high), BARS, (low, high))[0]
        shares = (counts / len(scores)).tolist()
        points = [(low + i * (high - low) / BARS, share) for i, share in enumerate(shares)] + [(high, 0.0)]
        series.append(Series(points=points, name=f"{name} ({len(scores)})", colour=colour, kind="steps"))
    top = max(y for line in series for _, y in line.points)
    x = Axis(label=FIGURES["outlier_score"], low=low, high=high)
    y = Axis(label="share of images", high=top * 1.12, form="percent")
    return draw(series, x, y, title="Histogram of outlier scores with the threshold", limit=limit)


def seen_over_unseen(result: ZeroShotResult) -> Plot:
    """Plot both accuracies for every gap, with no gap and the chosen gap marked."""
    curve = list(zip(result.curve.unseen.tolist(), result.curve.seen.tolist(), strict=True))
    point_without_gap = (result.unseen_without_gap, result.seen_without_gap)
    caption = f"chosen gap {result.gap:.3g}"
    series = [
        Series(points=curve, name=f"every gap, area {result.area:.3f}"),
        Series(points=[point_without_gap], name="no gap", colour=1, kind="dots", sizes=[5]),
        Series(points=[(result.unseen, result.seen)], name=caption, colour=2, kind="dots", sizes=[5]),
    ]
    x, y = (
        Axis(label=f"accuracy on labels {FIGURES[kind]}", form="percent", ticks=SHARES) for kind in ("unseen", "seen")
    )
    return draw(series, x, y, title="Accuracy on seen labels over accuracy on unseen labels")


def det(curves: Sequence[tuple[str, float, DetCurve, int]]) -> Plot:
    """Plot DET curves on normal-deviate axes, each a name, an equal error rate, the curve and a colour."""
    x, y = (
        Axis(label=label, low=ERRORS[0], high=ERRORS[-1], ticks=ERRORS, form="percent", probit=True)
        for label in ("different pairs called the same", "same pairs missed")
    )
    series = [line for curve in curves for line in _errors(*curve)]
    return draw(series, x, y, title="Detection error trade-off of pairs of images")


def _errors(name: str, eer: float, curve: DetCurve, colour: int) -> list[Series]:
    low, high = ERRORS[0], ERRORS[-1]
    inside = (curve.false_accepts <= high) & (curve.misses <= high)
    points = list(zip(curve.false_accepts[inside].tolist(), curve.misses[inside].tolist(), strict=True))
    last = max((i for i, (x, y) in enumerate(points) if x >= low or y >= low), default=-1)
    points = points[: last + 1]
    words = f"{name}: {percent(eer)} (EER)" if name else f"{FIGURES['pair_eer']}: {percent(eer)}"
    return [
        Series(points=points[:: max(1, len(points) // POINTS)], name=words, colour=colour),
        Series(points=[(eer, eer)], colour=colour, kind="dots", sizes=[4]),
    ]


def training(log: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the name of each training stage, its loss, and its validation figure if any."""
    stages: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for entry in log:
        if "loss" in entry and "epoch" in entry:
            key = (int(entry.get("stage_number", 0)), str(entry.get("stage", "")))
            stages.setdefault(key, []).append(entry)
    return [_stage(name, lines) for (_, name), lines in stages.items()]


def _stage(name: str, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    epochs = [int(line["epoch"]) + 1 for line in lines]
    x = Axis(
        label="epoch", low=min(epochs), high=max(epochs), ticks=round_values(min(epochs), max(epochs), 8, integers=True)
    )
    kind: Literal["line", "both"] = "both" if len(lines) <= 12 else "line"

    def points(values: Sequence[Any]) -> list[tuple[float, float]]:
        return [(e, float(v) if isinstance(v, int | float) else math.nan) for e, v in zip(epochs, values, strict=True)]

    def plot(series: Sequence[Series], caption: str, title: str) -> Plot:
        low, high = range_of([y for one in series for _, y in one.points])
        return draw(series, x, Axis(label=caption, low=low, high=high), title=f"{title} of stage {name}")

    losses = [Series(points=points([line["loss"] for line in lines]), name="loss", kind=kind)]
    terms = list(lines[-1].get("terms", {}))
    for i, term in enumerate(terms if 1 < len(terms) <= 4 else []):
        values = points([line.get("terms", {}).get(term) for line in lines])
        losses.append(Series(points=values, name=term, colour=1 + i, dashed=True))
    loss = plot(losses, "loss", "Training loss")
    merits = points([line.get("validation") for line in lines])
    finite = [(value, -epoch) for epoch, value in merits if math.isfinite(value)]
    if not finite:
        return {"name": name, "loss": loss, "merit": None}
    merit = plot([Series(points=merits, name="validation", colour=2, kind=kind)], "validation", "Validation figure")
    value, epoch = max(finite)
    return {"name": name, "loss": loss, "merit": merit, "best": f"{value:.4g} at best in epoch {-epoch:.0f}"}
