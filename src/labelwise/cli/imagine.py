"""The verb imagine: what would it look like?"""

import csv
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from labelwise.cli.inputs import open_data_for, open_model
from labelwise.cli.options import AsJson, Data, Device, Model, Root, Seed, Splits
from labelwise.cli.output import note, percent, plain_table, show
from labelwise.errors import DataError

if TYPE_CHECKING:
    from rich.table import Table
    from torch import Tensor

    from labelwise.classifier import Classifier
    from labelwise.data.dataset import Dataset, Split
    from labelwise.evaluate.imagined import ImaginedLabel
    from labelwise.tasks.imagine import Imagined

Projection = Literal["pca", "umap", "tsne"]
SHOWN = 16  # pictures on a sheet
LISTED = 3  # labels of neighbours in a row of the table


@dataclass(frozen=True, eq=False, kw_only=True)
class Gallery:
    """Real images and what is known about them.

    Attributes:
        classifier: whose labels are imagined.
        split: the images as the model takes them.
        places: where the label of each stands among the classifier's, -1 where it is none of them ``[n]``.
        words: the label of each image in the data, empty where there is none.
    """

    classifier: "Classifier"
    split: "Split"
    places: "Tensor"
    words: tuple[str, ...]

    @property
    def pictures(self) -> bool:
        """Whether there is something to draw."""
        return self.split.images.ndim == 4

    def name(self, row: int) -> str:
        """Return what an image is called."""
        return self.split.files[row] if self.split.files else f"row {row}"


def imagine(  # noqa: PLR0913 - the options of the verb
    model: Model,
    data: Data,
    label: Annotated[
        list[str] | None,
        typer.Option(help="A label; may be repeated. Else all that have a description alone."),
    ] = None,
    count: Annotated[int, typer.Option(min=2, help="How many features to generate for each label.")] = 50,
    out_folder: Annotated[Path | None, typer.Option("--out", help="A folder for the pictures and the table.")] = None,
    split: Annotated[str, typer.Option(help="Which split holds the real images.")] = "test",
    projection: Annotated[
        Projection, typer.Option(help="How to make a plane. umap needs the package umap-learn.")
    ] = "pca",
    splits: Splits = None,
    root: Root = None,
    seed: Seed = 0,
    json: AsJson = False,
    device: Device = "auto",
) -> None:
    """What would it look like? Features generated from a description, and the real images nearest to them.

    With --out: a sheet of the nearest real pictures for each label, a plane of real and generated features, and a table.
    """
    from labelwise.tasks.imagine import imagine as run

    classifier = open_model(model, device)
    names = list(dict.fromkeys(label or _described(classifier)))
    for name in names:
        classifier.labels.index(name)
    dataset = open_data_for(classifier.shape, data, root, splits)
    gallery = _gallery(classifier, dataset, data, split)
    imagined = run(classifier, names, gallery.split.images, targets=gallery.places, count=count, seed=seed)
    rows = _rows(gallery, imagined, _figures(gallery, count, seed))
    files = [] if out_folder is None else _write(out_folder, gallery, imagined, rows, projection)
    document = {"model": str(model), "data": data, "split": split, "count": count, "labels": rows, "files": files}
    table = _table(rows, f"{data}, {split}: {count} generated features of each label")
    show(document, table, *(f"[bold]{file}[/] written" for file in files), json=json)


def _described(classifier: "Classifier") -> list[str]:
    """Return the labels without training images, or all labels where there are none."""
    names = classifier.labels.names
    return [name for name in names if name in classifier.unseen] or list(names)


def _gallery(classifier: "Classifier", dataset: "Dataset", data: str, split: str) -> Gallery:
    import torch

    from labelwise.data.read.pictures import as_batch

    part = dataset.split(split)
    if not len(part):
        raise DataError(f"The split {split} of {data} has no image to compare with. Choose another with --split.")
    place = {name: i for i, name in enumerate(classifier.labels.names)}
    places = torch.tensor([*(place.get(name, -1) for name in dataset.labels.names), -1])
    words = (*dataset.labels.names, "")
    return Gallery(
        classifier=classifier,
        split=replace(part, images=as_batch(part.images, classifier.shape)),
        places=places[part.targets],
        words=tuple(words[i] for i in part.targets.tolist()),
    )


def _figures(gallery: Gallery, count: int, seed: int) -> "dict[str, ImaginedLabel]":
    """Return the figures of labels that have real images; none where fewer than two labels have."""
    from labelwise.evaluate.imagined import evaluate_imagined

    known = gallery.places >= 0
    if len(set(gallery.places[known].tolist())) < 2:
        return {}
    images, targets = gallery.split.images[known], gallery.places[known]
    result = evaluate_imagined(gallery.classifier, images, targets, count=count, seed=seed)
    return {one.label: one for one in result.labels}


def _rows(gallery: Gallery, found: "Imagined", figures: "dict[str, ImaginedLabel]") -> list[dict[str, Any]]:
    """Return one entry for each imagined label, as plain values."""
    empty = dict.fromkeys(("offset", "precision", "real_precision", "spread"))
    rows = []
    for place, name in enumerate(found.names):
        typical = found.typical[place]
        known = {"label": name, "described": name in gallery.classifier.unseen, "images": 0, **empty}
        nearest = [
            {"image": gallery.name(i), "row": i, "label": gallery.words[i] or None, "distance": far}
            for i, far in found.closest(name, SHOWN)
        ]
        told = Counter(gallery.words[i] or "no label" for i in found.nearest[place].tolist()).most_common()
        neighbours = {word: times / found.nearest.shape[1] for word, times in told}
        rows.append(
            known
            | (asdict(figures[name]) if name in figures else {})
            | {"typical": None if bool(typical.isnan().any()) else float(typical.mean())}
            | {"neighbours": neighbours, "nearest": nearest}
        )
    return rows


def _table(rows: list[dict[str, Any]], title: str) -> "Table":
    numbers = (">real images", ">offset", ">right neighbour", ">of real", ">spread", ">typical")
    table = plain_table("label", *numbers, "labels of the nearest real images", title=title)
    for row in rows:
        offset, spread, typical = (_said(row[key], "{:.2f}".format) for key in ("offset", "spread", "typical"))
        right, real = (_said(row[key], percent) for key in ("precision", "real_precision"))
        shares = list(row["neighbours"].items())[:LISTED]
        near = ", ".join(f"{word} {round(100 * share)} %" for word, share in shares)
        table.add_row(row["label"], str(row["images"]), offset, right, real, spread, typical, near)
    return table


def _said(value: float | None, how: Callable[[float], str]) -> str:
    return "-" if value is None else how(value)


def _write(
    folder: Path, gallery: Gallery, found: "Imagined", rows: list[dict[str, Any]], projection: Projection
) -> list[str]:
    """Write the table, the plane and a sheet for each label, and return their paths."""
    from labelwise.evaluate.imagined import draw_imagined, draw_nearest, imagined_view

    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "imagined.csv", folder / "plane.png"]
    with files[0].open("w", encoding="utf-8", newline="") as file:
        heads = [key for key in rows[0] if key not in ("neighbours", "nearest")]
        writer = csv.writer(file)
        writer.writerow([*heads, "nearest"])
        for row in rows:
            writer.writerow([*(row[key] for key in heads), "; ".join(one["image"] for one in row["nearest"])])
    view = imagined_view(gallery.classifier, found, gallery.places, projection)
    draw_imagined(view).savefig(files[1], dpi=120)
    if not gallery.pictures:
        note(f"These data are features, so there are no pictures to draw; {files[0]} lists the nearest rows.")
        return [str(file) for file in files]
    for number, row in enumerate(rows, 1):
        safe = re.sub(r"[^\w.-]+", "_", row["label"])
        files.append(folder / f"{number:02d}-{safe}.png")
        draw_nearest(row, gallery.split.images).savefig(files[-1], dpi=100)
    return [str(file) for file in files]
