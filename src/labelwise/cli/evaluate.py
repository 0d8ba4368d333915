"""The verb evaluate: figures on images that a classifier was not trained on."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import RenderableType
from typer import Option

from labelwise.cli.inputs import open_data_for, open_model, open_part, open_unknown
from labelwise.cli.options import Data, Model, SplitName, Unknown, shared
from labelwise.cli.output import PLOTS, note, one_line, percent, plain_table, show, warn_leaked
from labelwise.support.errors import DataError, UsageError, listing
from labelwise.support.words import FIGURES
from labelwise.support.writable import write_by

if TYPE_CHECKING:
    from labelwise.evaluation.figures import Figures

COUNTED = 12  # labels up to which the confusion matrix is shown as a table
LISTED = 15  # confusions that are listed of more labels
ABOUT_THRESHOLDS = "a label answered from a probability on; to keep one: calibrate --threshold LABEL=P"
RULES = {"taught": "as teach does"}
FOLDED = ("images", "groups", "accuracy", "balanced_accuracy", "ece", "unknown", "by_fold")
FOLDS_HELP = "Cross-validate by refitting this many times."
PROTOCOL_HELP = "Also verification, retrieval or episodes; repeatable."
ADVICE = ", so the figures are too good. Give test images a folder or a split of their own."


def evaluate(  # noqa: PLR0913 - the options of the verb
    model: Model,
    data: Data,
    split: SplitName = None,
    unknown: Unknown = None,
    protocol: Annotated[list[str] | None, Option(help=PROTOCOL_HELP)] = None,
    curve: Annotated[Path | None, Option("--out", help="A plot of seen over unseen accuracy (.png, .svg).")] = None,
    folds: Annotated[int | None, Option(min=2, help=FOLDS_HELP)] = None,
) -> None:
    """Measure a classifier on images it was not trained on."""
    from labelwise.evaluation.evaluate import evaluate as run

    if curve is not None and curve.suffix.lower() not in PLOTS:
        raise UsageError(f"The curve is written as {listing(PLOTS)}; given {curve}.")
    classifier = open_model(model)
    if folds is not None:
        if split or unknown or curve or protocol:
            raise UsageError(
                "--folds measures all labelled images, each once. Leave out --split, --unknown, --protocol and --out."
            )
        _show_folds(classifier, open_data_for(classifier, data), folds, str(model), data)
        return
    test_set = open_part(classifier, data, split)
    strange = None if unknown is None else open_unknown(classifier, unknown)
    figures = run(classifier, test_set, unknown=strange, protocols=protocol or ())
    if curve is not None:
        _draw(figures, curve)
    if figures.accuracy is None:
        note("The classifier knows none of these labels, so it is measured on how well it compares and learns them.")
    warn_leaked(figures.leaked, ADVICE)
    for name in protocol or ():
        if name in figures.left_out:
            note(f"{name}: {figures.left_out[name]}")
    document = {"model": str(model), **figures.as_json(), "data": data}
    show(document, *_lines(figures, f"{data}, {test_set.name}"))


def _lines(figures: "Figures", title: str) -> list[RenderableType]:
    """Return what is shown of figures: the main ones, those of each label, confusions, and each other protocol."""
    lines: list[RenderableType] = [one_line(figures.test_set.words)]
    if figures.unknown_set is not None:
        lines.append(one_line(f"As unknown: {figures.unknown_set.words}"))
    if figures.accuracy is not None:
        lines += [plain_table(title, ">", rows=figures.rows()), "", *_labels(figures), *_confusions(figures)]
        lines += _thresholds(figures)
    for name, render in RENDER.items():
        if figures.results.get(name):
            lines += ["", *render(figures.results[name])]
    return lines


def _labels(figures: "Figures") -> list[RenderableType]:
    """Return the figures of each label, lowest recall first."""
    rows, (first, *heads) = figures.label_rows(), figures.label_heads
    left = len(figures.labels) - len(rows)
    table = plain_table(first, *(head if head == "mistaken for" else f">{head}" for head in heads), rows=rows)
    return [table, *([f"and {left} labels more: --json"] if left else [])]


def _thresholds(figures: "Figures") -> list[RenderableType]:
    """Return precision and recall at thresholds, of the labels of the lowest average precision."""
    from labelwise.evaluation.figures import THRESHOLD_HEADS

    rows, (first, *heads) = figures.threshold_rows(LISTED), THRESHOLD_HEADS
    left = len(figures.operating) - LISTED
    table = plain_table(first, *(f">{head}" for head in heads), title=ABOUT_THRESHOLDS, rows=rows)
    return ["", table, *([f"and {left} labels more: --json"] if left > 0 else [])] if rows else []


def _confusions(figures: "Figures") -> list[RenderableType]:
    """Return the confusion matrix, of many labels the most frequent confusions."""
    names, counts = figures.label_names, figures.confusion
    if counts is None:
        return []
    if len(names) <= COUNTED:
        heads = (f">{number}" for number in range(1, len(names) + 1))
        rows = [
            [f"{i} {name}", *map(str, row)] for i, (name, row) in enumerate(zip(names, counts.tolist(), strict=True), 1)
        ]
        return ["", plain_table("true label, by answer", *heads, rows=rows)]
    confusions = figures.confusions()[:LISTED]
    rows = [[true, answer, str(count)] for true, answer, count in confusions]
    return ["", plain_table("true label", "answer", ">images", rows=rows)] if rows else []


def _zero_shot(result: Any) -> list[RenderableType]:
    """Return the figures of seen and unseen labels."""
    had = f"{result.unseen_labels} labels had no training images (unseen), {result.seen_labels} had (seen)"
    keys = ("unseen", "seen", "harmonic")
    table = plain_table("right, averaged over labels", *(f">{FIGURES[key]}" for key in keys), title=f"zero-shot: {had}")
    table.add_row("of unseen labels alone", percent(result.zero_shot), "", "")
    for words, end in (
        (f"of all, with a seen penalty (gap) of {result.gap:.3f}", ""),
        ("of all, without", "_without_gap"),
    ):
        table.add_row(words, *(percent(getattr(result, key + end)) for key in keys))
    return [table, f"{FIGURES['area']}: {result.area:.3f}"]


def _ordinal(result: Any) -> list[RenderableType]:
    """Return the figures of ordered labels."""
    about = f"ordered labels: {result.levels[0]} to {result.levels[-1]}"
    table = plain_table("predicted level", ">most probable level", ">median level", title=about)
    for key in ("accuracy", "mean_absolute_error", "kappa", "within_one"):
        form = percent if key in ("accuracy", "within_one") else "{:.3f}".format
        values = (getattr(one, key) for one in (result.best, result.median))
        table.add_row(FIGURES[key], *("" if value is None else form(value) for value in values))
    lines: list[RenderableType] = [table]
    if result.spearman is not None:
        lines.append(f"{FIGURES['spearman']}: {result.spearman:.3f}")
    shares = {"wanted": percent(result.coverage), "share": percent(result.covered)}
    return [*lines, FIGURES["covered"].format(**shares, width=result.width)]


def _verification(results: Any) -> list[RenderableType]:
    """Return how well pairs of one label are told from others, by each score."""
    first = next(iter(results.values()))
    table = plain_table(
        "compared by", *(f">{by}" for by in results), title=f"pairs of {first.images} images: the same label?"
    )
    for key, form in (("eer", percent), ("min_dcf", "{:.3f}".format), ("auroc", percent)):
        table.add_row(FIGURES[f"pair_{key}"], *(form(getattr(one, key)) for one in results.values()))
    return [table]


def _retrieval(results: Any) -> list[RenderableType]:
    """Return how well images find others of their label, by each score."""
    first = next(iter(results.values()))
    title = f"{first.queries} images search for others of their label among {first.images}"
    table = plain_table("compared by", *(f">{by}" for by in results), title=title)
    for k in first.recall:
        table.add_row(FIGURES["recall_at"].format(k=k), *(percent(one.recall[k]) for one in results.values()))
    table.add_row(FIGURES["precision_at_r"], *(percent(one.precision_at_r) for one in results.values()))
    return [table]


def _episodes(results: Any) -> list[RenderableType]:
    """Return how well new labels are learnt from one and from five images."""
    about = "new labels, learnt from a few images (few-shot): " + FIGURES["accuracy"]
    table = plain_table("", *(f">{RULES.get(rule, rule)}" for rule in results[0].accuracy), title=about)
    for one in results:
        words = f"{one.settings.ways} labels, {one.settings.shots} image{'s' * (one.settings.shots > 1)} of each"
        table.add_row(words, *(str(value) for value in one.accuracy.values()))
    return [table]


RENDER = {
    "zero_shot": _zero_shot,
    "ordinal": _ordinal,
    "verification": _verification,
    "retrieval": _retrieval,
    "episodes": _episodes,
}


def _draw(figures: "Figures", curve: Path) -> None:
    """Draw seen over unseen accuracy, or raise an error that says why there is no curve."""
    from labelwise.evaluation.zero_shot import draw_curve

    result = figures.results.get("zero_shot")
    if result is None:
        raise DataError(f"There is no curve to draw. {figures.left_out.get('zero_shot', '')} Leave out --out.")
    drawn, kind = draw_curve(result), curve.suffix[1:] or "png"
    write_by(curve, lambda stream: drawn.savefig(stream, format=kind, dpi=120))


def _show_folds(classifier: Any, data: Any, folds: int, model: str, name: str) -> None:
    """Show the figures of cross-validation of a model on data with this name."""
    from labelwise.evaluation.folds import evaluate_folds
    from labelwise.train.method import Run

    result = evaluate_folds(classifier, data, folds, Run(device=shared().device, progress=shared().progress), note)
    table = plain_table(f"{name}, {folds} folds", ">")
    for key in FOLDED:
        value = getattr(result, key)
        text = (
            str(value)
            if isinstance(value, int)
            else ", ".join(map(percent, value if isinstance(value, tuple) else (value,)))
        )
        if key == "accuracy":
            text += f" ({percent(result.low)} to {percent(result.high)})"
        table.add_row(FIGURES[key], text)
    lines: list[RenderableType] = [table]
    if result.alone:
        lines.append(f"{result.alone} images could not be measured: no other image has their label.")
    show({"model": model, "data": name, **asdict(result)}, *lines)
