"""The verb that shows what a model makes of a description: imagine."""

import csv
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelwise.cli.output import note, out, percent, plain_table, print_json
from labelwise.cli.picture_verbs import AsJson, Device, Model, open_model
from labelwise.cli.train_verbs import Data, Root, Splits
from labelwise.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from labelwise.classifier import Classifier
    from labelwise.data.dataset import Split
    from labelwise.evaluate.imagined import ImaginedLabel
    from labelwise.tasks.imagine import Imagined

SHOWN = 16  # pictures on a sheet
LISTED = 3  # labels of neighbours in a row of the table


class Projection(StrEnum):
    """How many numbers become two."""

    PCA = "pca"
    UMAP = "umap"
    TSNE = "tsne"


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
        typer.Option(help="A label; may be repeated. Else all that have a description alone.", show_default=False),
    ] = None,
    count: Annotated[int, typer.Option(min=2, help="How many features to generate for each label.")] = 50,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="A folder for the pictures and the table.", show_default=False)
    ] = None,
    split: Annotated[str, typer.Option(help="Which split holds the real images.")] = "test",
    projection: Annotated[
        Projection, typer.Option(help="How to make a plane. umap needs the package umap-learn.")
    ] = Projection.PCA,
    splits: Splits = None,
    root: Root = None,
    seed: Annotated[int, typer.Option(help="Of what is drawn at random.")] = 0,
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
    gallery = _gallery(classifier, data, split, splits, root)
    found = run(classifier, names, gallery.split.images, targets=gallery.places, count=count, seed=seed)
    rows = _rows(gallery, found, _figures(gallery, count, seed))
    files = [] if out_folder is None else _write(out_folder, gallery, found, rows, projection.value)
    if json:
        print_json({"model": str(model), "data": data, "split": split, "count": count, "labels": rows, "files": files})
        return
    _print(rows, f"{data}, {split}: {count} generated features of each label")
    for file in files:
        out().print(f"[bold]{file}[/] written")


def _described(classifier: "Classifier") -> list[str]:
    """Return the labels without training images, or all labels where there are none."""
    names = classifier.labels.names
    return [name for name in names if name in classifier.unseen] or list(names)


def _gallery(classifier: "Classifier", data: str, split: str, splits: Path | None, root: Path | None) -> Gallery:
    import torch

    from labelwise.data import apply_split, load
    from labelwise.data.read.pictures import as_batch

    shape = classifier.shape
    dataset = load(data, size=shape[1] if len(shape) == 3 else None, root=root)
    dataset = apply_split(dataset, splits) if splits else dataset
    found = dataset.split(split)
    if not len(found):
        raise DataError(f"The split {split} of {data} has no image to compare with. Choose another with --split.")
    known = classifier.labels.names
    place = {name: i for i, name in enumerate(known)}
    places = torch.tensor([*(place.get(name, -1) for name in dataset.labels.names), -1])
    words = (*dataset.labels.names, "")
    return Gallery(
        classifier=classifier,
        split=replace(found, images=as_batch(found.images, shape)),
        places=places[found.targets],
        words=tuple(words[i] for i in found.targets.tolist()),
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


def _print(rows: list[dict[str, Any]], title: str) -> None:
    numbers = (">real images", ">offset", ">right neighbour", ">of real", ">spread", ">typical")
    table = plain_table("label", *numbers, "labels of the nearest real images", title=title)
    for row in rows:
        offset, spread, typical = (_said(row[key], "{:.2f}".format) for key in ("offset", "spread", "typical"))
        right, real = (_said(row[key], percent) for key in ("precision", "real_precision"))
        shares = list(row["neighbours"].items())[:LISTED]
        near = ", ".join(f"{word} {round(100 * share)} %" for word, share in shares)
        table.add_row(row["label"], str(row["images"]), offset, right, real, spread, typical, near)
    out().print(table)


def _said(value: float | None, how: Callable[[float], str]) -> str:
    return "-" if value is None else how(value)


def _write(folder: Path, gallery: Gallery, found: "Imagined", rows: list[dict[str, Any]], projection: Any) -> list[str]:
    """Write the table, the plane and a sheet for each label, and return their paths."""
    from labelwise.evaluate.imagined import draw_imagined, imagined_view

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
        _sheet(gallery, row).savefig(files[-1], dpi=100)
    return [str(file) for file in files]


def _sheet(gallery: Gallery, row: dict[str, Any]) -> Any:
    """Return a figure of the real pictures nearest to what was generated; a green name is right."""
    from matplotlib.figure import Figure

    near = row["nearest"]
    across = min(8, len(near))
    down = -(-len(near) // across)
    figure = Figure(figsize=(max(5, 1.25 * across), 1.5 * down + 0.5), layout="constrained", facecolor="white")
    known = "from its description alone" if row["described"] else "trained on images"
    figure.suptitle(f"{row['label']}, {known}: the real pictures nearest to what was generated", fontsize=10)
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for panel in panels:
        panel.axis("off")
    for panel, one in zip(panels, near, strict=False):
        picture = gallery.split.images[one["row"]].movedim(0, 2).cpu().numpy()
        panel.imshow(picture, cmap="gray") if picture.shape[2] == 1 else panel.imshow(picture)
        wrong = one["label"] and row["images"]
        colour = "#1a7f37" if one["label"] == row["label"] else "#b42318" if wrong else "#555555"
        panel.set_title(one["label"] or "no label", fontsize=6.5, color=colour, pad=2)
    return figure
