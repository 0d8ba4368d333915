"""Many taught labels are not felt: the next change writes, reads and adds as many rows as the first one did."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import labelwise as lw
from labelwise.core.store import load
from labelwise.server import present as module
from labelwise.server import records
from labelwise.server.database import Database
from labelwise.server.lessons import Lesson, joined, lesson_of, unpacked
from labelwise.server.present import Present
from tests.server.asking import images_of, saved
from tests.server.test_changes import teach

MANY = 400


@pytest.fixture
def presents(tmp_path: Path) -> Iterator[list[Present]]:
    """A service that changes labels, and one that follows."""
    model = saved(tmp_path)
    base = load(model)
    found = [Present(base, model), Present(base, model, read_only=True)]
    yield found
    for one in found:
        one.close()


def work(presents: list[Present], monkeypatch: pytest.MonkeyPatch, name: str) -> list[object]:
    """What it takes to teach a label, to follow, to forget it and to follow: statements, lessons read, lessons joined."""
    writer, reader = presents
    assert isinstance(writer.database, Database)
    connection, counts = writer.database._connection, list[object]()
    statements, lessons, rows = list[str](), list[int](), list[int]()

    def read(number: int, label: str, words: str, content: bytes) -> Lesson:
        lessons.append(1)
        return unpacked(number, label, words, content)

    def joining(classifier: lw.Classifier, forgotten: frozenset[str], some: tuple[Lesson, ...]) -> lw.Classifier:
        rows.append(len(some))
        return joined(classifier, forgotten, some)

    with monkeypatch.context() as patch:
        patch.setattr(records, "unpacked", read)
        patch.setattr(module, "joined", joining)
        connection.set_trace_callback(statements.append)
        for change in (lambda: teach(writer, name), lambda: writer.forget(name)):
            change()
            reader.read()
            counts += [len(statements), len(lessons), list(rows)]
        connection.set_trace_callback(None)
    assert isinstance(connection, sqlite3.Connection)
    return counts


def test_the_work_for_a_change_does_not_grow(presents: list[Present], monkeypatch: pytest.MonkeyPatch) -> None:
    writer, reader = presents
    teach(writer, "first")
    reader.read()
    few = work(presents, monkeypatch, "a")
    taught = lw.teach(writer.base, "x", examples=images_of(0, 2))
    lesson = lesson_of(writer.base, taught, "examples")
    with writer.database.transaction():
        before = after = writer.database.read(writer.served.state)
        for i in range(MANY):
            after = after.teach(replace(lesson, label=f"label {i}"))
        writer.database.write(before, after)
    assert len(reader.read().state.taught) == len(writer.read().state.taught) == MANY + 1
    many = work(presents, monkeypatch, "b")
    assert many == few
    assert few[2] == [1], "the reader adds one row"
