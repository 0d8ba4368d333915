"""Pages of images to check: answers, the least certain first, and suspects. The user corrects labels there and saves a table.

Each page is one file. Its script only writes the table of corrections that ``fit --corrections`` reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from typing import TYPE_CHECKING, Any

import numpy as np

from labelwise.core.scores import UNKNOWN
from labelwise.images.file_images import FileImages
from labelwise.images.images import Images, Unreadable
from labelwise.images.sheets import thumbnail
from labelwise.reporting.pages import PageImage, page_image, percent, render
from labelwise.tasks.classify import Prediction

if TYPE_CHECKING:
    from labelwise.fitting.suspects import Suspect

SIDE = 128  # pixels of an image on the page
MOST = 60  # most images per answer, the least certain ones
SUSPECTS = 500  # most suspects on a page
SAMPLES = 16  # images per unlabelled group


@dataclass
class Group:
    """The images with one answer: their number, and a selection."""

    count: int = 0
    images: list[tuple[float, int, PageImage, str]] = field(default_factory=list)  # a heap, most certain first


@dataclass
class Sheet:
    """Collect answers with a few thumbnails each, so that many images need little memory."""

    groups: dict[str, Group] = field(default_factory=dict)

    def add(self, word: str, file: str, prediction: Prediction, image: Any) -> None:
        """Add an image ``[c, h, w]`` (bytes) under its answer."""
        group = self.groups.setdefault(word, Group())
        group.count += 1
        doubt = -prediction.probability
        if len(group.images) == MOST and doubt < group.images[0][0]:
            return  # more certain than all in the selection
        words = ", ".join(f"{label} {percent(value)}" for label, value in prediction.top[:2])
        words = f"looks most like {prediction.top[0][0]}" if prediction.label == UNKNOWN else words
        entry = (doubt, -group.count, page_image(thumbnail(np.asarray(image), SIDE), file, "JPEG"), words)
        (heappush if len(group.images) < MOST else heappushpop)(group.images, entry)

    def page(self, model: str, labels: Sequence[str]) -> str:
        """Return the page as HTML with embedded images; ``labels`` are offered as corrections."""
        groups = [
            (word, group.count, [entry[2:] for entry in sorted(group.images, reverse=True)])
            for word, group in sorted(self.groups.items(), key=lambda pair: (-pair[1].count, pair[0]))
        ]
        total = sum(group.count for group in self.groups.values())
        values = {"title": f"Answers of {model}", "groups": groups, "total": total, "labels": labels}
        return render("answers.html", values)


def groups_page(names: Sequence[str], groups: Sequence[Sequence[str]]) -> str:
    """Return a page with the first images of each group, by folder name."""
    groups_shown = []
    for name, files in zip(names, groups, strict=True):
        first = files[:SAMPLES]
        images = FileImages(first).read(range(len(first)), (3, SIDE, SIDE), "stretch")
        cards = [
            page_image(thumbnail(np.asarray(pixels), SIDE), file, "JPEG")
            for file, pixels in zip(first, images, strict=True)
            if not isinstance(pixels, Unreadable)
        ]
        groups_shown.append((name, len(files), cards))
    return render(
        "groups.html",
        {"title": "Groups of images that look alike", "groups": groups_shown, "total": sum(map(len, groups))},
    )


def suspects_page(name: str, suspects: "Sequence[Suspect]", images: Images, labels: Sequence[str]) -> str:
    """Return a page of suspects in a data set; ``images`` and labels are those of the whole set."""
    cards = []
    for suspect in suspects[:SUSPECTS]:
        (pixels,) = images.read([suspect.row], images.shape or (3, SIDE, SIDE))
        if not isinstance(pixels, Unreadable) and pixels.ndim == 3:
            cards.append((page_image(thumbnail(np.asarray(pixels), SIDE), suspect.file, "JPEG"), suspect))
    values = {"title": f"Suspects in {name}", "cards": cards, "total": len(suspects), "labels": labels}
    return render("suspects.html", values)
