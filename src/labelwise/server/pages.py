"""The web pages: each fills the blocks of one frame, frame.html."""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

FOLDER = Path(__file__).parent / "page"


def page(name: str) -> HTMLResponse:
    """Return a page as a response."""
    return HTMLResponse(_text(name))


@cache
def _text(name: str) -> str:
    environment = Environment(loader=FileSystemLoader(FOLDER), undefined=StrictUndefined, autoescape=True)
    return environment.get_template(name).render()
