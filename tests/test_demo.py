"""The tour: its commands of the main job succeed, one after the other."""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from labelwise import demo
from labelwise.data import finches
from tests.cli.conftest import run as run


def test_the_commands_of_the_main_job_succeed(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed: list[str] = []

    def in_this_process(_: Console, *words: str | Path) -> None:
        code, _, err = run(*words)
        assert code == 0, err
        typed.append(str(words[0]))

    monkeypatch.setattr(demo, "_type", in_this_process)
    monkeypatch.setattr(demo, "SPECIES", 3)
    monkeypatch.setattr(demo, "PHOTOS", 5)
    demo._own_images(Console(quiet=True), finches(), demo.HELD_OUT, tmp_path / "a tour")
    assert {"fit", "evaluate", "classify", "teach"} == set(typed)
