"""The verb reproduce: runs, goes on, lists, prints, and says what is wrong."""

import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from labelwise.cli.verbs import app
from labelwise.support.errors import DataError, UsageError
from labelwise_papers.reproduce.results import RESULTS, read_results
from tests.forks import Fork, shell
from tests.papers.reproduce.tiny_recipes import write_recipe


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["reproduce", *map(str, words)], catch_exceptions=False)


@pytest.fixture(autouse=True)
def _empty_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABELWISE_DATA", str(tmp_path / "empty"))
    monkeypatch.chdir(tmp_path)


def test_a_recipe_of_ones_own_is_run_and_goes_on(tmp_path: Path) -> None:
    path = write_recipe(tmp_path)
    result = run(path, "--out", "out", "--device", "cpu", "--seeds", "1")
    assert result.exit_code == 0
    assert "own/one, absent: missing data" in result.stderr
    assert "own/one: A table of our own" in result.stdout
    assert "1 of 1" in result.stdout
    first = (tmp_path / "out" / RESULTS).read_bytes()
    result = run(path, "--out", "out", "--device", "cpu")
    assert (tmp_path / "out" / RESULTS).read_bytes().startswith(first)
    assert [(one["row"], one["seed"]) for one in read_results(tmp_path / "out")] == [
        ("eszsl", 0), ("devise", 0), ("eszsl", 1), ("devise", 1),
    ]  # fmt: skip
    assert "seed 0" not in result.stderr


def test_data_and_methods_are_chosen(tmp_path: Path) -> None:
    path = write_recipe(tmp_path)
    run(path, "--out", "out", "--device", "cpu", "--method", "devise", "--only", "here", "--seeds", "1")
    assert [one["row"] for one in read_results(tmp_path / "out")] == ["devise"]
    with pytest.raises(UsageError, match=r'No method "devis" in these recipes. Did you mean "devise"'):
        run(path, "--method", "devis")
    with pytest.raises(UsageError, match=r'No data set "her" in these recipes. Did you mean "here"'):
        run(path, "--only", "her")
    with pytest.raises(DataError, match=r"(?s)No data of this recipe is at hand.*Ask its authors"):
        run(path, "--only", "absent")


def test_quick_keeps_nothing_unless_it_is_told_where(tmp_path: Path) -> None:
    result = run("clarel/table2", "--quick", "--method", "eszsl", "--device", "cpu")
    assert "quick run" in result.stdout
    assert not (tmp_path / "results").exists()
    run("clarel/table2", "--quick", "--method", "eszsl", "--device", "cpu", "--out", "out")
    (entry,) = read_results(tmp_path / "out")
    assert entry["quick"]
    assert "quick" not in run("clarel/table2", "--table", "--out", "out").stdout


def test_a_whole_paper_runs_though_data_is_missing(tmp_path: Path) -> None:
    result = run("clarel", "--quick", "--method", "ridge", "--device", "cpu", "--out", "out")
    assert result.exit_code == 0
    assert {one["recipe"] for one in read_results(tmp_path / "out")} == {"clarel/table1", "clarel/table2"}


def test_the_list_says_what_is_at_hand_and_what_was_run(tmp_path: Path) -> None:
    path = write_recipe(tmp_path)
    run(path, "--out", "out", "--device", "cpu", "--seeds", "1")
    told = run(path, "--list", "--out", "out").stdout
    assert "here: at hand, 2 of 4 cells run" in told
    assert "absent: missing, 0 of 4 cells run" in told
    every = run("--list").stdout
    for name in ("indicator/table2", "prototype/fewshot", "zero_label/figure4"):
        assert f"{name}  " in every
    assert "stands in for" in every


def test_markdown_is_made_from_results_and_runs_nothing(tmp_path: Path) -> None:
    path = write_recipe(tmp_path)
    run(path, "--out", "out", "--device", "cpu", "--seeds", "1", "--method", "eszsl")
    told = run(path, "--markdown", "--out", "out").stdout
    (entry,) = read_results(tmp_path / "out")
    assert f"| Here | eszsl | H | 40.0 | {entry['figures']['harmonic']:.1f} |" in told
    assert "Not run: Here (devise); Absent." in told
    assert run("--markdown", "--out", "none").stdout == ""


def test_wrong_requests_say_what_to_do() -> None:
    with pytest.raises(UsageError, match="Which recipe"):
        run()
    with pytest.raises(UsageError, match=r'Did you mean "indicator/table2"'):
        run("indicator/tabel2")
    with pytest.raises(DataError, match="labelwise data get cifar10"):
        run("indicator/table8")


def command(path: Path, out: Path, *words: str) -> Fork:
    return Fork(shell("reproduce", path, "--out", out, "--device", "cpu", *words), path.parent)


def until_a_fit(begun: Fork, out: Path) -> list[int]:
    """Wait until there is a result and a fit has begun since now; return the processes of the workers."""
    deadline, now = time.monotonic() + 300, time.time()
    while time.monotonic() < deadline and begun.poll() is None:
        time.sleep(0.02)
        with suppress(FileNotFoundError):  # a finished cell removes its own
            logs = list((out / "cells").glob("*/fit/**/log.jsonl"))
            if not read_results(out) or max((log.stat().st_mtime for log in logs), default=0) <= now:
                continue
            return [int(word) for word in Path(f"/proc/{begun.pid}/task/{begun.pid}/children").read_text().split()]
    raise AssertionError(f"no fit: {begun.said()}")


def test_workers_share_the_cells_and_end_with_the_command(tmp_path: Path) -> None:
    """SIGTERM to the command, then SIGKILL: workers stop both times; in the end each cell was run once."""
    path, out = write_recipe(tmp_path, seeds=2, epochs=60), tmp_path / "out"
    begun = command(path, out, "--workers", "2")
    until_a_fit(begun, out)
    begun.send_signal(signal.SIGTERM)
    assert begun.wait(300) == 128 + signal.SIGTERM, begun.said()
    told = begun.said()
    assert "Run the same command again" in told
    some = [entry["key"] for entry in read_results(out)]
    assert 0 < len(some) < 4
    again = command(path, out, "--workers", "2")
    children = until_a_fit(again, out)
    again.send_signal(signal.SIGKILL)
    again.wait(30)
    assert children
    deadline = time.monotonic() + 60
    while any(map(_alive, children)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [child for child in children if _alive(child)]
    assert run(path, "--out", out, "--device", "cpu").exit_code == 0
    every = [entry["key"] for entry in read_results(out)]
    assert every[: len(some)] == some
    assert len(every) == len(set(every)) == 4


def _alive(process: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
