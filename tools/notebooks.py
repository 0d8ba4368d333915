"""Turn a page of the documentation into a Jupyter notebook: ``python tools/notebooks.py PAGE.md NOTEBOOK.ipynb``. ``make docs`` does so for every page with examples.

Blocks ``console`` and ``pycon`` become cells of code without their output; all else becomes text.
"""

import doctest
import json
import re
import sys
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```(pycon|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]+)\]\((?!https?://)[^)]*\)")
IMAGE = re.compile(r"^!\[[^\n]*\n", re.MULTILINE)
KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def has_examples(page: str) -> bool:
    """Return whether a page has a block that runs."""
    return BLOCK.search(page) is not None


def code_of(kind: str, block: str) -> str:
    """Return the code of a block: commands of the shell for IPython, or Python without prompts and output."""
    if kind == "pycon":
        return "".join(example.source for example in doctest.DocTestParser().get_examples(block)).rstrip()
    commands = re.findall(r"^\$ (.*)$", block, re.MULTILINE)
    return "\n".join(f"%{each}" if each.startswith("pip ") else f"!{each}" for each in commands)


def cell(kind: str, number: int, source: str) -> dict[str, Any]:
    """Return a cell of text or code."""
    about: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
    if kind == "code":
        about |= {"execution_count": None, "outputs": []}
    return about | {"source": source.splitlines(keepends=True)}


def to_notebook(page: str) -> dict[str, Any]:
    """Return a page as a notebook (nbformat 4.5)."""
    cells: list[dict[str, Any]] = []
    end = 0
    pieces = [(found.start(), found.end(), found[1], found[2]) for found in BLOCK.finditer(page)]
    for start, stop, kind, block in [*pieces, (len(page), len(page), "", "")]:
        words = LINK.sub(r"\1", IMAGE.sub("", page[end:start])).strip()
        if words:
            cells.append(cell("markdown", len(cells), words))
        if kind:
            cells.append(cell("code", len(cells), code_of(kind, block)))
        end = stop
    return {"cells": cells, "metadata": KERNEL, "nbformat": 4, "nbformat_minor": 5}


def write_notebook(page: Path, notebook: Path) -> None:
    """Write a page as a notebook file."""
    notebook.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(to_notebook(page.read_text(encoding="utf-8")), indent=1, ensure_ascii=False)
    notebook.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_notebook(Path(sys.argv[1]), Path(sys.argv[2]))
