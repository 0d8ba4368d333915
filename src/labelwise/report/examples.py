"""Pictures of a report: what the classifier is best and worst at, with heat maps; file names where there are no pictures."""

from collections.abc import Sequence
from html import escape

import torch
from PIL import Image
from torch import Tensor

from labelwise.classifier import Classifier
from labelwise.data.sheets import thumbnail
from labelwise.errors import UnsupportedError
from labelwise.pages import percent, picture
from labelwise.report.case import Case
from labelwise.report.findings import Findings
from labelwise.tasks.explain import Explanation, heat_maps

SIDE = 112  # of a picture on the page


def example_rows(case: Case, found: Findings, most: int) -> tuple[list[int], list[int]]:
    """Return the rows of the best and of the worst examples: right and sure, of as many labels as there are; wrong and sure."""
    right, sure = found.right, found.sure
    by_sure = sure.argsort(descending=True, stable=True).tolist()
    good = [row for row in by_sure if right[row]]
    first: dict[str, int] = {}
    for row in good:
        first.setdefault(truth(case, row), row)
    varied = list(first.values())
    best = (varied + [row for row in good if row not in set(varied)])[:most]
    return best, [row for row in _worst_first(case, found) if not right[row]][:most]


def _worst_first(case: Case, found: Findings) -> list[int]:
    order = found.sure if not case.tested.multilabel else _errors(case).sum(1)
    return order.argsort(descending=True, stable=True).tolist()


def _errors(case: Case) -> Tensor:
    """Return how far each probability of a yes is from the truth ``[n, k]``; 0 where the data do not say it of a label."""
    scores, truths = case.tested.asked()
    columns = [case.classifier.labels.index(name) for name in scores.classifier.labels.names]
    errors = torch.zeros_like(case.tested.scores.yes)
    errors[:, columns] = (scores.yes - truths.float()).abs()
    return errors.cpu()


def example_cards(case: Case, found: Findings, rows: Sequence[int]) -> str:
    """Return a card for each image: the picture, heat maps of what it was taken for, and what was said."""
    cards = []
    for row in rows:
        columns = asked_columns(case, found, row)
        pictures = _pictures(case.classifier, case.images[row], columns, case.file(row))
        cards.append(f'<li>{pictures}<div class="said">{describe(case, found, row)}</div></li>')
    return f'<ul class="examples">{"".join(cards)}</ul>'


def asked_columns(case: Case, found: Findings, row: int) -> list[int]:
    """Return the labels to draw heat maps of: the answered one, and the true one where it is another.

    Where several may be true, that of the worst answer, or the most probable one where all answers are right.
    """
    best = int(found.chosen[row])
    if case.tested.multilabel:
        return [best if found.right[row] else int(_errors(case)[row].argmax())]
    true = int(case.tested.targets[row])
    return [best] if true == best else [best, true]


def said(case: Case, found: Findings, row: int) -> str:
    """Return what was said of an image, in words."""
    if not case.tested.multilabel:
        return f"{case.names[int(found.chosen[row])]} {percent(float(found.sure[row]))}"
    answers = case.tested.scores.yes[row].tolist()
    return ", ".join(name for name, p in zip(case.names, answers, strict=True) if p >= 0.5) or "none"


def truth(case: Case, row: int) -> str:
    """Return what is true of an image, in words."""
    return case.tested.split.select([row]).words(case.tested.labels.names)[0].replace(";", ", ") or "none"


def describe(case: Case, found: Findings, row: int) -> str:
    """Return what was said of an image and what is true, as HTML."""
    true = "" if found.right[row] else f"<br>true: {escape(truth(case, row))}"
    return f'<strong>{escape(said(case, found, row))}</strong>{true}<span class="file">{escape(case.file(row))}</span>'


def is_picture(images: Tensor) -> bool:
    """Return whether images are pictures that can be shown, and not features."""
    return images.ndim == 4 and images.shape[1] in (1, 3, 4)


def _pictures(classifier: Classifier, image: Tensor, columns: Sequence[int], file: str) -> str:
    if not is_picture(image[None]):
        return ""
    shown = [_small(image, file)]
    try:
        heats = heat_maps(classifier, image.repeat(len(columns), 1, 1, 1), torch.tensor(columns))
    except UnsupportedError:
        heats = torch.empty(0)
    pixels = image[:3].expand(3, -1, -1).permute(1, 2, 0).contiguous().cpu().numpy()
    for heat, column in zip(heats.cpu(), columns, strict=False):
        name = classifier.labels.names[column]
        overlay = Explanation(name, 0.0, heat.numpy(), pixels).overlay(SIDE)
        words = f"what in {file} speaks for {name}"
        shown.append(f"<figure>{picture(overlay, words, 'JPEG')}<figcaption>for {escape(name)}</figcaption></figure>")
    return f'<div class="pair">{"".join(shown)}</div>'


def _small(image: Tensor, file: str) -> str:
    made = thumbnail(image.cpu(), SIDE)
    flat = Image.new("RGB", made.size, "white")
    flat.paste(made)
    return f"<figure>{picture(flat, file, 'JPEG')}<figcaption>the picture</figcaption></figure>"
