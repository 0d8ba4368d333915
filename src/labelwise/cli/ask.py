"""The verb ask: is it a y?"""

from dataclasses import asdict
from typing import Annotated

import typer

from labelwise.cli.inputs import open_model, open_pictures
from labelwise.cli.options import AsJson, Device, Image, Model
from labelwise.cli.output import percent, show


def ask(
    model: Model,
    image: Image,
    label: Annotated[str, typer.Argument(help="The label to ask about.")],
    json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Is it a y? Yes or no, with a probability."""
    from labelwise.tasks.ask import ask as run

    classifier = open_model(model, device)
    classifier.labels.index(label)
    images, _, _ = open_pictures(classifier, [image], strict=True)
    (answer,) = run(classifier.scores(images), label)
    said = "[bold green]yes[/]" if answer.yes else "[bold red]no[/]"
    line = f"Is it {label}? {said} (probability of a yes: {percent(answer.probability)})"
    show({"model": str(model), "file": str(image), **asdict(answer)}, line, json=json)
