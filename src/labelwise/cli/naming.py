"""What the shell says about labels that were named without a labelled image."""

from typing import TYPE_CHECKING

from labelwise.cli.output import out, percent, plain_table

if TYPE_CHECKING:
    from labelwise.core import Classifier


def print_naming(classifier: "Classifier") -> None:
    """Print what can be told about a naming without a label: sizes, certainty and agreement of each label."""
    report = classifier.summary["naming"]
    table = plain_table(
        "label", ">images", ">expected", ">sure of the name", ">same in other restarts", title="named without a label"
    )
    rows = zip(*(report[key] for key in ("sizes", "shares", "certainty", "agreement")), strict=True)
    for name, figures in zip(classifier.labels.names, rows, strict=True):
        table.add_row(name, *map(percent, figures))
    out().print(table)
    out().print("Nothing here was checked against a label: look at pictures of each label before you rely on its name.")
