"""The pages are true: links, names in Python, verbs and options exist, and the pages of ``RUN`` run as written."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

from labelwise.cli.verbs import app
from labelwise.images.sets.sample import write_sample
from tests.pages import FENCE, SAMPLE, code_of, run_page

ROOT = Path(__file__).parents[1]
TUTORIALS = {"few-examples": 6, "names": 4, "sentences": 4, "label": 3, "deploy": 2}  # least number of blocks
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / f"{name}.md" for name in ("README", "SECURITY"))]
ROOMS = "tasks|data|ops|methods|training|fitting|server|cli|report|evaluate|jobs"
NAME = re.compile(rf"`((?:labelwise|labelwise_papers|lw|{ROOMS})(?:\.\w+)+)\b[^`]*`")
IMPORT = re.compile(r"^from (labelwise[\w.]*) import ([\w, ]+)$", re.MULTILINE)
HOW_TO = {
    "cache": 1,
    "first-classifier": 8,
    "few-shot": 2,
    "pretrain": 1,
    "report": 3,
    "scale": 1,
    "teach": 1,
    "verify": 5,
}
RUN = {"python": 8, "start": 7, **HOW_TO, **{f"tutorials/{n}": m for n, m in TUTORIALS.items()}}
KEYS = ("training.engine", "data.yaml")  # of a summary, and a file of YOLO


def exists(name: str) -> bool:
    """Return whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            found = getattr(found, part, None) or getattr(found, "__dataclass_fields__", {}).get(part)
        return found is not None
    return False


def commands(page: str) -> Iterator[list[str]]:
    """Yield the words of each command of the shell, without its first one."""
    blocks = "".join(re.findall(r"^```[^\n]*\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    for line in (
        *re.findall(r"`(labelwise [^`\n]+)`", page),
        *re.findall(r"^(?:\$ )?(labelwise .*)$", blocks, re.MULTILINE),
    ):
        yield shlex.split(line.rstrip("\\"), comments=True)[1:]


def unknown(words: list[str]) -> list[str]:
    """Return what a command names that is no verb and no option of it."""
    command: Any = typer.main.get_command(app)
    while words and hasattr(command, "commands") and words[0][0].isalpha() and words[0].islower():
        if words[0] not in command.commands:
            return words[:1]
        command, words = command.commands[words[0]], words[1:]
    params = [*command.params, *typer.main.get_command(app).params]
    known = {option for each in params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
    return (
        []
        if hasattr(command, "commands")
        else [word for word in words if re.match("--[a-z]", word) and word not in known]
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
    names = [re.sub(r"^lw\.", "labelwise.", name) for name in NAME.findall(text) if name not in KEYS]
    names += [f"{module}.{name.strip()}" for module, some in IMPORT.findall(text) for name in some.split(",")]
    whole = (name if name.startswith("labelwise") else f"labelwise.{name}" for name in names)
    assert [name for name in whole if not exists(name)] == []
    assert [word for words in commands(text) for word in unknown(words)] == []


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    write_sample(folder)
    return folder


@pytest.mark.parametrize("page", RUN)
def test_a_page_runs(page: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir() if page == "start" else shutil.copytree(photos, home)
    monkeypatch.chdir(home)
    monkeypatch.setenv("LABELWISE_CACHE", str(photos.parent / "features"))  # of photos that all pages share
    assert run_page(ROOT / "docs" / f"{page}.md") >= RUN[page]


@pytest.mark.parametrize("page", RUN)
def test_a_notebook_has_the_code_of_its_page(page: str, tmp_path: Path) -> None:
    source, notebook = ROOT / "docs" / f"{page}.md", tmp_path / "page.ipynb"
    subprocess.run([sys.executable, str(ROOT / "tools/notebooks.py"), str(source), str(notebook)], check=True)
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    start, *code = (cell for cell in cells if cell["cell_type"] == "code")
    assert (SAMPLE in "".join(start["source"])) != (f"$ {SAMPLE}" in source.read_text(encoding="utf-8"))
    blocks = FENCE.findall(text := source.read_text(encoding="utf-8"))
    joined = "\n".join("".join(cell["source"]) for cell in code)
    assert joined == "\n".join(code_of(kind, block) for kind, block in blocks)
    assert sum("raises-exception" in cell["metadata"].get("tags", ()) for cell in code) == text.count("\nTraceback")
    words = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    assert ">>>" not in words
    assert "](" not in words.replace("](http", "")


def test_diagrams_are_what_the_tool_draws(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "tools/diagrams.py"), str(tmp_path)], check=True)
    drawn = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert drawn == {file.name: file.read_text() for file in (ROOT / "docs/pictures").glob("idea-*.svg")}


def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    """Slow: Sphinx reads all pages."""
    pytest.importorskip("furo", reason="the extra docs is not installed")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(ROOT / "docs"), str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "index.html").stat().st_size > 10_000
