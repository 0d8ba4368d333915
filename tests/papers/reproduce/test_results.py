"""The file of results: whole lines only, whatever happens in the middle of a write."""

import errno
import multiprocessing
import os
from pathlib import Path

import pytest

from labelwise.support.errors import DataError, StoreError
from labelwise_papers.reproduce.results import RESULTS, append_result, read_results


def entry(number: int) -> dict[str, object]:
    return {"key": f"k{number}", "figures": {"accuracy": number / 7, "text": 'a "word"\nand a line'}}


def test_lines_come_back(tmp_path: Path) -> None:
    assert read_results(tmp_path / "none") == []
    for number in range(3):
        append_result(tmp_path / "new", entry(number))
    assert read_results(tmp_path / "new") == [entry(number) for number in range(3)]
    assert (tmp_path / "new" / RESULTS).read_bytes().count(b"\n") == 3


def test_a_damaged_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path) -> None:
    append_result(tmp_path, entry(0))
    with (tmp_path / RESULTS).open("ab") as file:
        file.write(b'{"half\n')
    append_result(tmp_path, entry(1))
    with pytest.raises(DataError, match="Line 2 of"):
        read_results(tmp_path)


def test_what_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        append_result(tmp_path, {"key": "k", "figures": {"accuracy": float("nan")}})
    assert read_results(tmp_path) == []


def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append_result(tmp_path, entry(0))
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(StoreError, match=r"No space left on device.*make room"):
        append_result(tmp_path, entry(1))
    monkeypatch.undo()
    assert (tmp_path / RESULTS).read_bytes().count(b"\n") == 1
    append_result(tmp_path, entry(2))
    assert read_results(tmp_path) == [entry(0), entry(2)]


def _append_many(folder: Path, first: int) -> None:
    for number in range(first, first + 40):
        append_result(folder, {**entry(number), "long": "x" * 5000})


def test_several_processes_append_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_append_many, args=(tmp_path, 100 * i)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len({one["key"] for one in read_results(tmp_path)}) == len(read_results(tmp_path)) == 160
