"""Pictures of a report: what the classifier is best and worst at, with heat maps; file names where there are no pictures."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from labelwise.classifier import Classifier
from labelwise.data.sheets import thumbnail
from labelwise.errors import UnsupportedError
from labelwise.report.case import Case
from labelwise.report.pages import Picture, percent, picture
from labelwise.tasks.explain import Explanation, heat_maps

SIDE = 112  # of a picture on the page


class Example(NamedTuple):
    """An image and what was said of it: captions and pictures, the answer, whether it is right, the truth, the file."""

    pictures: list[tuple[str, Picture]]
    answer: str
    right: bool
    truth: str
    file: str


def examples(case: Case, most: int) -> tuple[list[Example], list[Example]]:
    """Return the best and the worst answers: right and sure, of as many labels as there are; wrong and sure."""
    right = case.right.tolist()
    good = [row for row in _largest_first(case.sure) if right[row]]
    first: dict[str, int] = {}
    for row in good:
        first.setdefault(truth(case, row), row)
    best = list(dict.fromkeys([*first.values(), *good]))
    wrong = case.sure if case.errors is None else case.errors.sum(1)
    worst = [row for row in _largest_first(wrong) if not right[row]]
    return [_example(case, row) for row in best[:most]], [_example(case, row) for row in worst[:most]]


def _largest_first(values: Tensor) -> list[int]:
    return values.argsort(descending=True, stable=True).tolist()


def _example(case: Case, row: int) -> Example:
    split = case.tested.split
    pictures = _pictures(case.classifier, split.images[row], _asked(case, row), split.files[row])
    return Example(pictures, answer_words(case, row), bool(case.right[row]), truth(case, row), split.files[row])


def _asked(case: Case, row: int) -> list[int]:
    """Return the labels to draw heat maps of: the answered one, and the true one where it is another.

    Where several may be true, that of the worst answer, or the most probable one where all answers are right.
    """
    best = int(case.tested.scores.best[row])
    if case.errors is not None:
        return [best if case.right[row] else int(case.errors[row].argmax())]
    return list(dict.fromkeys([best, int(case.tested.targets[row])]))


def answer_words(case: Case, row: int) -> str:
    """Return what was said of an image, in words."""
    scores = case.tested.scores
    if not case.tested.multilabel:
        return f"{case.names[int(scores.best[row])]} {percent(float(case.sure[row]))}"
    answers = zip(case.names, scores.yes[row].tolist(), strict=True)
    return ", ".join(name for name, p in answers if p >= 0.5) or "none"


def truth(case: Case, row: int) -> str:
    """Return what is true of an image, in words."""
    return case.tested.split.select([row]).words(case.tested.labels.names)[0].replace(";", ", ") or "none"


def small(image: Tensor, file: str) -> Picture | None:
    """Return a picture as the page shows it; None where there are features instead."""
    return (
        picture(thumbnail(image.cpu(), SIDE), file, "JPEG") if image.ndim == 3 and image.shape[0] in (1, 3, 4) else None
    )


def _pictures(classifier: Classifier, image: Tensor, columns: Sequence[int], file: str) -> list[tuple[str, Picture]]:
    """Return the picture and heat maps of what it was taken for, as far as the model has them; nothing of features."""
    plain = small(image, file)
    if plain is None:
        return []
    pictures = [("the picture", plain)]
    try:
        heats = heat_maps(classifier, image.repeat(len(columns), 1, 1, 1), torch.tensor(columns))
    except UnsupportedError:
        return pictures
    pixels = image[:3].expand(3, -1, -1).permute(1, 2, 0).contiguous().cpu().numpy()
    for heat, column in zip(heats.cpu(), columns, strict=True):
        name = classifier.labels.names[column]
        overlay = Explanation(name, 0.0, heat.numpy(), pixels).overlay(SIDE)
        pictures.append((f"for {name}", picture(overlay, f"what in {file} speaks for {name}", "JPEG")))
    return pictures
