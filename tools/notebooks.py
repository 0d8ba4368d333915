"""Turn a page of the documentation into a Jupyter notebook: ``python tools/notebooks.py PAGE.md NOTEBOOK.ipynb``. ``make docs`` does so for every page with examples.

Blocks ``console`` and ``pycon`` become cells of code without their output; all else becomes text. Each value that a page shows ends a cell, because
Jupyter shows the last value of a cell only. A line that raises an error on purpose is tagged, so that Jupyter goes on. The first code makes a new
folder with the drawn birds: every notebook runs by itself, and again. Installations are comments, because ``.`` is a clone of the repository.
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
SAMPLE = "labelwise data sample"
START = """# A new folder next to this notebook, with the drawn birds of the examples.
import os, tempfile
os.chdir(tempfile.mkdtemp(prefix="{name}-", dir="."))
os.environ["COLUMNS"] = "110"  # the width of tables"""
KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def has_examples(page: str) -> bool:
    """Return whether a page has a block that runs."""
    return BLOCK.search(page) is not None


def code_cells(kind: str, block: str) -> list[tuple[str, bool]]:
    """Return the code of a block as cells, and whether each raises an error on purpose: commands for IPython, or Python without prompts."""
    if kind == "console":
        commands = re.findall(r"^\$ (.*)$", block, re.MULTILINE)
        return [("\n".join(f"# %{each}" if each.startswith("pip ") else f"!{each}" for each in commands), False)]
    cells: list[tuple[str, bool]] = []
    ended = True  # the last cell shows a value
    for example in doctest.DocTestParser().get_examples(block):
        raises = example.exc_msg is not None
        if ended or raises:
            cells.append((example.source, raises))
        else:
            cells[-1] = (cells[-1][0] + example.source, False)
        ended = raises or bool(example.want)
    return [(code.rstrip(), raises) for code, raises in cells]


def cell(kind: str, number: int, source: str) -> dict[str, Any]:
    """Return a cell of text or code."""
    about: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
    if kind == "code":
        about |= {"execution_count": None, "outputs": []}
    return about | {"source": source.splitlines(keepends=True)}


def to_notebook(page: str, name: str) -> dict[str, Any]:
    """Return a page as a notebook (nbformat 4.5)."""
    title, _, page = page.partition("\n")
    setup = START.format(name=name) + ("" if f"$ {SAMPLE}" in page else f"\n!{SAMPLE}")
    cells = [cell("markdown", 0, title), cell("code", 1, setup)]
    end = 0
    pieces = [(found.start(), found.end(), found[1], found[2]) for found in BLOCK.finditer(page)]
    for start, stop, kind, block in [*pieces, (len(page), len(page), "", "")]:
        words = LINK.sub(r"\1", IMAGE.sub("", page[end:start])).strip()
        if words:
            cells.append(cell("markdown", len(cells), words))
        if kind:
            for code, raises in code_cells(kind, block):
                cells.append(cell("code", len(cells), code))
                cells[-1]["metadata"] = {"tags": ["raises-exception"]} if raises else {}  # "Run all" goes on
        end = stop
    return {"cells": cells, "metadata": KERNEL, "nbformat": 4, "nbformat_minor": 5}


def write_notebook(page: Path, notebook: Path) -> None:
    """Write a page as a notebook file."""
    notebook.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(to_notebook(page.read_text(encoding="utf-8"), page.stem), indent=1, ensure_ascii=False)
    notebook.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_notebook(Path(sys.argv[1]), Path(sys.argv[2]))
