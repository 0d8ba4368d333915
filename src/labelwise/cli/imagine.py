"""The verb imagine: generate features of a label from its description."""

import csv
import io
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from typer import Option

from labelwise.cli.inputs import open_model, open_part
from labelwise.cli.options import Data, Model, SplitName, shared_options
from labelwise.cli.output import note, one_line, percent, plain_table, show, styled
from labelwise.support.file_names import safe_name
from labelwise.support.text import to_cell
from labelwise.support.writable import write_by, write_file

if TYPE_CHECKING:
    from torch import Tensor

    from labelwise.core.classifier import Classifier
    from labelwise.evaluation.test_set import TestSet
    from labelwise.tasks.imagine import Imagined

SHOWN = 16  # images on a sheet
LISTED = 3  # neighbour labels per row of the table


def imagine(
    model: Model,
    data: Data,
    label: Annotated[list[str] | None, Option(help="A label, repeatable; by default all unseen ones.")] = None,
    count: Annotated[int, Option(min=2, help="How many features to generate for each label.")] = 50,
    out_folder: Annotated[Path | None, Option("--out", help="A folder for the images and the table.")] = None,
    split: SplitName = None,
) -> None:
    """What would it look like? Features from a description.

    Shows the real images nearest to generated features. --out writes a sheet per label, a map of the features, and a table.
    """
    from labelwise.evaluation.imagined import draw_imagined
    from labelwise.tasks.imagine import imagine as run

    classifier = open_model(model)
    every = classifier.labels.names
    names = list(dict.fromkeys(label or [name for name in every if name in classifier.unseen] or every))
    classifier.labels.select(names)
    part = open_part(classifier, data, split, labelled=False)
    targets = _targets(classifier, part)
    imagined = run(classifier, names, part.split.images, targets=targets, count=count, seed=shared_options().seed)
    rows = _rows(classifier, part, imagined, _figures(classifier, imagined, targets, shared_options().seed))
    files: list[str] = []
    if out_folder is not None:
        files = [str(out_folder / "imagined.csv"), str(out_folder / "plane.png")]
        _write_table(Path(files[0]), rows)
        plane = draw_imagined(classifier, imagined, targets)
        write_by(files[1], lambda stream: plane.savefig(stream, format="png", dpi=120))
        files += _draw_sheets(out_folder, part, rows)
    document = {"model": str(model), "data": data, "split": part.name, "measured": part.figures(), "count": count}
    table = _table(rows, f"{data}, {part.name}: {count} generated features of each label")
    lines = (styled((file, "bold"), " written") for file in files)
    show(document | {"labels": rows, "files": files}, one_line(part.words), table, *lines)


def _targets(classifier: "Classifier", part: "TestSet") -> "Tensor":
    """Return the position of each image's label in the classifier, or -1 ``[n]``."""
    import torch

    position = {name: i for i, name in enumerate(classifier.labels.names)}
    targets = torch.full((len(part.split),), -1) if part.split.multilabel else torch.from_numpy(part.split.targets)
    return torch.tensor([*(position.get(name, -1) for name in part.labels.names), -1])[targets]


def _figures(classifier: "Classifier", imagined: "Imagined", targets: "Tensor", seed: int) -> dict[str, dict[str, Any]]:
    """Return the figures of labels with real images; none for fewer than two such labels."""
    from labelwise.evaluation.imagined import evaluate_imagined

    is_known = targets >= 0
    if len(set(targets[is_known].tolist())) < 2:
        return {}
    count = imagined.features.shape[1]
    result = evaluate_imagined(classifier, imagined.gallery[is_known], targets[is_known], count=count, seed=seed)
    return {row["label"]: row for row in result}


def _rows(
    classifier: "Classifier", part: "TestSet", imagined: "Imagined", figures: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return one JSON entry per imagined label."""
    import numpy as np

    empty = dict.fromkeys(("offset", "precision", "real_precision", "spread"))
    files, labels = part.split.files, [word or None for word in part.split.words(part.labels.names)]
    rows = []
    for name, typical, nearest in zip(imagined.names, imagined.typical, imagined.nearest.tolist(), strict=True):
        shares = Counter(labels[i] or "no label" for i in nearest).most_common()
        closest = [(i, int(part.rows[i]), distance) for i, distance in imagined.closest(name, SHOWN)]
        row: dict[str, Any] = {"label": name, "described": name in classifier.unseen, "images": 0, **empty}
        row |= figures.get(name, {})
        row["typical"] = None if bool(np.isnan(typical).any()) else float(typical.mean())
        row["neighbours"] = {word: times / len(nearest) for word, times in shares}
        row["nearest"] = [
            {"image": files[i] if files else f"row {number}", "row": number, "label": labels[i], "distance": distance}
            for i, number, distance in closest
        ]
        rows.append(row)
    return rows


def _table(rows: list[dict[str, Any]], title: str) -> Table:
    numbers = (">real images", ">offset", ">right neighbour", ">of real", ">spread", ">typical")
    table = plain_table("label", *numbers, "labels of the nearest real images", title=title)
    number = "{:.2f}".format
    forms = {"offset": number, "precision": percent, "real_precision": percent, "spread": number, "typical": number}
    for row in rows:
        cells = ("-" if row[key] is None else form(row[key]) for key, form in forms.items())
        shares = list(row["neighbours"].items())[:LISTED]
        near = ", ".join(f"{word} {round(100 * share)} %" for word, share in shares)
        table.add_row(row["label"], str(row["images"]), *cells, near)
    return table


def _write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [key for key in rows[0] if key != "neighbours"], extrasaction="ignore")
    writer.writeheader()
    for row in rows:
        nearest = to_cell("; ".join(neighbour["image"] for neighbour in row["nearest"]))
        writer.writerow({**row, "label": to_cell(row["label"]), "nearest": nearest})
    write_file(path, text.getvalue().encode("utf-8", "surrogateescape"))


def _draw_sheets(folder: Path, part: "TestSet", rows: list[dict[str, Any]]) -> list[str]:
    """Draw a sheet per label and return their paths; none without images."""
    import numpy as np

    from labelwise.images.decode.headers import SHAPE
    from labelwise.images.images import read_all
    from labelwise.images.sheets import draw_sheet

    if len(part.split.shape or SHAPE) != 3:
        note(
            f"The data are features, so there are no images to draw. {folder / 'imagined.csv'} lists the nearest rows."
        )
        return []
    pixels = dict(zip(part.rows.tolist(), read_all(part.split.images, part.split.shape or SHAPE), strict=True))
    files = []
    for number, row in enumerate(rows, 1):
        files.append(str(folder / f"{number:02d}-{safe_name(row['label'])}.png"))
        strips: dict[str, list[Any]] = {}
        for neighbour in row["nearest"]:
            strips.setdefault(neighbour["label"] or "no label", []).append(pixels[neighbour["row"]])
        origin = "from its description alone" if row["described"] else "trained on images"
        title = f"{row['label']}, {origin}: the real images nearest to the generated features, with their labels"
        strips_by_label = {label: np.stack(some) for label, some in strips.items()}
        sheet = draw_sheet(title, strips_by_label, max(8, *map(len, strips.values())))
        write_by(files[-1], partial(sheet.save, format="PNG"))
    return files
