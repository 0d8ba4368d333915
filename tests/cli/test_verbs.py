"""All verbs: the help, and wrong use."""

import ast
import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import typer
from PIL import Image

from labelwise import __version__, cli
from labelwise.cli import verbs
from labelwise.cli.data import VERBS as DATA_VERBS
from labelwise.cli.options import SharedOptions, shared_options
from labelwise.cli.verbs import VERBS
from labelwise.core.head import CAPABILITIES, Generates, LearnsFromExamples, Whitens
from labelwise.support.text import LOCATE

ROOT = Path(__file__).parents[2]


def alone(code: str) -> str:
    """Return what Python prints for some code in a process of its own."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_help_is_quick_because_torch_is_not_imported() -> None:
    printed = alone(
        "import sys; sys.argv = ['labelwise', '--help']\nfrom labelwise.cli import main\ntry: main()\n"
        "except SystemExit: pass\nassert not {'torch', 'numpy', 'jinja2'} & set(sys.modules)"
    )
    for group, some in VERBS.items():
        assert group in printed
        assert all(verb.__name__ in printed for verb in some)


def test_help_names_what_a_model_must_be_able_to_do(run: Any) -> None:
    """In the words of ``can``, which errors use, too."""
    of_heads = {kind: words for words, kind in CAPABILITIES.items()}
    for verb, words in (
        ("teach", of_heads[LearnsFromExamples]),
        ("explain", LOCATE),  # it is the encoder that can
        ("imagine", of_heads[Generates]),
        ("retrieve", of_heads[Whitens]),
    ):
        _, out, _ = run(verb, "--help")
        assert f"can {words}" in " ".join(out.split())


@pytest.mark.parametrize("module", ["labelwise_papers.verb", "labelwise.cli.output"])
def test_a_plug_in_may_be_imported_first(module: str) -> None:
    alone(f"import {module}, labelwise.cli.verbs")


def test_verbs_share_no_private_function() -> None:
    for path in Path(cli.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("labelwise.cli"):
                assert not [alias.name for alias in node.names if alias.name.startswith("_")], path.name


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["fit", "nowhere", "--out", "m"], 1, "no such file or folder"),
        (["fit", "finchs", "--out", "m"], 1, 'Did you mean "finches"?'),
        (["evaluate", "nowhere.lw", "finches"], 1, "No saved classifier at nowhere.lw"),
        (["fit", "finches"], 2, "--out"),
        (
            ["fit", "https://example.org/photos.zip", "--out", "m"],
            1,
            "a web address, and nothing is downloaded",
        ),
        (["fit", "split.csv", "--out", "m"], 1, '"labelwise fit PHOTOS --splits split.csv"'),
        (["fly"], 2, "No such command"),
        (["fit", "finches", "--out", "m", "--device", "tpu"], 2, "auto, cpu or cuda"),
    ],
)
def test_wrong_use(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "split.csv").write_text("file,label,split\na/1.jpg,a,train\n")
    got, out, err = run(*words)
    assert got == code
    assert message in " ".join(err.split())
    assert out == ""
    assert not (tmp_path / "m").exists()


def test_the_version_is_told_without_torch() -> None:
    printed = alone(
        "import sys; sys.argv = ['labelwise', '--version']\nfrom labelwise.cli import main\ntry: main()\n"
        "except SystemExit as stop: assert not stop.code\nassert 'torch' not in sys.modules"
    )
    assert re.fullmatch(rf"labelwise {re.escape(__version__)} \(Python 3\.\d+\.\S+, torch \d+\.\d+\S*\)\n", printed)


def test_the_changelog_begins_with_this_version() -> None:
    first = re.search(r"^## (\S+)( \(unreleased\))?", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None
    release, unreleased = first.groups()
    assert __version__ == (f"{release}.dev0" if unreleased else release)
    assert unreleased or f"version: {release}\n" in (ROOT / "CITATION.cff").read_text()


def test_options_of_every_verb_stand_before_it_or_after_it(run: Any, tmp_path: Path) -> None:
    (tmp_path / "twice").mkdir()
    table = tmp_path / "birds.csv"
    table.write_text("path,label\n0.png,a\n1.png,b\n2.png,a\n3.png,b\n")
    for i in range(4):
        Image.new("RGB", (16, 16), (60 * i, 0, 99)).save(tmp_path / "twice" / f"{i}.png")
    before = run("--data-root", tmp_path / "twice", "--json", "data", "check", table)
    after = run("data", "check", table, "--data-root", tmp_path / "twice", "--json")
    both = run("--json", "data", "check", table, "--data-root", tmp_path / "twice")
    assert before == after == both
    assert (before[0], json.loads(before[1])["name"]) == (0, "birds")
    assert run("data", "check", table, "--data-root", tmp_path / "nowhere")[0] == 1
    assert run("data", "check", table, "--seed", "x")[0] == 2


def test_options_of_one_command_do_not_reach_the_next(run: Any) -> None:
    assert run("--json", "settings", "softmax")[1].startswith("{")
    assert not run("settings", "softmax")[1].startswith("{")
    assert shared_options() == SharedOptions()


def test_no_verb_declares_an_option_of_every_verb() -> None:
    """So that each is one option, with one meaning."""
    common = {each.name for each in fields(SharedOptions)} - {"root"}
    every = [*(verb for some in VERBS.values() for verb in some), *DATA_VERBS.values()]
    assert not [(verb.__name__, name) for verb in every for name in common & set(signature(verb).parameters)]


def test_quiet_leaves_results_and_warnings(run: Any, tmp_path: Path) -> None:
    said, quiet = run("data", "list"), run("data", "list", "--quiet")
    assert said[1] == quiet[1]
    assert "labelwise data where" in said[2]
    assert quiet[2] == ""


def test_a_lock_that_a_signal_hits_half_way_hides_no_stop(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def hit() -> int:
        try:
            raise KeyboardInterrupt
        finally:
            broken()

    def broken() -> int:
        raise RuntimeError("release unlocked lock")

    monkeypatch.setattr("labelwise.support.files.memory", hit)
    code, _, said = run("doctor")
    assert (code, said) == (130, "Stopped.\n")
    monkeypatch.setattr("labelwise.support.files.memory", broken)
    with pytest.raises(RuntimeError, match="unlocked"):
        run("doctor")


def test_threads_that_wait_sleep_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "app", lambda: None)
    for given, used in ((None, "passive"), ("active", "active")):
        monkeypatch.setenv("OMP_WAIT_POLICY", given or "")
        if given is None:
            monkeypatch.delenv("OMP_WAIT_POLICY")
        verbs.main()
        assert os.environ["OMP_WAIT_POLICY"] == used


def test_help_lines_are_short() -> None:
    """So that each is one line of a terminal."""
    long: list[tuple[str, str]] = []

    def look(command: Any, words: str) -> None:
        for name, inner in getattr(command, "commands", {}).items():
            look(inner, f"{words} {name}".strip())
        lines = [(command.help or "").partition("\n")[0].partition("  ")[0]]
        lines += [getattr(each, "help", None) or "" for each in command.params]
        long.extend((words, line) for line in lines if words and len(line) >= 60)

    look(typer.main.get_command(verbs.app), "")
    assert long == []


def test_the_shell_completes_commands_and_options() -> None:
    asked = {"COMP_WORDS": "labelwise classify --max", "COMP_CWORD": "2", "_LABELWISE_COMPLETE": "complete_bash"}
    program = "import sys; from labelwise.cli import main; sys.argv[0] = 'labelwise'; main()"
    words, environment = [sys.executable, "-c", program], {**os.environ, **asked}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["--max-error"], done.stderr
