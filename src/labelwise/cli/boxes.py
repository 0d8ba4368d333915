"""Answers to the boxes of annotation files, joined for each image and event: options, rows and tables of the verb classify."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import RenderableType
from typer import Option

from labelwise.cli.output import percent, plain_table
from labelwise.support.text import to_cell

if TYPE_CHECKING:
    from labelwise.tasks.box_answers import Joined

SEEN = ("empty", "person", "vehicle")  # what joined answers may be, besides labels
LEVEL = "level"  # one more column where answers are joined: box, frame, image, video or event


@dataclass(frozen=True, kw_only=True)
class Boxing:
    """How annotation files, such as those of MegaDetector, and videos are read."""

    min_detection: Annotated[float, Option(min=0, max=1, help="Least confidence of a detector's box.")] = 0.2
    events: Annotated[Path | None, Option(help="A table, file and event: join the answers of each event.")] = None
    frame_rate: Annotated[float, Option(min=0.001, max=1000, help="Frames for each second of a video.")] = 1.0


def joined_cells(answer: "Joined") -> list[str]:
    """Return the row of a joined answer, with the labels of its boxes."""
    probability = "" if answer.probability is None else f"{answer.probability:.4f}"
    words = [to_cell(text) for text in (answer.name, answer.label, ";".join(word for word, _ in answer.counts))]
    return [*words, probability, "", "", "", answer.level]


def joined_table(answers: Sequence["Joined"]) -> Iterator[RenderableType]:
    """Yield the table of what images and events show, if boxes were classified."""
    for level in ("image", "video", "event"):
        rows = [
            (
                answer.name,
                answer.label,
                "" if answer.probability is None else percent(answer.probability),
                _counts(answer),
            )
            for answer in answers
            if answer.level == level
        ]
        if rows:
            parts = "boxes or frames" if level == "event" else "frames" if level == "video" else "boxes"
            yield plain_table(level, "answer", ">probability", parts, rows=rows)


def _counts(answer: "Joined") -> str:
    return ", ".join(f"{count} {word}" for word, count in answer.counts)
