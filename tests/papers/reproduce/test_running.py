"""Cells are run once, whoever runs them, and however often they are killed."""

import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labelwise.support.errors import Interrupted, LabelwiseError, UsageError
from labelwise.support.writable import sole_writer
from labelwise.train.step import TrainingStep
from labelwise_papers.baselines.authors_naming import AuthorsZeroLabel
from labelwise_papers.recipe import Row, Source
from labelwise_papers.reproduce import measures, running
from labelwise_papers.reproduce.cells import Cell, Choice, cells_of
from labelwise_papers.reproduce.quick import SMALL_ENCODER
from labelwise_papers.reproduce.results import RESULTS, read_results
from labelwise_papers.reproduce.running import Place, is_done, run_cells
from tests.papers.reproduce.tiny_recipes import tiny_recipe

KILLS = 5


def cells(folder: Path, *, seeds: int = 2, epochs: int = 1) -> list[Cell]:
    return list(cells_of(tiny_recipe(folder, seeds=seeds, epochs=epochs), Choice(), ["here"]))


def figures(out: Path) -> dict[str, object]:
    return {entry["key"]: entry["figures"] for entry in read_results(out)}


def quietly(text: str) -> None:
    pass


def test_finished_cells_are_not_run_again(tmp_path: Path) -> None:
    told: list[str] = []
    place = Place(out=tmp_path / "out", device="cpu")
    wanted = cells(tmp_path)
    assert run_cells(wanted[:3], place, told.append) == []
    before = (place.out / RESULTS).read_bytes()
    assert run_cells(wanted, place, told.append) == []
    assert [text.split(", ", 1)[1] for text in told] == [
        "here, eszsl, seed 0",
        "here, devise, seed 0",
        "here, eszsl, seed 1",
        "here, devise, seed 1",
    ]
    assert (place.out / RESULTS).read_bytes().startswith(before)
    entry = read_results(place.out)[1]
    assert (entry["recipe"], entry["data"], entry["row"], entry["seed"]) == ("own/one", "here", "devise", 0)
    assert entry["configuration"]["settings"]["epochs"] == 1
    assert {
        "commit",
        "versions",
        "device",
        "threads",
        "finished",
        "training_seconds",
        "engine",
        "peak_mib",
    } <= entry.keys()
    assert not list((place.out / "cells").iterdir())


def test_other_settings_are_other_cells(tmp_path: Path) -> None:
    place = Place(out=tmp_path / "out", device="cpu")
    run_cells(cells(tmp_path), place, quietly)
    other = cells(tmp_path, epochs=2)
    assert [is_done(cell, place.out) for cell in other] == [True, False, True, False]


@pytest.mark.parametrize("kind", [LabelwiseError, RuntimeError])
def test_a_cell_that_fails_does_not_stop_the_others(
    kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = running.run_cell

    def fragile(cell: Cell, *more: Any) -> object:
        if cell.row.name == "eszsl":
            raise kind("training diverged")
        return whole(cell, *more)

    monkeypatch.setattr(running, "run_cell", fragile)
    place = Place(out=tmp_path / "out", device="cpu")
    failed = run_cells(cells(tmp_path), place, quietly)
    assert failed == [f"own/one, here, eszsl, seed {seed}: training diverged" for seed in (0, 1)]
    assert [entry["row"] for entry in read_results(place.out)] == ["devise", "devise"]


def test_a_measure_that_fails_loses_neither_training_nor_other_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, steps = TrainingStep.take, 0

    def counted(*given: Any) -> Any:
        nonlocal steps
        steps += 1
        return whole(*given)

    monkeypatch.setattr(TrainingStep, "take", counted)
    (plain,) = (cell for cell in cells(tmp_path, seeds=1) if cell.row.name == "devise")
    wanted = replace(plain, row=replace(plain.row, measures=("closed",)))
    straight, place = (Place(out=tmp_path / name, device="cpu") for name in ("straight", "out"))
    assert run_cells([wanted], straight, quietly) == []
    in_one_go, steps = steps, 0

    def broken(_: object) -> None:
        raise RuntimeError("two devices")

    with monkeypatch.context() as patch:
        patch.setitem(measures.MEASURES, "closed", broken)
        (words,) = run_cells([wanted], place, quietly)
    assert "two devices" in words
    assert "The training is kept" in words
    (entry,) = read_results(place.out)
    assert "harmonic" in entry["figures"]
    assert list(entry["failed"]) == ["closed"]
    assert not is_done(wanted, place.out)
    assert run_cells([wanted], place, quietly) == []
    assert is_done(wanted, place.out)
    assert figures(place.out) == figures(straight.out)
    assert steps == in_one_go, "nothing is trained twice"


def test_a_cell_that_another_table_has_run_in_the_same_way_takes_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(out=tmp_path / "out", device="cpu")
    first = cells(tmp_path, seeds=1)
    assert run_cells(first, place, quietly) == []
    monkeypatch.setattr(running, "run_cell", None)  # nothing is run
    (other,) = (replace(cell, recipe=replace(cell.recipe, table="two")) for cell in first if cell.row.name == "eszsl")
    assert run_cells([other], place, quietly) == []
    entry = read_results(place.out)[-1]
    assert (entry["recipe"], entry["same_as"]) == ("own/two", "own/one, eszsl")
    assert entry["figures"] == next(one["figures"] for one in read_results(place.out) if one["row"] == "eszsl")
    more = replace(other, recipe=replace(other.recipe, table="four", measures=("zero_shot", "closed")))
    assert run_cells([more], place, quietly) != [], "the other was not measured so"
    official = {**other.recipe.data, "here": replace(other.source, official=True)}
    strict = replace(other, recipe=replace(other.recipe, table="three", data=official))
    assert run_cells([strict], place, quietly) != [], "a packed form is no official file"
    changed = replace(other, row=replace(other.row, settings={"power": 0.9}))
    assert run_cells([changed, replace(other, seed=1)], place, quietly) != [], (
        "other settings and seeds are other cells"
    )


def test_a_result_from_before_a_setting_is_taken_where_that_has_its_default(tmp_path: Path) -> None:
    place = Place(out=tmp_path / "out", device="cpu")
    (cell,) = (each for each in cells(tmp_path, seeds=1) if each.row.name == "devise")
    assert run_cells([cell], place, quietly) == []
    entry = json.loads((place.out / RESULTS).read_text())
    settings = entry["configuration"]["settings"]
    epochs, later = settings.pop("epochs"), {"once there was": None}
    old = {**entry, "configuration": {**entry["configuration"], "settings": {**settings, **later}}}
    old.pop("failed")
    (place.out / RESULTS).write_text(json.dumps(old) + "\n")
    other = replace(cell, recipe=replace(cell.recipe, table="two"))
    assert epochs == 1
    assert running._same_elsewhere(other, place.out) is None, "the result is of the default, and the cell asks for 1"
    asked = replace(other, row=replace(other.row, settings={}))
    assert running._same_elsewhere(asked, place.out) is not None
    assert run_cells([asked], place, quietly) == []


def test_defaults_that_only_make_a_method_together_with_others_are_no_error() -> None:
    with pytest.raises(UsageError):
        AuthorsZeroLabel()
    configuration = {"method": "zero_label_authors", "settings": {"restarts": 3}}
    settings = running._with_later_settings(configuration, "zero_label_authors")["settings"]
    assert (settings["restarts"], settings["order"]) == (3, "one")


def test_the_best_epoch_is_of_weights_that_were_kept_and_changes_nothing_else(tmp_path: Path) -> None:
    source = Source(source="tiny/pictures", title="There")
    data = {"here": replace(source, measures=("best_epoch",)), "there": source}
    row = Row(name="softmax", method="softmax", settings={"epochs": 20, "encoder": SMALL_ENCODER, "augment": {}})
    recipe = replace(tiny_recipe(tmp_path, seeds=1), data=data, rows=(row,), measures=("closed",))
    here, there = cells_of(recipe, Choice(), data)
    (plain,) = cells_of(replace(recipe, data={"there": source}), Choice(), ["there"])
    assert there.key == plain.key
    first = replace(here, recipe=replace(recipe, measures=("best_epoch", "closed")))
    place = Place(out=tmp_path / "out", device="cpu")
    assert run_cells([first, there], place, quietly) == []
    kept, last = (entry["figures"] for entry in read_results(place.out))
    assert {name: kept[name] for name in last} == last
    assert kept["epochs"] == [10, 20]
    assert kept["accuracy_after"][1] == kept["accuracy"] != kept["accuracy_after"][0]
    assert kept["best_epoch"] == max(kept["accuracy_after"])
    assert not list(place.out.rglob("snapshot-*"))


def test_a_cell_that_another_process_runs_is_left_alone(tmp_path: Path) -> None:
    wanted = cells(tmp_path)
    place, told = Place(out=tmp_path / "out", device="cpu"), list[str]()
    with sole_writer(place.out / "cells" / wanted[0].key):
        run_cells(wanted, place, told.append)
        assert not is_done(wanted[0], place.out)
        assert "another process" in told[0]
    run_cells(wanted, place, quietly)
    assert all(is_done(cell, place.out) for cell in wanted)


def test_a_stopped_cell_goes_on_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal in the middle of training; the rest is trained later, and the figures are those of a run in one go."""
    whole, steps, last = TrainingStep.take, 0, 10**9

    def counted(*given: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == last:
            os.kill(os.getpid(), signal.SIGTERM)
        return whole(*given)

    monkeypatch.setattr(TrainingStep, "take", counted)
    wanted = [cell for cell in cells(tmp_path, seeds=1, epochs=12) if cell.row.name == "devise"]
    straight, place = (Place(out=tmp_path / name, device="cpu") for name in ("straight", "out"))
    run_cells(wanted, straight, quietly)
    in_one_go, steps = steps, 0
    last = 2 * in_one_go // 3
    with pytest.raises(Interrupted, match="Run the same command again"):
        run_cells(wanted, place, quietly)
    assert read_results(place.out) == []
    assert steps == last < in_one_go
    run_cells(wanted, place, quietly)
    assert figures(place.out) == figures(straight.out)
    assert steps == in_one_go, "what was trained before the signal is not trained again"


def _run(wanted: list[Cell], place: Place) -> None:
    run_cells(wanted, place, quietly)


def test_killed_again_and_again_no_finished_cell_is_lost_or_repeated(tmp_path: Path) -> None:
    """SIGKILL at random moments: every line that was there stays, byte for byte, and each cell is run once in the end."""
    wanted = cells(tmp_path, seeds=7)
    place = Place(out=tmp_path / "out", device="cpu")
    draw, context = random.Random(0), multiprocessing.get_context("fork")
    run_cells(wanted[:2], place, quietly)
    begun = time.monotonic()
    run_cells(wanted[:4], place, quietly)
    usual = (time.monotonic() - begun) / 2
    before, hit = (place.out / RESULTS).read_bytes(), 0
    for _ in range(KILLS):
        process = context.Process(target=_run, args=(wanted, place))
        process.start()
        more = before.count(b"\n") + draw.choice((0, 0, 1))
        while (place.out / RESULTS).read_bytes().count(b"\n") < more:
            time.sleep(usual / 50)
        time.sleep(draw.uniform(0, usual))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        hit += process.exitcode == -signal.SIGKILL
        now = (place.out / RESULTS).read_bytes()
        assert now.startswith(before), "what was written stays"
        done = Counter(entry["key"] for entry in read_results(place.out))
        assert max(done.values()) == 1, "no cell is repeated"
        before = now[: now.rfind(b"\n") + 1]
    assert hit == KILLS, "each run was killed before it was through"
    assert 4 < len(read_results(place.out)) < len(wanted)
    assert run_cells(wanted, place, quietly) == []
    assert sorted(figures(place.out)) == sorted(cell.key for cell in wanted)
    assert len(read_results(place.out)) == len(wanted)
    straight = Place(out=tmp_path / "straight", device="cpu")
    run_cells(wanted[:6], straight, quietly)
    again = figures(place.out)
    assert figures(straight.out) == {cell.key: again[cell.key] for cell in wanted[:6]}
    for line in (place.out / RESULTS).read_bytes().splitlines():
        json.loads(line)
