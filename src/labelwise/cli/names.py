"""Labels that are known by name alone: how fit reads the names, and what it says about the naming."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING

from labelwise.cli.output import percent, plain_table
from labelwise.errors import DataError, UsageError, listing

if TYPE_CHECKING:
    from rich.console import RenderableType

    from labelwise.classifier import Classifier


def method_of_names(method: str, splits: Path | None) -> str:
    """Return the method for pictures of which only the names of labels are known, or raise an error for one that reads labels."""
    from labelwise.methods import method_class

    if method != "auto" and method_class(method)().uses_targets:
        raise UsageError(
            f"Method {method} reads labels of pictures; with --names there are none. Use --method zero_label."
        )
    if splits is not None:
        raise UsageError("With --names there is no split: all pictures are used. Leave out --splits.")
    return "zero_label" if method == "auto" else method


def read_names(given: str) -> tuple[str, ...]:
    """Return the names of labels: those between commas, or the lines of a text file."""
    from labelwise.labels import unfit_name

    file = Path(given)
    if file.suffix.lower() == ".txt":
        try:
            lines = file.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f'Cannot read the names in "{given}" ({error}). One name a line is expected.') from None
    else:
        lines = next(csv.reader([given], skipinitialspace=True), [])
    names = tuple(line.strip() for line in lines if line.strip())
    if len(names) < 2:
        raise UsageError(f"At least two names are needed, as cat,dog or a .txt file of lines; given {listing(names)}.")
    for unfit in filter(None, map(unfit_name, names)):
        raise UsageError(f"This cannot be a label: {unfit}. Give names in one line of UTF-8 each.")
    return names


def naming_lines(classifier: "Classifier") -> "tuple[RenderableType, ...]":
    """Return what can be told about a naming without a label: sizes, certainty and agreement of each label."""
    report = classifier.origin.summary["naming"]
    table = plain_table(
        "label", ">images", ">expected", ">sure of the name", ">same in other restarts", title="named without a label"
    )
    rows = zip(*(report[key] for key in ("sizes", "shares", "certainty", "agreement")), strict=True)
    for name, figures in zip(classifier.labels.names, rows, strict=True):
        table.add_row(name, *map(percent, figures))
    doubt = "Nothing here was checked against a label: look at pictures of each label before you rely on its name."
    return table, doubt
