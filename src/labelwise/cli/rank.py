"""The verb rank: place images on ordered labels."""

import csv
from dataclasses import asdict
from typing import Annotated

from rich.console import RenderableType
from rich.text import Text
from typer import Option

from labelwise.cli.inputs import open_images, open_model
from labelwise.cli.options import Model, Paths
from labelwise.cli.output import plain_table, show, styled

DRAWN = 20  # most levels to draw in a column
HEIGHTS = "▁▂▃▄▅▆▇█"


def rank(
    model: Model,
    paths: Paths,
    order: Annotated[str | None, Option(help="All labels from lowest to highest, separated by commas.")] = None,
) -> None:
    """Where does each image stand among ordered labels?"""
    from labelwise.tasks.rank import level_columns
    from labelwise.tasks.rank import rank as run

    classifier = open_model(model)
    levels = None if order is None else [name.strip() for name in next(csv.reader([order], skipinitialspace=True), [])]
    names = [classifier.labels.names[column] for column in level_columns(classifier, levels)]
    images, files, skipped = open_images(classifier, paths)
    results = run(classifier.scores(images), order=levels)
    rows = [{**asdict(result), "file": files[result.image]} for result in results]
    show_all = len(names) <= DRAWN
    table = plain_table("image", ">rank", "level", ">80 % sure", *(["levels"] if show_all else []), "")
    for result in results:
        low, high = (names.index(end) + 1 for end in result.interval)
        cells: list[RenderableType] = [files[result.image], f"{result.rank:.2f}", styled((result.median, "bold"))]
        cells += [f"{low}" if low == high else f"{low} to {high}"]
        cells += [_columns(list(result.probabilities.values()))] if show_all else []
        table.add_row(*cells, styled(("" if result.known else "unknown", "yellow")))
    line = styled(f"1 is {names[0]}, {len(names)} is {names[-1]}")
    show({"model": str(model), "levels": names, "images": rows, "skipped": skipped}, table, line)


def _columns(shares: list[float]) -> Text:
    """Draw each share in [0, 1] as one column of that height."""
    heights = (HEIGHTS[round(max(0.0, min(1.0, share)) * (len(HEIGHTS) - 1))] for share in shares)
    return styled(("".join(heights), "cyan"))
