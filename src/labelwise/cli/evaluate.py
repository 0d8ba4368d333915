"""The verb evaluate: measure a classifier on images it was not trained on."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import RenderableType
from typer import Option

from labelwise.cli.inputs import open_data_for, open_model, open_part, open_unknown
from labelwise.cli.options import Data, Measured, Model, SplitName, Unknown, shared_options
from labelwise.cli.output import PLOTS, note, one_line, percent, plain_table, show, warn_leaked
from labelwise.support.errors import DataError, UsageError, listing
from labelwise.support.text import FIGURES
from labelwise.support.writable import write_by

if TYPE_CHECKING:
    from labelwise.evaluation.figures import Figures

FOLDED = ("images", "groups", "accuracy", "balanced_accuracy", "ece", "unknown", "by_fold")
FOLDS_HELP = "Cross-validate by refitting this many times."
ADVICE = ", so the figures are too optimistic. Put test images in a separate folder or split."


def evaluate(  # noqa: PLR0913 - the options of the verb
    model: Model,
    data: Data,
    split: SplitName = None,
    unknown: Unknown = None,
    curve: Annotated[
        Path | None, Option("--out", help="Plot accuracy of seen over unseen labels (.png, .svg).")
    ] = None,
    folds: Annotated[int | None, Option(min=2, help=FOLDS_HELP)] = None,
    *,
    measured: Measured,
) -> None:
    """Measure a classifier on images it was not trained on."""
    from labelwise.evaluation.evaluate import evaluate as run

    if curve is not None and curve.suffix.lower() not in PLOTS:
        raise UsageError(f"--out takes a file of type {listing(PLOTS)}; given {curve}.")
    classifier = open_model(model)
    if folds is not None:
        if split or unknown or curve or measured != Measured():
            raise UsageError(
                "--folds measures every labelled image once. Leave out --split, --unknown, --protocol, --max-error, --coverage "
                "and --out."
            )
        _show_folds(classifier, open_data_for(classifier, data), folds, str(model), data)
        return
    test_set = open_part(classifier, data, split)
    strange = None if unknown is None else open_unknown(classifier, unknown)
    figures = run(classifier, test_set, unknown=strange, protocols=measured.protocols)
    if curve is not None:
        _draw(figures, curve)
    if figures.accuracy is None:
        note("The classifier knows none of these labels: measuring how well it compares images and learns new labels.")
    warn_leaked(figures.leaked, ADVICE)
    for name in measured.protocols:
        if name in figures.left_out:
            note(f"{name}: {figures.left_out[name]}")
    document = {"model": str(model), **figures.as_json(), "data": data}
    show(document, *_lines(figures))


def _lines(figures: "Figures") -> list[RenderableType]:
    """Return the lines and tables that show the figures."""
    from labelwise.evaluation.tables import tables

    lines: list[RenderableType] = [one_line(figures.test_set.words)]
    if figures.unknown_set is not None:
        lines.append(one_line(f"As unknown: {figures.unknown_set.words}"))
    for table in tables(figures):
        lines += [*filter(None, [table.title]), plain_table(*table.heads, rows=table.rows), *table.notes, ""]
    return lines


def _draw(figures: "Figures", curve: Path) -> None:
    """Plot seen over unseen accuracy; raise an error if there is no curve."""
    from labelwise.evaluation.zero_shot import draw_curve

    result = figures.results.get("zero_shot")
    if result is None:
        raise DataError(f"There is no curve to plot. {figures.left_out.get('zero_shot', '')} Leave out --out.")
    figure, kind = draw_curve(result), curve.suffix[1:] or "png"
    write_by(curve, lambda stream: figure.savefig(stream, format=kind, dpi=120))


def _show_folds(classifier: Any, data: Any, folds: int, model: str, name: str) -> None:
    """Show the figures of cross-validation."""
    from labelwise.evaluation.folds import evaluate_folds
    from labelwise.train.method import Run

    result = evaluate_folds(
        classifier, data, folds, Run(device=shared_options().device, progress=shared_options().progress), note
    )
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
