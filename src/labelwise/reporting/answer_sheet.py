"""A sheet of answers: small pictures grouped by what they were taken for, the least sure first. One file, no script."""

from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from typing import Any

import numpy as np

from labelwise.core.scores import UNKNOWN
from labelwise.images.sheets import thumbnail
from labelwise.reporting.pages import Picture, percent, picture, render
from labelwise.tasks.classify import Prediction

SIDE = 128  # of a picture on the page
MOST = 60  # pictures of one answer, the least sure of them


@dataclass
class Group:
    """The pictures with one answer: how many there are, and those that are shown."""

    count: int = 0
    shown: list[tuple[float, int, Picture, str]] = field(default_factory=list)  # a heap, the surest first


@dataclass
class Sheet:
    """Collects pictures and their answers, a few of each kept as thumbnails, so that many need little memory."""

    groups: dict[str, Group] = field(default_factory=dict)

    def add(self, word: str, file: str, prediction: Prediction, image: Any) -> None:
        """Add a picture ``[c, h, w]`` (bytes) under its answer."""
        group = self.groups.setdefault(word, Group())
        group.count += 1
        doubt = -prediction.probability
        if len(group.shown) == MOST and doubt < group.shown[0][0]:
            return  # surer than all that are shown
        words = ", ".join(f"{label} {percent(value)}" for label, value in prediction.top[:2])
        words = f"looks most like {prediction.top[0][0]}" if prediction.label == UNKNOWN else words
        entry = (doubt, -group.count, picture(thumbnail(np.asarray(image), SIDE), file, "JPEG"), words)
        (heappush if len(group.shown) < MOST else heappushpop)(group.shown, entry)

    def page(self, model: str) -> str:
        """Return the page as HTML, the pictures inside it."""
        groups = [
            (word, group.count, [entry[2:] for entry in sorted(group.shown, reverse=True)])
            for word, group in sorted(self.groups.items(), key=lambda pair: (-pair[1].count, pair[0]))
        ]
        total = sum(group.count for group in self.groups.values())
        return render("answers.html", {"title": f"Answers of {model}", "groups": groups, "total": total})
