"""Run the code blocks of a page in order: ``pycon`` as doctests, ``console`` as commands of the shell with their output."""

import doctest
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from labelwise import cli

FENCE = re.compile(r"^```(pycon|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAMPLE = "labelwise data sample"  # takes seconds: one page writes it, the others find it
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a block of the shell with its expected output."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield command, expected


def code_of(kind: str, block: str) -> str:
    """Return what a block of a page runs, as a cell of a notebook."""
    if kind == "console":
        return "\n".join(("# %" if each.startswith("pip") else "!") + each for each, _ in commands(block))
    return "".join(each.source for each in doctest.DocTestParser().get_doctest(block, {}, "", "", 0).examples).rstrip()


def run_command(command: str) -> tuple[int, str]:
    """Return the exit code and the output of a command of labelwise, run in this process."""
    words, said = shlex.split(command, comments=True), io.StringIO()
    with patch.object(sys, "argv", words), redirect_stdout(said), redirect_stderr(said):
        try:
            cli.main()
        except SystemExit as stop:
            return (stop.code if isinstance(stop.code, int) else 0), said.getvalue()
    return 0, said.getvalue()


def run_page(page: Path) -> int:
    """Run the blocks of a page in the working folder and return how many there are; ``pip install`` is not run."""
    names: dict[str, Any] = {}
    checker, count = doctest.OutputChecker(), 0
    for kind, block in FENCE.findall(page.read_text(encoding="utf-8")):
        count += 1
        if kind == "pycon":
            test = doctest.DocTestParser().get_doctest(block, names, page.name, str(page), 0)
            runner = doctest.DocTestRunner(verbose=False, optionflags=FLAGS)
            runner.run(test, clear_globs=False)
            names = test.globs
            assert not runner.failures, f"{page.name}: {block}"
            continue
        for command, expected in commands(block):
            if command.startswith("pip install") or (command.startswith(SAMPLE) and Path("birds").exists()):
                continue
            with patch.dict(os.environ, {"COLUMNS": "200"}):
                code, said = run_command(command)
            assert code == 0, f"{page.name}: {command}\n{said}"
            assert not expected or checker.check_output(expected, said, FLAGS), f"{page.name}: {command}\n{said}"
    return count
