"""Pages: what every HTML page of this library shares. One file each, no network; readable on a phone, in the dark and in print."""

import base64
import io
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from PIL import Image

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2430; --soft: #5a6675; --line: #e2e6eb; --panel: #f5f7f9;
  --a: #2563a8; --b: #c2610c; --c: #1a7f4b; --d: #8a3ea8; --e: #a3740a; --f: #4b5a6b; --warn: #8f3a0b; --warn-paper: #fdf4e7; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181e; --ink: #e4e8ee; --soft: #9aa6b5; --line: #2c343f; --panel: #1c222a;
  --a: #6ea8ea; --b: #f0964a; --c: #58c08a; --d: #c48ae0; --e: #d9b04c; --f: #9fb0c3; --warn: #f2b27a; --warn-paper: #2b2218; } }
@media print { :root { color-scheme: light; --paper: #fff; --ink: #000; --soft: #444; --line: #ccc; --panel: #fff;
  --a: #2563a8; --b: #c2610c; --c: #1a7f4b; --d: #8a3ea8; --e: #a3740a; --f: #4b5a6b; --warn: #8f3a0b; --warn-paper: #fff; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; color: var(--ink);
  background: var(--paper); max-width: 64rem; margin: 2rem auto 4rem; padding: 0 1rem; -webkit-text-size-adjust: 100%; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .3rem; letter-spacing: -.01em; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 0; overflow-wrap: anywhere; }
h3 { font-size: .9rem; font-weight: 600; color: var(--soft); margin: 1.2rem 0 .4rem; }
a { color: var(--a); } p { margin: .5rem 0; }
table { border-collapse: collapse; width: 100%; margin: .6rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th { font-weight: 600; color: var(--soft); font-size: .85rem; } th:first-child, td:first-child { text-align: left; padding-left: 0; }
.wide { overflow-x: auto; } .soft { color: var(--soft); }
code { font: .88em/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.note { background: var(--warn-paper); border-left: 4px solid var(--b); padding: .6rem 1rem; border-radius: 0 6px 6px 0; }
"""


def document(title: str, body: str, *, style: str = "", script: str = "") -> str:
    """Return a whole page as HTML.

    Args:
        title: of the window.
        body: HTML.
        style: rules beyond ``STYLE``.
        script: a script that the page can be read without.
    """
    code = f"<script>{script}</script>\n" if script else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>
<style>{STYLE}{style}</style></head>
<body>
{body}
{code}</body></html>
"""


def picture(image: "Image.Image", words: str, kind: Literal["PNG", "JPEG"] = "PNG") -> str:
    """Return an image inside the page, with words for those who do not see it."""
    stream = io.BytesIO()
    image.save(stream, kind, **({"quality": 86, "subsampling": 0} if kind == "JPEG" else {"optimize": True}))
    data = base64.b64encode(stream.getvalue()).decode()
    said, size = escape(words), f'width="{image.width}" height="{image.height}"'
    return f'<img src="data:image/{kind.lower()};base64,{data}" alt="{said}" title="{said}" {size}>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """Return a table that scrolls within itself where it is too wide; cells are HTML, and blank heads are left out."""
    cells = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    top = f"<thead><tr>{cells}</tr></thead>\n" if any(head) else ""
    inside = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    named = f' class="{kind}"' if kind else ""
    return f'<div class="wide"><table{named}>{top}<tbody>\n{inside}\n</tbody></table></div>'


def percent(share: float | None) -> str:
    """Return a share as per cent with one digit after the point; a dash where there is none."""
    return "—" if share is None or math.isnan(share) else f"{100 * share:.1f}\u00a0%"
