"""The verb ask: is it a y?"""

from dataclasses import asdict
from typing import Annotated

from typer import Argument

import labelwise as lw
from labelwise.cli.inputs import open_model, open_pictures
from labelwise.cli.options import AsJson, Device, Image, Model
from labelwise.cli.output import percent, show, styled


def ask(
    model: Model,
    image: Image,
    label: Annotated[str, Argument(help="The label to ask about.")],
    json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Is it a y? Yes or no, with a probability."""
    classifier = open_model(model, device)
    images, _, _ = open_pictures(classifier, [image], strict=True)
    (answer,) = lw.ask(classifier, images, label)
    word = ("yes", "bold green") if answer.yes else ("no", "bold red")
    line = styled(f"Is it {label}? ", word, f" (probability of a yes: {percent(answer.probability)})")
    show({"model": str(model), "file": str(image), **asdict(answer)}, line, json=json)
