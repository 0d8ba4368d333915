"""Verbs that ask something of pictures: classify, ask, outliers, explain."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from labelwise.cli.multilabel import add_answers
from labelwise.cli.output import bar, note, out, percent, plain_table, print_json
from labelwise.errors import DataError, UsageError, listing

if TYPE_CHECKING:
    from torch import Tensor

    from labelwise.classifier import Classifier
    from labelwise.scores import Scores

Model = Annotated[Path, typer.Argument(help="A saved classifier.", show_default=False)]
Paths = Annotated[list[Path], typer.Argument(help="Pictures, or folders of pictures.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Strict = Annotated[bool, typer.Option("--strict", help="Make an unreadable picture an error.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
ScoreBy = Annotated[
    Literal["similarity", "cosine", "sum", "whitened"],
    typer.Option(help="Compare pictures by the model's similarity, the cosine of codes, their sum, or whitened codes."),
]


def open_model(model: Path, device: str) -> "Classifier":
    """Return the classifier in a folder, on the device of this name."""
    from labelwise.store import load
    from labelwise.training.distribution import choose_device

    return load(model, device=choose_device(device))


def read(classifier: "Classifier", paths: list[Path], strict: bool) -> tuple["Scores", list[str], list[dict[str, str]]]:
    """Return the scores of pictures, their names, and those that could not be read."""
    images, names, skipped = read_images(classifier, paths, strict)
    return classifier.scores(images), names, skipped


def read_images(
    classifier: "Classifier", paths: list[Path], strict: bool
) -> tuple["Tensor", list[str], list[dict[str, str]]]:
    """Return the pictures as the model takes them, their names, and those that could not be read."""
    from labelwise.data.read.pictures import list_pictures, read_files

    files = [file for path in paths for file in (list_pictures(path) if path.is_dir() else [path])]
    if not files:
        raise DataError(f"No picture found in {listing(str(p) for p in paths)}.")
    shape = classifier.shape
    if len(shape) != 3:
        raise UsageError("This model takes precomputed features, not pictures.")
    images, kept, skipped = read_files(files, shape, strict=strict)
    for one in skipped[:10]:
        note(f"Skipped {one.file}: {one.reason}")
    if len(skipped) > 10:
        note(f"Skipped {len(skipped)} pictures in all.")
    return images, [str(files[i]) for i in kept], [asdict(one) for one in skipped]


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
    scores, names, skipped = read(classifier, paths, strict)
    multilabel = classifier.calibration.multilabel
    found = run(scores, top=len(classifier.labels) if multilabel and not json else top)
    if json:
        rows = [
            {**asdict(p), "file": name, "top": [{"label": x, "probability": v} for x, v in p.top]}
            for name, p in zip(names, found, strict=True)
        ]
        print_json({"model": str(model), "predictions": rows, "skipped": skipped})
        return
    table = plain_table("picture", "label", "", ">probability")
    for name, p in zip(names, found, strict=True):
        if multilabel:
            add_answers(table, name, p)
            continue
        for rank, (label, value) in enumerate(p.top):
            said = label if p.known else ("[yellow]unknown[/]; nearest " + label if not rank else label)
            table.add_row(name if not rank else "", said if rank else f"[bold]{said}[/]", bar(value), percent(value))
    out().print(table)


def ask(
    model: Model,
    image: Annotated[Path, typer.Argument(help="One picture.", show_default=False)],
    label: Annotated[str, typer.Argument(help="The label to ask about.", show_default=False)],
    json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Is it a y? Yes or no, with a probability."""
    from labelwise.tasks.ask import ask as run

    classifier = open_model(model, device)
    classifier.labels.index(label)
    scores, _, _ = read(classifier, [image], strict=True)
    (answer,) = run(scores, label)
    if json:
        print_json({"model": str(model), "file": str(image), **asdict(answer)})
        return
    said = "[bold green]yes[/]" if answer.yes else "[bold red]no[/]"
    out().print(f"Is it {label}? {said} (probability of a yes: {percent(answer.probability)})")


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
    scores, names, skipped = read(classifier, paths, strict)
    found = sorted(zip(names, run(scores), strict=True), key=lambda pair: -pair[1].score)
    figures: dict[str, Any] = {}
    if known is not None:
        figures = _against(scores, known)
    if json:
        rows = [{"file": name, **asdict(one)} for name, one in found]
        print_json({"model": str(model), "outliers": rows, "figures": figures, "skipped": skipped})
        return
    table = plain_table("picture", "", ">outlier score", "")
    for name, one in found:
        table.add_row(name, bar(one.score), f"{one.score:.4f}", "[yellow]unknown[/]" if one.flagged else "")
    out().print(table)
    if figures:
        out().print(f"AUROC {percent(figures['auroc'])}, FPR95 {percent(figures['fpr95'])} against {known}")
        out().print(Text(figures["measured"]["words"]), soft_wrap=True)


def _against(strange: "Scores", known: str) -> dict[str, Any]:
    from labelwise.data import load
    from labelwise.data.catalogue import size_for
    from labelwise.evaluate.outliers import evaluate_outliers
    from labelwise.evaluate.part import choose_part

    classifier = strange.classifier
    part = choose_part(classifier, load(known, size=size_for(classifier.shape)))
    return {"measured": part.figures(), **asdict(evaluate_outliers(classifier.scores(part.split.images), strange))}


def explain(
    model: Model,
    image: Annotated[Path, typer.Argument(help="One picture.", show_default=False)],
    label: Annotated[str | None, typer.Argument(help="The label to explain; the best one if left out.")] = None,
    out_png: Annotated[Path, typer.Option("--out", help="The picture to write.")] = Path("explanation.png"),
    json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Why? A heat map of what in the picture speaks for the asked label."""
    from labelwise.tasks.explain import explain as run

    classifier = open_model(model, device)
    scores, _, _ = read(classifier, [image], strict=True)
    found = run(scores, label)
    if out_png.suffix.lower() not in (".png", ".jpg", ".jpeg", ".webp"):
        raise UsageError(f"The heat map is written as .png, .jpg or .webp; given {out_png}.")
    out_png.parent.mkdir(parents=True, exist_ok=True)
    found.overlay().save(out_png)
    if json:
        print_json(
            {"label": found.label, "probability": found.probability, "out": str(out_png), "heat": found.heat.tolist()}
        )
        return
    out().print(f"{out_png}: what speaks for {found.label} (probability of a yes: {percent(found.probability)})")
