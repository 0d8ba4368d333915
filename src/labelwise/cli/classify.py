"""The verb classify: what is it?"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from labelwise.cli.inputs import open_model, open_pictures
from labelwise.cli.options import AsJson, Device, Model, Paths, Strict
from labelwise.cli.output import bar, percent, plain_table, show

if TYPE_CHECKING:
    from rich.table import Table

    from labelwise.tasks.classify import Prediction


def classify(
    model: Model,
    paths: Paths,
    top: Annotated[int, typer.Option(min=1, help="How many labels to list.")] = 3,
    json: AsJson = False,
    strict: Strict = False,
    device: Device = "auto",
) -> None:
    """What is it? Names and probabilities, and "unknown" where no label fits; each label answered yes where several may be."""
    from labelwise.tasks.classify import classify as run

    classifier = open_model(model, device)
    images, names, skipped = open_pictures(classifier, paths, strict=strict)
    multilabel = classifier.calibration.multilabel
    predictions = run(classifier.scores(images), top=len(classifier.labels) if multilabel and not json else top)
    rows = [
        {**asdict(one), "file": name, "top": [{"label": label, "probability": value} for label, value in one.top]}
        for name, one in zip(names, predictions, strict=True)
    ]
    table = plain_table("picture", "label", "", ">probability")
    for name, one in zip(names, predictions, strict=True):
        _add(table, name, one, multilabel=multilabel)
    show({"model": str(model), "predictions": rows, "skipped": skipped}, table, json=json)


def _add(table: "Table", name: str, prediction: "Prediction", *, multilabel: bool) -> None:
    """Add what is said of a picture: the best labels; where several may be true each that is, or that none is and the nearest."""
    shown = max(len(prediction.labels), 1) if multilabel else len(prediction.top)
    for rank, (label, value) in enumerate(prediction.top[:shown]):
        said = label if rank or prediction.known else f"[yellow]{prediction.label}[/]; nearest {label}"
        bold = multilabel or not rank
        table.add_row("" if rank else name, f"[bold]{said}[/]" if bold else said, bar(value), percent(value))
