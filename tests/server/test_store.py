"""A history is durable, checked at every read, and one for all processes; damage and replaced copies are found."""

import json
import os
import shutil
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import event

from labelwise.server import databases
from labelwise.server import store as module
from labelwise.server.store import FILE, News, Position, Record, Store, UnavailableError
from labelwise.support.errors import StoreError

Open = Callable[..., Store]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """A function that opens the history in a folder; all are closed in the end."""
    stores: list[Store] = []

    def begin(folder: str = "state", model: str = "model", *, read_only: bool = False) -> Store:
        stores.append(Store(tmp_path / folder, model, read_only=read_only))
        return stores[-1]

    yield begin
    for one in stores:
        one.close()


def add(store: Store, label: str, known: Position | None = None) -> Record:
    record = Record("teach", {"label": label}, {"embedding": np.arange(3, dtype=np.float32)[None]})
    return store.change(known or Position(), lambda _: record)[1]


def labels(store: Store) -> list[str]:
    news = store.read(Position())
    return [] if news is None else [one.about["label"] for one in news.records]


def test_what_was_added_is_read_back_to_the_bit(opened: Open) -> None:
    store = opened()
    arrays = {"a": np.array([[0.1, -0.0, 3e-39]], np.float32), "b": np.array([True]), "c": np.array([2**62 + 1])}
    store.change(Position(), lambda _: Record("teach", {"label": "Ünï\tcode"}, arrays))
    news = opened().read(Position())
    assert news is not None
    (record,) = news.records
    assert (record.kind, record.number, record.about["label"]) == ("teach", 1, "Ünï\tcode")
    for name, rows in arrays.items():
        assert record.arrays[name].tobytes() == rows.tobytes()
        assert record.arrays[name].dtype == rows.dtype


def test_only_what_is_new_is_read(opened: Open) -> None:
    one, other = opened(), opened(read_only=True)
    first = other.read(Position())
    assert first is not None
    assert first.whole
    assert other.read(first.position) is None
    for label in "abc":
        add(one, label)
    news = other.read(first.position)
    assert news is not None
    assert not news.whole
    assert [record.about["label"] for record in news.records] == ["a", "b", "c"]
    assert other.read(news.position) is None


def test_nobody_else_may_read_the_state(opened: Open, tmp_path: Path) -> None:
    add(opened(), "a")
    assert stat.S_IMODE(os.stat(tmp_path / "state").st_mode) == 0o700
    for file in (tmp_path / "state").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name


def test_several_writers_take_turns(opened: Open) -> None:
    stores = [opened() for _ in range(3)]

    def many(store: Store, number: int) -> None:
        for i in range(15):
            add(store, f"{number} {i}")

    threads = [threading.Thread(target=many, args=(store, i)) for i, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(labels(opened())) == sorted(f"{number} {i}" for number in range(3) for i in range(15))


def test_an_error_of_the_step_changes_nothing(opened: Open) -> None:
    store = opened()

    def fail(_: News) -> Record:
        raise KeyError("no")

    with pytest.raises(KeyError):
        store.change(Position(), fail)
    assert labels(store) == []
    add(store, "a")


def test_a_locked_file_is_waited_for_and_then_unavailable(opened: Open, tmp_path: Path) -> None:
    store = opened()
    with closing(sqlite3.connect(tmp_path / "state" / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnavailableError, match="database is locked") as error:
            store.change(Position(), lambda _: Record("teach", {"label": "a"}), patience=0.3)
        assert error.value.outcome == "nothing was changed"
        assert labels(store) == [], "questions are answered meanwhile"
        other.execute("ROLLBACK")
    add(store, "b")
    assert labels(store) == ["b"]


def test_a_start_waits_for_a_locked_file(opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "BUSY", 0.3)
    add(opened(), "a")
    locking = sqlite3.connect(tmp_path / "state" / FILE, isolation_level=None, check_same_thread=False)
    locking.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.8, locking.execute, ("ROLLBACK",))
    release.start()
    assert labels(opened()) == ["a"]
    release.join()
    locking.close()


def test_a_full_disk_is_unavailable(opened: Open) -> None:
    store = opened()
    add(store, "a")

    @event.listens_for(store._engine, "checkout")
    def limit(connection: sqlite3.Connection, *_: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0]}")

    large = Record("teach", {"label": "b"}, {"embedding": np.zeros((1, 100_000), np.float32)})
    with pytest.raises(UnavailableError, match="database or disk is full"):
        store.change(Position(), lambda _: large, patience=0.1)
    assert labels(store) == ["a"]


def test_a_commit_whose_answer_is_lost_is_found_again(opened: Open) -> None:
    store, failures = opened(), [1]

    @event.listens_for(store._engine, "commit")
    def lose(connection: object) -> None:
        if failures:
            failures.pop()
            connection.connection.commit()  # type: ignore[attr-defined]
            raise OSError("the line is dead")

    news, own = store.change(Position(), lambda _: Record("teach", {"label": "a"}))
    assert (own.number, len(news.records)) == (1, 1), "committed once, and acknowledged"
    assert labels(store) == ["a"]


def test_a_restored_copy_is_read_from_the_start(opened: Open, tmp_path: Path) -> None:
    writer, reader, file = opened(), opened(), tmp_path / "state" / FILE
    add(writer, "a")
    with closing(sqlite3.connect(file)) as live, closing(sqlite3.connect(tmp_path / "copy")) as copy:
        live.backup(copy)
    add(writer, "b")
    news = reader.read(Position())
    assert news is not None
    known = news.position
    for left in file.parent.glob(f"{FILE}-*"):
        left.unlink()
    os.replace(tmp_path / "copy", file)
    news = reader.read(known)
    assert news is not None
    assert (news.whole, [one.about["label"] for one in news.records]) == (True, ["a"])
    add(writer, "c")
    assert labels(opened()) == ["a", "c"], "the new file is written, not the old one"
    news = reader.read(known)
    assert news is not None
    assert (news.whole, news.position.number) == (True, known.number), "the same number, another history"


def test_a_history_that_is_gone_is_unavailable(opened: Open, tmp_path: Path) -> None:
    store = opened()
    add(store, "a")
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(UnavailableError):
        store.read(Position())
    with pytest.raises(UnavailableError):
        store.change(Position(), lambda _: Record("teach", {"label": "b"}), patience=0.1)
    assert not (tmp_path / "state").exists(), "none is begun in its place"


def test_a_reader_on_a_disk_that_it_cannot_write_to_reads_what_others_write(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite reads such a file as one that never changes; another machine may write to it all the same, and leave no log behind."""
    with closing(opened()) as writer:
        add(writer, "a")
    read = databases._open

    def open_read_only(address: str, *kind: Any) -> sqlite3.Connection:
        if "mode=ro" in address:
            raise sqlite3.OperationalError("unable to open database file")
        return read(address, *kind)

    monkeypatch.setattr(databases, "_open", open_read_only)
    monkeypatch.setattr(os, "access", lambda *_: False)
    reader = opened(read_only=True)
    news = reader.read(Position())
    assert news is not None
    with closing(opened()) as writer:
        add(writer, "b")
    later = reader.read(news.position)
    assert later is not None
    assert [one.label for one in later.records] == ["b"]


def test_a_reader_creates_nothing_and_finds_what_is_created_later(opened: Open, tmp_path: Path) -> None:
    reader = opened(read_only=True)
    assert reader.read(Position()) is None
    assert not (tmp_path / "state").exists()
    add(opened(), "a")
    assert labels(reader) == ["a"]


DAMAGE = {
    "UPDATE changes SET about = replace(about, 'b', 'x') WHERE number = 2": "ends with change 1 of 3",
    "UPDATE changes SET arrays = zeroblob(80) WHERE number = 3": "ends with change 2 of 3",
    "DELETE FROM changes WHERE number = 2": "ends with change 1 of 3",
    "DELETE FROM changes WHERE number = 3": "ends with change 2 of 3",
    "UPDATE history SET number = 2": "ends with change 2 of 2, or its head",
    "UPDATE history SET id = 'other'": "ends with change 0 of 3",
    "DELETE FROM history": "has 0 rows",
    "UPDATE history SET format = 9": "format 9",
    "DROP TABLE changes": "no such table",
    "DROP TABLE history": "is missing|no such table",
}


@pytest.mark.parametrize("query", DAMAGE)
def test_damage_is_reported(query: str, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    for label in "abc":
        add(opened(), label)
    with closing(sqlite3.connect(tmp_path / "state" / FILE)) as other:
        other.execute(query)
        other.commit()
    for read_only in (False, True):
        with pytest.raises(StoreError, match=DAMAGE[query]):
            opened(read_only=read_only).read(Position())


def test_a_flipped_bit_is_reported_or_changes_nothing(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    for label in "abc":
        add(opened(), label)
    opened().close()
    with closing(sqlite3.connect(tmp_path / "state" / FILE)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content, reported = (tmp_path / "state" / FILE).read_bytes(), 0
    drawn = np.random.default_rng(0).integers(0, 8 * len(content), 120).tolist()
    for place in [*range(16 * 8, 100 * 8, 7), *drawn]:
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        (tmp_path / "copy").mkdir()
        (tmp_path / "copy" / FILE).write_bytes(damaged)
        try:
            assert labels(opened("copy")) == ["a", "b", "c"]
        except StoreError:
            reported += 1
    assert reported > 10


def test_another_model_is_refused(opened: Open) -> None:
    add(opened(), "a")
    for read_only in (False, True):
        with pytest.raises(StoreError, match="another model"):
            opened(model="other", read_only=read_only).read(Position())


def test_a_deadline_that_has_passed_commits_nothing(opened: Open) -> None:
    store = opened()

    def slow(_: News) -> Record:
        time.sleep(0.2)
        return Record("teach", {"label": "a"})

    with pytest.raises(UnavailableError, match="did not answer in time") as error:
        store.change(Position(), slow, patience=0.1)
    assert error.value.outcome == "nothing was changed"
    assert labels(store) == []


def test_rows_hold_json_and_numbers_alone(opened: Open, tmp_path: Path) -> None:
    add(opened(), "a")
    with closing(sqlite3.connect(tmp_path / "state" / FILE)) as other:
        ((about, arrays),) = other.execute("SELECT about, arrays FROM changes").fetchall()
    assert json.loads(about)["label"] == "a"
    assert b"float32" not in arrays
    assert b'"dtype":"F32"' in arrays
    assert module.FORMAT == 1
