"""Names as they are shown: whatever a label or a file is called, it reads as that name and does nothing else."""

import json
import math
import re
from typing import Any

# What changes a terminal or the order of letters, or cannot be written as UTF-8: controls (ESC, and CSI as one of them), line
# and paragraph separators, marks and overrides of direction, halves of surrogate pairs.
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
BREAKS = re.compile(f"[\t\n]|{UNSAFE.pattern}")
FORMULA = re.compile(r"'*[=+\-@\t\r]")  # how a cell begins that a spreadsheet computes
QUOTED = re.compile(r"'+[=+\-@\t\r]")
LONGEST = 60  # letters of a name in an image or in the name of a file


def visible(text: str, *, lines: bool = False) -> str:
    r"""Return a text with what is unsafe to show spelled out in ASCII; line breaks and tabs stay where it has ``lines``.

    A byte of a file's name that is not UTF-8 is spelled as that byte: ``caf\xe9.png``.
    """
    return (UNSAFE if lines else BREAKS).sub(_spell, text)


def _spell(match: re.Match[str]) -> str:
    sign = match[0]
    return f"\\x{ord(sign) - 0xDC00:02x}" if "\udc80" <= sign <= "\udcff" else ascii(sign)[1:-1]


def json_text(document: Any, indent: int | None = None, *, ascii_only: bool = False) -> str:
    """Return a document as JSON, with null for numbers that are not finite, which JSON does not have."""
    try:
        return json.dumps(document, ensure_ascii=ascii_only, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(document), ensure_ascii=ascii_only, indent=indent, allow_nan=False)


def _finite(document: Any) -> Any:
    """Return a document with None in place of infinite numbers and of those that are none."""
    if isinstance(document, dict):
        return {name: _finite(value) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [_finite(value) for value in document]
    return None if isinstance(document, float) and not math.isfinite(document) else document


def as_json(document: Any, indent: int | None = None, *, ascii_only: bool = False) -> str:
    """Return a document as JSON that is safe to show: the same values, some letters spelled in ASCII."""
    text = json_text(document, indent, ascii_only=ascii_only)
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def caption(name: str) -> str:
    """Return a name as matplotlib writes it into an image: not as a formula between dollars, and not longer than a line."""
    short = name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"
    return visible(short).replace("$", r"\$")


def to_cell(name: str) -> str:
    """Return a name as a cell of a table that a spreadsheet may open: ``=cmd()`` gets a quote before it. See ``from_cell``."""
    return f"'{name}" if FORMULA.match(name) else name


def from_cell(cell: str) -> str:
    """Return the name that ``to_cell`` made a cell of."""
    return cell[1:] if QUOTED.match(cell) else cell


def as_file_name(name: str) -> str:
    """Return a name as a part of the name of a file: letters, digits and few others, not too long."""
    return re.sub(r"[^\w.-]+", "_", name)[:LONGEST]
