"""The verb classify: what is it?"""

from dataclasses import asdict
from typing import Annotated

from typer import Option

import labelwise as lw
from labelwise.cli.inputs import open_model, open_pictures
from labelwise.cli.options import AsJson, Device, Model, Paths, Strict
from labelwise.cli.output import bar, percent, plain_table, show, styled


def classify(
    model: Model,
    paths: Paths,
    top: Annotated[int, Option(min=1, help="How many labels to list.")] = 3,
    json: AsJson = False,
    strict: Strict = False,
    device: Device = "auto",
) -> None:
    """What is it? Names and probabilities, and "unknown" where no label fits; each label answered yes where several may be."""
    classifier = open_model(model, device)
    images, names, skipped = open_pictures(classifier, paths, strict=strict)
    multilabel = classifier.calibration.multilabel
    table, rows = plain_table("picture", "label", "", ">probability"), []
    predictions = lw.classify(classifier, images, top=len(classifier.labels) if multilabel and not json else top)
    for name, one in zip(names, predictions, strict=True):
        best = [{"label": label, "probability": value} for label, value in one.top]
        rows.append({**asdict(one), "file": name, "top": best})
        # the best labels; where several may be true each that is, or that none is and the nearest
        count = max(len(one.labels), 1) if multilabel else len(one.top)
        for rank, (label, value) in enumerate(one.top[:count]):
            style = "bold" if multilabel or not rank else ""
            unknown = () if rank or one.known else ((one.label, f"{style} yellow"), ("; nearest ", style))
            table.add_row("" if rank else name, styled(*unknown, (label, style)), bar(value), percent(value))
    show({"model": str(model), "predictions": rows, "skipped": skipped}, table, json=json)
