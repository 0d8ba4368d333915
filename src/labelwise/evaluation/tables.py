"""Format figures as tables, for the shell and for ``print`` in Python."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labelwise.support.text import FIGURES

if TYPE_CHECKING:
    from labelwise.evaluation.figures import Figures, LabelFigures

LISTED = 40  # labels in a table, at most
MATRIX = 12  # labels up to which the confusion matrix is a table
CONFUSED = 15  # confusions that are listed of more labels
FEW = 3  # labels up to which all thresholds are listed
LABEL_HEADS = ("label", ">images", ">recall", ">95 %", ">precision", ">95 %", ">average precision")
THRESHOLD_HEADS = ("label", ">threshold", ">precision", ">95 %", ">recall", ">95 %")
ABOUT_THRESHOLDS = "thresholds; to set one: labelwise calibrate --threshold LABEL=P"
RULES = {"taught": "as teach does"}
Row = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FigureTable:
    """Rows of text under heads; a head that begins with ``>`` is that of numbers. Notes come below."""

    heads: Row
    rows: Sequence[Row]
    title: str = ""
    notes: Sequence[str] = ()


def tables(figures: "Figures") -> Iterator[FigureTable]:
    """Yield the main figures, those of each label, confusions, thresholds, and each other protocol."""
    if figures.accuracy is not None:
        yield FigureTable(heads=(f"{figures.test_set.data}, {figures.test_set.name}", ">"), rows=main_rows(figures))
        order = sorted(figures.labels, key=lambda one: (one.recall is None, one.recall))
        yield FigureTable(
            heads=LABEL_HEADS, rows=list(map(_label_row, order[:LISTED])), notes=_more_line(len(order) - LISTED)
        )
        yield from _confusions(figures)
        if rows := threshold_rows(figures, LISTED):
            more_line = _more_line(len(figures.operating) - LISTED)
            yield FigureTable(heads=THRESHOLD_HEADS, rows=rows, title=ABOUT_THRESHOLDS, notes=more_line)
    for name, table_of in OTHERS.items():
        if figures.results.get(name):
            yield table_of(figures.results[name])


def as_text(parts: Iterable[FigureTable]) -> str:
    """Return tables as text, with an empty line between."""
    return "\n\n".join("\n".join([*filter(None, [table.title]), _aligned(table), *table.notes]) for table in parts)


def main_rows(figures: "Figures") -> list[Row]:
    """Return the main figures, each in words and as text."""
    rows: list[Row] = [(FIGURES["images"], str(figures.images))]
    if figures.accuracy is not None and figures.interval is not None:
        key = "exact" if "multilabel" in figures.results else "accuracy"
        rows.append((FIGURES[key], _ranged(figures.accuracy, figures.interval)))
    if figures.baseline:
        rows.append((FIGURES["baseline"].format(label=figures.baseline[0]), percent(figures.baseline[1])))
    for name, prefix in (("closed", ""), ("multilabel", ""), ("unknown", "unknown_")):
        values = vars(figures.results[name]) if name in figures.results else {}
        for key, value in values.items():
            if key not in ("images", "accuracy", "exact", "average_precision"):
                interval = figures.balanced_interval if key == "balanced_accuracy" else None
                rows.append((FIGURES[prefix + key], str(value) if isinstance(value, int) else _ranged(value, interval)))
        if name == "closed" and figures.mean_average_precision is not None:
            rows.append((FIGURES["mean_label_precision"], percent(figures.mean_average_precision)))
    return rows


def _label_row(figures: "LabelFigures") -> Row:
    return (
        figures.label,
        str(figures.images),
        *_with_interval(figures.recall, figures.recall_interval),
        *_with_interval(figures.precision, figures.precision_interval),
        percent(figures.average_precision),
    )


def _confusions(figures: "Figures") -> Iterator[FigureTable]:
    """Yield the confusion matrix, of many labels the most frequent confusions."""
    names, counts = figures.label_names, figures.confusion
    if counts is None:
        return
    if len(names) <= MATRIX:
        heads = (f">{number}" for number in range(1, len(names) + 1))
        numbered = enumerate(zip(names, counts.tolist(), strict=True), 1)
        rows: list[Row] = [(f"{i} {name}", *map(str, row)) for i, (name, row) in numbered]
        yield FigureTable(heads=("true label, by answer", *heads), rows=rows)
    elif confusions := figures.confusions()[:CONFUSED]:
        rows = [(true, answer, str(count)) for true, answer, count in confusions]
        yield FigureTable(heads=("true label", "answer", ">images"), rows=rows)


def threshold_rows(figures: "Figures", most: int) -> list[Row]:
    """Return label, threshold, precision and recall: the classifier's own threshold of each label, and the best on these images.

    Of few labels (``FEW``) come more thresholds between. At most ``most`` labels, the lowest average precision first.
    """
    rows: list[Row] = []
    for label in sorted(figures.operating, key=lambda label: label.average_precision)[:most]:
        marked_points = {label.best.threshold: (label.best, " best")}
        marked_points |= {label.chosen.threshold: (label.chosen, " chosen")} if label.chosen else {}
        extra_points = label.points[1::2] if len(figures.operating) <= FEW else ()
        points = {point.threshold: (point, "") for point in extra_points} | marked_points
        for place, threshold in enumerate(sorted(points)):
            point, word = points[threshold]
            shares = (
                *_with_interval(point.precision, point.precision_interval),
                *_with_interval(point.recall, point.recall_interval),
            )
            rows.append(("" if place else label.label, f"{threshold:.2f}{word}", *shares))
    return rows


def _zero_shot(result: Any) -> FigureTable:
    """Return the figures of seen and unseen labels."""
    keys = ("unseen", "seen", "harmonic")
    rows: list[Row] = [("choice among unseen labels", percent(result.zero_shot), "", "")]
    for words, end in (
        (f"all labels, with a seen penalty (gap) of {result.gap:.3f}", ""),
        ("all labels, without the seen penalty", "_without_gap"),
    ):
        rows.append((words, *(percent(getattr(result, key + end)) for key in keys)))
    return FigureTable(
        title=f"zero-shot: {result.unseen_labels} labels had no training images (unseen), {result.seen_labels} had (seen)",
        heads=("accuracy, mean over labels", *(f">{FIGURES[key]}" for key in keys)),
        rows=rows,
        notes=[f"{FIGURES['area']}: {result.area:.3f}"],
    )


PROMISE_HEADS = ("promised", ">measured", ">95 %", "answers")


def _promises(result: Any) -> FigureTable:
    """Return promised and measured shares."""
    title = f"promised and measured, {result.images} images kept out of training"
    return FigureTable(title=title, heads=PROMISE_HEADS, rows=promise_rows(result))


def promise_rows(result: Any) -> list[Row]:
    """Return what was promised, what was measured with its interval, and what the answers were."""
    rows: list[Row] = []
    for entry in result.errors:
        names = ("label", "parent", *(f"parent {depth}" for depth in range(2, len(entry.depths))))
        shares = (*zip(names, entry.depths, strict=False), ("unsure", entry.unsure), ("unknown", entry.unknown))
        words = ", ".join(f"{name} {percent(share)}" for name, share in shares)
        rows.append((f"at most {100 * entry.promise:g} % wrong", *_to_a_tenth(entry.wrong, entry.interval), words))
    for entry in result.lists:
        words = f"{entry.size:.1f} labels on average; one label in {percent(entry.single)}"
        rows.append(
            (f"{100 * entry.promise:g} % of lists hold the label", *_to_a_tenth(entry.covered, entry.interval), words)
        )
    return rows


def _to_a_tenth(share: float, interval: tuple[float, float]) -> tuple[str, str]:
    return percent(share), "{:.1f} to {:.1f}".format(*(100 * end for end in interval))


def _ordinal(result: Any) -> FigureTable:
    """Return the figures of ordered labels."""
    rows = []
    for key in ("accuracy", "mean_absolute_error", "kappa", "within_one"):
        form = percent if key in ("accuracy", "within_one") else "{:.3f}".format
        values = (getattr(entry, key) for entry in (result.best, result.median))
        rows.append((FIGURES[key], *("" if value is None else form(value) for value in values)))
    shares = {"wanted": percent(result.coverage), "share": percent(result.covered)}
    notes = [] if result.spearman is None else [f"{FIGURES['spearman']}: {result.spearman:.3f}"]
    return FigureTable(
        title=f"ordered labels: {result.levels[0]} to {result.levels[-1]}",
        heads=("predicted level", ">most probable level", ">median level"),
        rows=rows,
        notes=[*notes, FIGURES["covered"].format(**shares, width=result.width)],
    )


def _verification(results: Any) -> FigureTable:
    """Return how well same-label pairs are separated from others, by each score."""
    forms = (("eer", percent), ("min_dcf", "{:.3f}".format), ("auroc", percent))
    return FigureTable(
        title=f"pairs of {next(iter(results.values())).images} images: the same label?",
        heads=("compared by", *(f">{by}" for by in results)),
        rows=[
            (FIGURES[f"pair_{key}"], *(form(getattr(entry, key)) for entry in results.values())) for key, form in forms
        ],
    )


def _retrieval(results: Any) -> FigureTable:
    """Return how well images find others of their label, by each score."""
    first = next(iter(results.values()))
    rows = [
        (FIGURES["recall_at"].format(k=k), *(percent(entry.recall[k]) for entry in results.values()))
        for k in first.recall
    ]
    rows.append((FIGURES["precision_at_r"], *(percent(entry.precision_at_r) for entry in results.values())))
    return FigureTable(
        title=f"{first.queries} images search for others of their label among {first.images}",
        heads=("compared by", *(f">{by}" for by in results)),
        rows=rows,
    )


def _episodes(results: Any) -> FigureTable:
    """Return how well new labels are learnt from one and from five images."""
    return FigureTable(
        title=f"new labels from a few images (few-shot): {FIGURES['accuracy']}",
        heads=("", *(f">{RULES.get(rule, rule)}" for rule in results[0].accuracy)),
        rows=[
            (
                f"{entry.settings.ways} labels, {entry.settings.shots} image{'s' * (entry.settings.shots > 1)} of each",
                *map(str, entry.accuracy.values()),
            )
            for entry in results
        ],
    )


OTHERS: Mapping[str, Callable[[Any], FigureTable]] = {
    "promises": _promises,
    "zero_shot": _zero_shot,
    "ordinal": _ordinal,
    "verification": _verification,
    "retrieval": _retrieval,
    "episodes": _episodes,
}


def percent(share: float | None) -> str:
    """Format a share as a percentage with one decimal; a dash for None."""
    return "—" if share is None else f"{100 * share:.1f} %"


def _more_line(count: int) -> list[str]:
    return [f"and {count} labels more: --json"] if count > 0 else []


def _with_interval(share: float | None, interval: tuple[float, float]) -> tuple[str, str]:
    return ("—", "") if share is None else (percent(share), "{:.0f} to {:.0f}".format(*(100 * end for end in interval)))


def _ranged(share: float, interval: tuple[float, float] | None) -> str:
    return percent(share) + ("" if interval is None else f" ({percent(interval[0])} to {percent(interval[1])})")


def _aligned(table: FigureTable) -> str:
    """Return a table as lines; numbers stand to the right."""
    right = [head.startswith(">") for head in table.heads]
    rows = [tuple(head.lstrip(">") for head in table.heads), *table.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, right, strict=True)
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
