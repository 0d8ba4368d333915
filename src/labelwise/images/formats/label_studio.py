"""Label Studio: exported tasks as JSON or JSON-MIN, with choices for whole images, and rectangles and outlines as boxes."""

import re
from collections.abc import Iterator, Mapping
from math import cos, radians, sin
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from labelwise.images.decode.crops import Box
from labelwise.images.formats.annotations import Annotations, Record, home_of
from labelwise.images.sources.paths import is_image

PATTERNS = ("labelstudio.json",)  # as ``label --export`` writes it; others are given by their name
SHAPES = ("rectanglelabels", "polygonlabels")
_UPLOADED = re.compile(r"[0-9a-f]{8}-(.+)")  # what Label Studio makes of the name of an uploaded file


def accepts(document: Any) -> bool:
    """Return whether a JSON document is a list of tasks."""
    return isinstance(document, list) and bool(document) and isinstance(document[0], dict) and bool(_image(document[0]))


def read(document: Any, file: Path) -> Annotations:
    """Return the answers of people; a task without any has no label."""
    records = tuple(record for task in document for record in _records(task))
    return Annotations(source=file, home=home_of(file), records=records)


def _records(task: Mapping[str, Any]) -> Iterator[Record]:
    image, results = _file(_image(task)), list[dict[str, Any]]()
    if "data" not in task:
        results += [{"type": "choices", "value": {"choices": task["choice"]}}] if task.get("choice") else []
        results += [
            {"type": next((kind for kind in SHAPES if kind in each), "other"), "value": each}
            for each in task.get("label") or ()
        ]
    else:
        answers = [one for one in task.get("annotations") or () if not one.get("was_cancelled")]
        results = answers[0]["result"] if answers else []
    for result in results:
        if result["type"] == "choices":
            yield Record(file=image, labels=_choices(result))
        elif result["type"] in SHAPES:
            value = result["value"]
            yield Record(file=image, labels=tuple(map(str, value[result["type"]][:1])), box=_box(value, result))
    if not results:
        guesses = [one for each in (task.get("predictions") or ())[:1] for one in each["result"]]
        yield Record(
            file=image, guess=tuple(word for one in guesses if one["type"] == "choices" for word in _choices(one))
        )


def _choices(result: Mapping[str, Any]) -> tuple[str, ...]:
    choices = result["value"]["choices"]
    choices = choices["choices"] if isinstance(choices, dict) else choices
    return (choices,) if isinstance(choices, str) else tuple(map(str, choices))


def _box(value: Mapping[str, Any], result: Mapping[str, Any]) -> Box:
    """Return the box around an outline, or around a rectangle, which may be turned about its upper left corner."""
    if "points" in value:
        across, down = zip(*((float(x), float(y)) for x, y in value["points"]), strict=True)
    else:
        left, top, width, height = (float(value[key]) for key in ("x", "y", "width", "height"))
        turn = radians(float(value.get("rotation") or 0))
        sides = (
            (value if "original_width" in value else result).get(key) for key in ("original_width", "original_height")
        )
        wide, high = (float(side or 100) for side in sides)  # x and y are in per cent of these
        corners = [(x * wide, y * high) for x in (0, width) for y in (0, height)]
        across = tuple(left + (x * cos(turn) - y * sin(turn)) / wide for x, y in corners)
        down = tuple(top + (x * sin(turn) + y * cos(turn)) / high for x, y in corners)
    return min(across), min(down), max(across) - min(across), max(down) - min(down), True


def _image(task: Mapping[str, Any]) -> str:
    """Return the address of the image of a task."""
    data = task.get("data", task)
    words = [value for value in data.values() if isinstance(value, str)] if isinstance(data, dict) else []
    return next((word for word in words if is_image(_file(word))), "")


def _file(address: str) -> str:
    """Return the name of the file that an address is of: a path, a local file, an upload, or the last part of a web address."""
    parts = urlsplit(address)
    if parts.path == "/data/local-files/":
        return parse_qs(parts.query).get("d", [""])[0]
    if parts.path.startswith("/data/upload/"):
        name = unquote(parts.path.rpartition("/")[2])
        match = _UPLOADED.fullmatch(name)
        return match[1] if match else name
    return unquote(parts.path.rpartition("/")[2]) if parts.scheme in ("http", "https", "s3", "gs") else address
