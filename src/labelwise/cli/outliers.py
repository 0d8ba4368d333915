"""The verb outliers: which pictures are none of the labels?"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelwise.cli.inputs import open_model, open_part, open_pictures
from labelwise.cli.options import AsJson, Device, Model, Paths, Strict
from labelwise.cli.output import bar, percent, plain_table, show, unbroken

if TYPE_CHECKING:
    from rich.console import RenderableType

    from labelwise.scores import Scores


def outliers(
    model: Model,
    paths: Paths,
    known: Annotated[
        str | None, typer.Option(help="Data with test images of known labels, to measure against.")
    ] = None,
    json: AsJson = False,
    strict: Strict = False,
    device: Device = "auto",
) -> None:
    """Which pictures are none of the labels? Strangest first."""
    from labelwise.tasks.outliers import outliers as run

    classifier = open_model(model, device)
    images, names, skipped = open_pictures(classifier, paths, strict=strict)
    scores = classifier.scores(images)
    strangest = sorted(zip(names, run(scores), strict=True), key=lambda pair: -pair[1].score)
    figures = {} if known is None else _against(scores, known)
    rows = [{"file": name, **asdict(one)} for name, one in strangest]
    table = plain_table("picture", "", ">outlier score", "")
    for name, one in strangest:
        table.add_row(name, bar(one.score), f"{one.score:.4f}", "[yellow]unknown[/]" if one.flagged else "")
    lines: list[RenderableType] = [table]
    if figures:
        lines.append(f"AUROC {percent(figures['auroc'])}, FPR95 {percent(figures['fpr95'])} against {known}")
        lines.append(unbroken(figures["measured"]["words"]))
    document = {"model": str(model), "outliers": rows, "figures": figures, "skipped": skipped}
    show(document, *lines, json=json)


def _against(strange: "Scores", known: str) -> dict[str, Any]:
    from labelwise.evaluate.outliers import evaluate_outliers

    part = open_part(strange.classifier, known)
    result = evaluate_outliers(strange.classifier.scores(part.split.images), strange)
    return {"measured": part.figures(), **asdict(result)}
