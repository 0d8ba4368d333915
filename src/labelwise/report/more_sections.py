"""More sections of a report: ordered labels, pairs of pictures, retrieval, the map of labels, training, speed, what was left out."""

import math
import platform
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import torch

from labelwise import __version__
from labelwise.ops.detection import DetCurve
from labelwise.pages import percent, table
from labelwise.report.case import Case
from labelwise.report.findings import Findings
from labelwise.report.maps import label_map
from labelwise.report.sections import DET_TICKS, Section, plot
from labelwise.report.svg import Axis, Series, draw, range_of

POINTS = 200  # of a curve, at most
STAGES = 6  # that are drawn, at most
MAPPED = 400  # labels, at most


def ordinal(found: Findings) -> Section | None:
    """Return the figures of ordered labels."""
    result = found.ordinal
    if result is None:
        return None
    rows = [
        [
            words,
            percent(one.accuracy),
            f"{one.mean_absolute_error:.3f}",
            "—" if one.kappa is None else f"{one.kappa:.3f}",
            percent(one.within_one),
        ]
        for words, one in (("the most probable level", result.best), ("the median of probabilities", result.median))
    ]
    head = ("what is said", "accuracy", "levels off", "kappa (quadratic)", "within one")
    words = f"{len(result.levels)} levels, from {escape(result.levels[0])} to {escape(result.levels[-1])}. "
    words += "" if result.spearman is None else f"Rank correlation (Spearman) {result.spearman:.3f}. "
    words += (
        f"Intervals that should hold {percent(result.coverage)} of the true levels hold {percent(result.covered)}, with "
        f"{result.width:.1f} levels each."
    )
    return Section("ordinal", "Ordered labels", f"<p>{words}</p>{table(head, rows)}")


def det_series(curve: DetCurve, name: str, colour: int, eer: float) -> list[Series]:
    """Return a DET curve and the point where both errors are equal."""
    low, high = DET_TICKS[0], DET_TICKS[-1]
    shown = (curve.false_accepts <= high) & (curve.misses <= high)
    points = list(zip(curve.false_accepts[shown].tolist(), curve.misses[shown].tolist(), strict=True))
    last = max((i for i, (x, y) in enumerate(points) if x >= low or y >= low), default=-1)
    kept = points[: last + 1]
    return [
        Series(points=kept[:: max(1, len(kept) // POINTS)], name=f"{name}EER {percent(eer)}", colour=colour),
        Series(points=[(eer, eer)], colour=colour, kind="dots", sizes=[4]),
    ]


def det_plot(series: Sequence[Series]) -> str:
    """Return the plot of DET curves on axes of normal deviates."""
    x, y = (
        Axis(label=label, low=DET_TICKS[0], high=DET_TICKS[-1], ticks=DET_TICKS, form="percent", probit=True)
        for label in ("different pairs called the same", "same pairs missed")
    )
    return draw(series, x, y, title="Detection error trade-off of pairs of pictures")


def pairs(case: Case, found: Findings) -> Section | None:
    """Return how well pairs of one label are told from others, and how well images find others of their label."""
    result, retrieval, parts, chart = found.verification, found.retrieval, [], ""
    if result is not None and found.det is not None:
        rows = [
            ["equal error rate (EER)", percent(result.eer)],
            ["least detection cost (minDCF)", f"{result.min_dcf:.3f}"],
            ["AUROC", percent(result.auroc)],
            ["pairs of one label, of different labels", f"{result.same}, {result.different}"],
        ]
        if result.misses is not None and result.false_accepts is not None:
            rows.append(["at its own threshold: missed", percent(result.misses)])
            rows.append(["at its own threshold: falsely accepted", percent(result.false_accepts)])
        chart = plot(det_plot(det_series(found.det, "", 0, result.eer)), "Both errors at every threshold (DET).")
        parts.append(f"<h3>Same or different</h3>{table((), rows)}")
    if retrieval is not None:
        rows = [[f"R@{k}", percent(value)] for k, value in retrieval.recall.items()]
        rows.append(["mean average precision at R", percent(retrieval.precision_at_r)])
        words = f"{retrieval.queries} images ask for others of their label among {retrieval.images}."
        parts.append(f"<h3>Retrieval</h3><p>{words}</p>{table((), rows)}")
    if not parts:
        return None
    drawn = "" if found.compared == len(case) else f" {found.compared} images were drawn at random for this."
    words = f"Codes of pictures are compared, not labels, so this works for labels that it was never trained on, too.{drawn}"
    return Section(
        "pairs",
        "Comparing pictures",
        f'<p class="soft">{words}</p><div class="beside">{chart}<div>{"".join(parts)}</div></div>',
    )


def labels_map(case: Case, found: Findings) -> Section | None:
    """Return the map of label codes."""
    if found.plane is None:
        return None
    names, shown = case.names[:MAPPED], found.plane[:MAPPED]
    described = case.classifier.unseen
    svg, missing = label_map(shown, names, [1 if name in described else 0 for name in names])
    words = "Each label at the two directions in which label codes differ most (PCA): near ones are alike to the model."
    words += " Orange ones are known from a description alone." if described else ""
    words += f" {missing} names found no room; rest on a dot to read its name." if missing else ""
    words += f" The first {MAPPED} of {len(case.names)} labels." if len(case.names) > MAPPED else ""
    return Section("map", "Map of labels", f"<figure>{svg}<figcaption>{words}</figcaption></figure>")


def training(case: Case) -> Section:
    """Return the curves of each stage of training, and how it went."""
    stages: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for entry in case.log:
        if "loss" in entry and "epoch" in entry:
            key = (int(entry.get("stage_number", 0)), str(entry.get("stage", "")))
            stages.setdefault(key, []).append(entry)
    charts = [chart for (_, name), lines in list(stages.items())[:STAGES] for chart in _stage(name, lines)]
    about = case.classifier.origin.summary.get("training", {})
    method = case.method
    facts = {
        "method": method,
        "data": about.get("data"),
        "training images": about.get("images"),
        "validation images": about.get("validation_images"),
        "seconds": about.get("seconds"),
        "device": about.get("device"),
        "seed": about.get("seed"),
        "torch": about.get("torch"),
    }
    told = "".join(
        f"<div><dt>{key}</dt><dd>{escape(str(value))}</dd></div>" for key, value in facts.items() if value is not None
    )
    lead = f'<dl class="facts">{told}</dl>' if told else ""
    if not charts:
        lead += '<p class="soft">No log of epochs lies beside the classifier, so there are no curves.</p>'
    if len(stages) > STAGES:
        lead += f'<p class="soft">The first {STAGES} of {len(stages)} stages.</p>'
    return Section("training", "Training", f'{lead}<div class="charts">{"".join(charts)}</div>')


def _stage(name: str, lines: Sequence[Mapping[str, Any]]) -> list[str]:
    epochs = [int(line["epoch"]) + 1 for line in lines]
    x = Axis(label="epoch", low=min(epochs), high=max(epochs), ticks=_whole(min(epochs), max(epochs)))
    kind: Any = "both" if len(lines) <= 12 else "line"
    terms = list(lines[-1].get("terms", {}))
    losses = [
        Series(
            points=[(e, _number(line["loss"])) for e, line in zip(epochs, lines, strict=True)], name="loss", kind=kind
        )
    ]
    if 1 < len(terms) <= 4:
        losses += [
            Series(
                points=[(e, _number(line.get("terms", {}).get(term))) for e, line in zip(epochs, lines, strict=True)],
                name=term,
                colour=1 + i,
                dashed=True,
            )
            for i, term in enumerate(terms)
        ]
    low, high = range_of([y for one in losses for _, y in one.points])
    y = Axis(label="loss", low=low, high=high)
    out = [
        plot(
            draw(losses, x, y, title=f"Training loss of stage {name}"),
            f"Stage {escape(name)}: loss on training images.",
        )
    ]
    merits = [(e, _number(line.get("validation"))) for e, line in zip(epochs, lines, strict=True)]
    if any(math.isfinite(value) for _, value in merits):
        low, high = range_of([value for _, value in merits])
        best = max((value, -epoch) for epoch, value in merits if math.isfinite(value))
        series = [Series(points=merits, name="validation", colour=2, kind=kind)]
        svg = draw(series, x, Axis(label="validation", low=low, high=high), title=f"Validation figure of stage {name}")
        out.append(plot(svg, f"Stage {escape(name)}: figure of merit, {best[0]:.4g} at best in epoch {-best[1]}."))
    return out


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _whole(low: int, high: int) -> tuple[float, ...]:
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**9) if (high - low) / s <= 8)
    return tuple(float(v) for v in range(-(-low // step) * step, high + 1, step)) or (float(low),)


def speed(cases: Sequence[Case]) -> Section:
    """Return how quickly images are answered on this machine."""
    rows = [
        [
            escape(case.name),
            f"{case.speed.images_per_second:,.0f}".replace(",", "\u202f"),
            str(case.speed.batch),
            f"{case.speed.milliseconds:.2f} ms",
            f"{sum(p.numel() for p in case.classifier.model.parameters()):,}".replace(",", "\u202f"),
        ]
        for case in cases
    ]
    first = cases[0].speed
    words = (
        f"Measured here, on {first.device} with {first.threads} CPU thread{'' if first.threads == 1 else 's'} "
        f"({escape(platform.machine())}, torch {escape(torch.__version__)}, labelwise {__version__}): from decoded images to scores, "
        "the median of several rounds. Reading files is not part of it."
    )
    head = ("classifier", "images per second", "at a time", "one image alone", "parameters")
    return Section("speed", "Speed", f'<p class="soft">{words}</p>{table(head, rows)}')


def left_out(reasons: Mapping[str, str]) -> Section | None:
    """Return in one line each why a section is not on the page."""
    if not reasons:
        return None
    items = "".join(f"<li><strong>{escape(what)}</strong>: {escape(why)}</li>" for what, why in reasons.items())
    return Section("left-out", "Not on this page", f'<ul class="soft">{items}</ul>')


def repeat(commands: Sequence[str]) -> Section | None:
    """Return the commands that make the classifier and this page again."""
    if not commands:
        return None
    lines = escape("\n".join(commands))
    return Section("repeat", "Do it again", f'<pre class="wide"><code>{lines}</code></pre>')
