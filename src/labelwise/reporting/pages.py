"""Render templates into single HTML files that need no network and work on phones, in dark mode and in print."""

import base64
import io
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image

from labelwise.support.text import FACTS, FIGURES

TEMPLATES = Path(__file__).parent / "templates"


class PageImage(NamedTuple):
    """An image embedded in a page: its data URL, alternative text and size."""

    source: str
    words: str
    width: int
    height: int


def render(template: str, values: Mapping[str, Any]) -> str:
    """Render a template; all values are escaped, never read as HTML."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "at": at,
        "percent": percent,
        "three": three,
        "thousands": thousands,
        "counted": count_phrase,
    }
    environment.globals |= {"source": _source, "words": FIGURES, "facts": FACTS}
    return environment


def _source(name: str) -> Markup:
    """Return a style sheet or script of the templates folder."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def page_image(image: Image.Image, words: str, kind: Literal["PNG", "JPEG"] = "PNG") -> PageImage:
    """Return an image for a page, with alternative text."""
    stream = io.BytesIO()
    image.save(stream, kind, **({"quality": 86, "subsampling": 0} if kind == "JPEG" else {"optimize": True}))
    data = base64.b64encode(stream.getvalue()).decode()
    return PageImage(f"data:image/{kind.lower()};base64,{data}", words, image.width, image.height)


def at(figures: Any, path: str) -> Any:
    """Return the value at a path of keys such as ``closed.accuracy`` in a JSON document, or None."""
    for key in path.split("."):
        figures = (figures or {}).get(key)
    return figures


def percent(share: float | None) -> str:
    """Format a share as a percentage with one decimal; a dash for None."""
    return "—" if share is None or math.isnan(share) else f"{100 * share:.1f}\u00a0%"


def three(value: float | None) -> str:
    """Format a number with three decimals; a dash for None."""
    return "—" if value is None else f"{value:.3f}"


def thousands(value: float) -> str:
    """Format an integer with digits in groups of three."""
    return f"{value:,.0f}".replace(",", "\u202f")


def count_phrase(count: int, noun: str) -> str:
    """Return a count and a noun, such as "2 images"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
