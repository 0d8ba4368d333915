"""Many taught labels are not felt: the next one writes, reads and adds as many rows as the first one did."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

import labelwise as lw
from labelwise.core.classifier import Classifier
from labelwise.core.load import load
from labelwise.server import changes
from labelwise.server.changes import teach_record
from labelwise.server.live import LiveClassifier
from labelwise.server.store import Record
from tests.server.asking import images_of, saved
from tests.server.test_live import teach

MANY = 400


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[list[LiveClassifier]]:
    """A service that changes labels, and one that follows."""
    model = saved(tmp_path)
    base = load(model)
    several = [LiveClassifier(base, model), LiveClassifier(base, model, read_only=True)]
    yield several
    for one in several:
        one.close()


def work(lives: list[LiveClassifier], monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """What it takes to teach a label and to follow: statements, rows that are read, labels that are appended."""
    (writer, reader), statements, read, appended = lives, list[str](), list[int](), list[int]()
    real, records = changes._append, reader.store._records

    def count(base: Classifier, taught: list[Record], **more: bool) -> Classifier:
        appended.append(len(taught))
        return real(base, taught, **more)

    def note(*given: object) -> None:
        statements.append(str(given[2]))

    def note_read(*given: Any) -> list[Record]:
        some = records(*given)
        read.append(len(some))
        return some

    with monkeypatch.context() as patch:
        patch.setattr(changes, "_append", count)
        patch.setattr(reader.store, "_records", note_read)
        event.listen(writer.store._engine, "before_cursor_execute", note)
        teach(writer, name)
        reader.read()
        event.remove(writer.store._engine, "before_cursor_execute", note)
    return [len(statements), *read, *appended]


def test_the_work_for_a_change_does_not_grow(lives: list[LiveClassifier], monkeypatch: pytest.MonkeyPatch) -> None:
    writer, reader = lives
    teach(writer, "first")
    reader.read()
    few = work(lives, monkeypatch, "a")
    record = teach_record(writer.base, lw.teach(writer.base, "x", examples=images_of(0, 2)), "examples")
    for i in range(MANY):
        one = replace(record, about={**record.about, "label": f"label {i}"})
        writer.store.change(writer.snapshot.position, lambda _, one=one: one)  # type: ignore[misc]
        writer.read()
    assert len(reader.read().state.taught) == len(writer.read().state.taught) == MANY + 2
    assert work(lives, monkeypatch, "b") == few
    assert few[1:] == [1, 1], "one change is read, and one label appended"
