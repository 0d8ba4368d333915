"""Pictures of a report: what the classifier is best and worst at, with heat maps; file names where there are no pictures."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from labelwise.classifier import Classifier
from labelwise.data.sheets import thumbnail
from labelwise.errors import UnsupportedError
from labelwise.report.case import Case
from labelwise.report.findings import Findings
from labelwise.report.pages import Picture, percent, picture
from labelwise.tasks.explain import Explanation, heat_maps

SIDE = 112  # of a picture on the page


class Example(NamedTuple):
    """An image and what was said of it: captions and pictures, the answer, whether it is right, the truth, the file."""

    pictures: list[tuple[str, Picture]]
    said: str
    right: bool
    truth: str
    file: str


def examples(case: Case, found: Findings, most: int) -> tuple[list[Example], list[Example]]:
    """Return the best and the worst answers: right and sure, of as many labels as there are; wrong and sure."""
    right = found.right.tolist()
    good = [row for row in _largest_first(found.sure) if right[row]]
    first: dict[str, int] = {}
    for row in good:
        first.setdefault(truth(case, row), row)
    varied = list(first.values())
    best = varied + [row for row in good if row not in set(varied)]
    worst = [
        row for row in _largest_first(found.sure if found.errors is None else found.errors.sum(1)) if not right[row]
    ]
    made = [[_example(case, found, row) for row in rows[:most]] for rows in (best, worst)]
    return made[0], made[1]


def _largest_first(values: Tensor) -> list[int]:
    return values.argsort(descending=True, stable=True).tolist()


def _example(case: Case, found: Findings, row: int) -> Example:
    pictures = _pictures(case.classifier, case.images[row], _asked(case, found, row), case.file(row))
    return Example(pictures, said(case, found, row), bool(found.right[row]), truth(case, row), case.file(row))


def _asked(case: Case, found: Findings, row: int) -> list[int]:
    """Return the labels to draw heat maps of: the answered one, and the true one where it is another.

    Where several may be true, that of the worst answer, or the most probable one where all answers are right.
    """
    best = int(found.chosen[row])
    if found.errors is not None:
        return [best if found.right[row] else int(found.errors[row].argmax())]
    return list(dict.fromkeys([best, int(case.tested.targets[row])]))


def said(case: Case, found: Findings, row: int) -> str:
    """Return what was said of an image, in words."""
    if not case.tested.multilabel:
        return f"{case.names[int(found.chosen[row])]} {percent(float(found.sure[row]))}"
    answers = case.tested.scores.yes[row].tolist()
    return ", ".join(name for name, p in zip(case.names, answers, strict=True) if p >= 0.5) or "none"


def truth(case: Case, row: int) -> str:
    """Return what is true of an image, in words."""
    return case.tested.split.select([row]).words(case.tested.labels.names)[0].replace(";", ", ") or "none"


def is_picture(images: Tensor) -> bool:
    """Return whether images are pictures that can be shown, and not features."""
    return images.ndim == 4 and images.shape[1] in (1, 3, 4)


def small(image: Tensor, file: str) -> Picture:
    """Return a picture as the page shows it."""
    made = thumbnail(image.cpu(), SIDE)
    flat = Image.new("RGB", made.size, "white")
    flat.paste(made)
    return picture(flat, file, "JPEG")


def _pictures(classifier: Classifier, image: Tensor, columns: Sequence[int], file: str) -> list[tuple[str, Picture]]:
    """Return the picture and heat maps of what it was taken for, as far as the model has them; nothing of features."""
    if not is_picture(image[None]):
        return []
    shown = [("the picture", small(image, file))]
    try:
        heats = heat_maps(classifier, image.repeat(len(columns), 1, 1, 1), torch.tensor(columns))
    except UnsupportedError:
        return shown
    pixels = image[:3].expand(3, -1, -1).permute(1, 2, 0).contiguous().cpu().numpy()
    for heat, column in zip(heats.cpu(), columns, strict=True):
        name = classifier.labels.names[column]
        overlay = Explanation(name, 0.0, heat.numpy(), pixels).overlay(SIDE)
        shown.append((f"for {name}", picture(overlay, f"what in {file} speaks for {name}", "JPEG")))
    return shown
