"""The verb that sorts pictures by ordered labels, rank, and what evaluate says of them."""

import csv
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from labelwise.cli.output import out, percent, plain_table, print_json
from labelwise.cli.picture_verbs import AsJson, Device, Model, Paths, Strict, open_model, read

if TYPE_CHECKING:
    from labelwise.evaluate.ordinal import OrdinalResult
    from labelwise.evaluate.tested import Tested

DRAWN = 20  # more levels than this are too many to draw in a column
HEIGHTS = "▁▂▃▄▅▆▇█"


def rank(
    model: Model,
    paths: Paths,
    order: Annotated[
        str | None,
        typer.Option(
            help="All labels from the lowest to the highest, between commas; left out, the order of the data it was trained on.",
            show_default=False,
        ),
    ] = None,
    json: AsJson = False,
    strict: Strict = False,
    device: Device = "auto",
) -> None:
    """Where does each picture stand among ordered labels? Sorted from the lowest to the highest."""
    from labelwise.tasks.rank import level_columns
    from labelwise.tasks.rank import rank as run

    classifier = open_model(model, device)
    given = None if order is None else [name.strip() for name in next(csv.reader([order], skipinitialspace=True), [])]
    names = [classifier.labels.names[column] for column in level_columns(classifier, given)]
    scores, files, skipped = read(classifier, paths, strict)
    found = run(scores, order=given)
    if json:
        rows = [{**asdict(one), "file": files[one.picture]} for one in found]
        print_json({"model": str(model), "levels": names, "pictures": rows, "skipped": skipped})
        return
    drawn = len(names) <= DRAWN
    table = plain_table("picture", ">rank", "level", ">80 % sure", *(["levels"] if drawn else []), "")
    for one in found:
        low, high = (names.index(end) + 1 for end in one.interval)
        cells = [Text(files[one.picture]), Text(f"{one.rank:.2f}"), Text(one.median, style="bold")]
        cells += [Text(f"{low}" if low == high else f"{low} to {high}")]
        cells += [columns_drawn(list(one.probabilities.values()))] if drawn else []
        table.add_row(*cells, Text("" if one.known else "unknown", style="yellow"))
    out().print(table)
    out().print(Text(f"1 is {names[0]}, {len(names)} is {names[-1]}"))


def columns_drawn(shares: list[float]) -> Text:
    """Return one column for each share in [0, 1], drawn as high as it is large."""
    heights = (HEIGHTS[round(max(0.0, min(1.0, share)) * (len(HEIGHTS) - 1))] for share in shares)
    return Text("".join(heights), style="cyan")


def ordinal_result(tested: "Tested") -> "OrdinalResult | None":
    """Return the figures of ordered labels, or None where they do not apply."""
    from labelwise.evaluate.ordinal import evaluate_ordinal, find_order

    if tested.multilabel or tested.classifier.calibration.multilabel:
        return None
    return None if find_order(tested.classifier, tested.labels) is None else evaluate_ordinal(tested)


def print_ordinal(result: "OrdinalResult") -> None:
    """Print the figures of ordered labels."""
    about = f"ordered labels: {result.levels[0]} to {result.levels[-1]}"
    table = plain_table("what is said", ">accuracy", ">levels off", ">kappa (quadratic)", ">within one", title=about)
    for words, one in (("the most probable level", result.best), ("the median of probabilities", result.median)):
        kappa = "" if one.kappa is None else f"{one.kappa:.3f}"
        table.add_row(words, percent(one.accuracy), f"{one.mean_absolute_error:.3f}", kappa, percent(one.within_one))
    out().print()
    out().print(table)
    if result.spearman is not None:
        out().print(f"rank correlation (Spearman) of the expected rank: {result.spearman:.3f}")
    out().print(
        f"intervals that should hold {percent(result.coverage)} hold {percent(result.covered)}, with "
        f"{result.width:.1f} levels each"
    )
