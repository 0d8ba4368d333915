"""The verb explain: a heat map of the evidence for a label."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

import labelwise as lw
from labelwise.cli.inputs import open_images, open_model
from labelwise.cli.options import Image, Model
from labelwise.cli.output import percent, show
from labelwise.support.errors import UsageError
from labelwise.support.writable import check_writable, write_by

KINDS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}  # names of formats in Pillow


def explain(
    model: Model,
    image: Image,
    label: Annotated[str | None, Argument(help="The label to explain; by default the best one.")] = None,
    against: Annotated[str | None, Option("--not", help="A second label to contrast with.")] = None,
    out_png: Annotated[Path, Option("--out", help="The .png to write.")] = Path("explanation.png"),
) -> None:
    """Why? A heat map of the evidence for a label."""
    from labelwise.images.sheets import add_title

    kind = KINDS.get(out_png.suffix.lower())
    if kind is None:
        raise UsageError(f"--out takes a .png, .jpg or .webp file; given {out_png}.")
    check_writable(out_png)
    classifier = open_model(model)
    images, _, _ = open_images(classifier, [image], strict=True)
    explanation = lw.explain(classifier, images, label, against=against)
    drawing = add_title(explanation.overlay(), explanation.lines)
    write_by(out_png, lambda stream: drawing.save(stream, kind))
    document = {
        "label": explanation.label,
        "probability": explanation.probability,
        "out": str(out_png),
        "heat": explanation.heat.tolist(),
    }
    if explanation.heat_against is not None:
        document |= {"against": explanation.against, "heat_against": explanation.heat_against.tolist()}
    line = f"{out_png}: {explanation.title} (probability of a yes: {percent(explanation.probability)})"
    show(document, line)
