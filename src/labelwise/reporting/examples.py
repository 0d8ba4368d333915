"""Example images of a report: the best and worst answers, with heat maps; file names for features."""

from typing import NamedTuple

import numpy as np

from labelwise.core.scores import UNKNOWN
from labelwise.images.decode.headers import SHAPE
from labelwise.images.images import Images, Unreadable
from labelwise.images.sheets import thumbnail
from labelwise.reporting.case import Case
from labelwise.reporting.pages import PageImage, page_image, percent
from labelwise.support.errors import UnsupportedError
from labelwise.tasks.explain import explain

SIDE = 112  # pixels of an image on the page


class ExampleImage(NamedTuple):
    """An image and its answer: captions, images, the answer, whether it is right, the true label, the file."""

    images: list[tuple[str, PageImage]]
    answer: str
    right: bool
    truth: str
    file: str


def examples(case: Case, most: int) -> tuple[list[ExampleImage], list[ExampleImage]]:
    """Return the best and worst answers: confident right ones of many labels, and the most confident wrong ones."""
    right = case.right.tolist()
    good = [row for row in np.argsort(-case.sure, kind="stable").tolist() if right[row]]
    first: dict[str, int] = {}
    for row in good:
        first.setdefault(truth(case, row), row)
    best = list(dict.fromkeys([*first.values(), *good]))
    wrong = case.sure if case.errors is None else case.errors.sum(1)
    worst = [row for row in np.argsort(-wrong, kind="stable").tolist() if not right[row]]
    return [_example(case, row) for row in best[:most]], [_example(case, row) for row in worst[:most]]


def _example(case: Case, row: int) -> ExampleImage:
    file = case.evaluation.split.files[row]
    return ExampleImage(
        _images(case, row, file), answer_words(case, row), bool(case.right[row]), truth(case, row), file
    )


def _explained_labels(case: Case, row: int) -> list[str]:
    """Return the labels of a heat map: the answer and, if different, the true label as contrast.

    Where several may be true, that of the worst answer, or the most probable one where all answers are right.
    """
    best = int(case.evaluation.scores.best[row])
    if case.errors is not None:
        return [case.names[best if case.right[row] else int(case.errors[row].argmax())]]
    return list(dict.fromkeys([case.names[best], case.names[int(case.evaluation.targets[row])]]))


def answer_words(case: Case, row: int) -> str:
    """Return the answer to an image, in words."""
    scores = case.evaluation.scores
    if bool(scores.unknown[row]):
        return f"{UNKNOWN}, looks most like {case.names[int(scores.best[row])]}"
    if not case.evaluation.multilabel:
        return f"{case.names[int(scores.best[row])]} {percent(float(case.sure[row]))}"
    return (
        ", ".join(name for name, accepted in zip(case.names, scores.agreed[row].tolist(), strict=True) if accepted)
        or "none"
    )


def truth(case: Case, row: int) -> str:
    """Return the true labels of an image, in words."""
    return case.evaluation.split.select([row]).words(case.evaluation.labels.names)[0].replace(";", ", ") or "none"


def small(images: Images, file: str) -> PageImage | None:
    """Return an image for the page; None for features or unreadable images."""
    shape = images.shape or SHAPE
    if len(shape) != 3 or shape[0] not in (1, 3, 4):
        return None
    (image,) = images.read([0], shape)
    return None if isinstance(image, Unreadable) else page_image(thumbnail(image, SIDE), file, "JPEG")


def _images(case: Case, row: int, file: str) -> list[tuple[str, PageImage]]:
    """Return the image and the heat map of its answer, if the model has one; none for features."""
    scores = case.evaluation.scores[[row]]
    plain = small(case.evaluation.split.images.select([row]), file)
    if plain is None:
        return []
    try:
        explanation = explain(scores, *_explained_labels(case, row))
    except UnsupportedError:
        return [("image", plain)]
    return [
        ("image", plain),
        (explanation.title, page_image(explanation.overlay(SIDE), f"{explanation.title}: {file}", "JPEG")),
    ]
