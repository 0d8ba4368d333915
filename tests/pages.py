"""Run the code blocks of a page in order: ``pycon`` as doctests, ``console`` as commands of the shell with their output."""

import csv
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

from PIL import Image

from labelwise import cli
from labelwise.data import load

FENCE = re.compile(r"^```(pycon|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
SPECIES, PHOTOS = 6, 12


def write_data(root: Path) -> None:
    """Write the folders that the pages use: six species, photos of a seventh, two more, and descriptions of seven."""
    data = load("finches")
    images, targets, names = data.split("train").images.values, data.split("train").targets, data.labels.names
    seen, new, others = sorted(names[::5]), names[-1], [name for name in names if name not in names[::5]][:2]
    places = {f"birds/{name}": name for name in seen} | {f"described/{name}": name for name in seen}
    for place, name in (places | {"new": new} | {f"new-labels/{name}": name for name in others}).items():
        (root / place).mkdir(parents=True)
        for i, image in enumerate(images[targets == names.index(name)][:PHOTOS]):
            photo = Image.fromarray(image.transpose(1, 2, 0)).resize((240, 240))
            photo.save(root / place / f"{i:02}.jpg", quality=95)
    assert data.labels.texts is not None
    with (root / "described" / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["label", "text", "text_1"])
        table.writerows([name, *data.labels.texts[names.index(name)][:2]] for name in [*seen, new])


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a block of the shell with its expected output."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield command, expected


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
            if command.startswith("pip install"):
                continue
            with patch.dict(os.environ, {"COLUMNS": "200"}):
                code, said = run_command(command)
            assert code == 0, f"{page.name}: {command}\n{said}"
            assert not expected or checker.check_output(expected, said, FLAGS), f"{page.name}: {command}\n{said}"
    return count
