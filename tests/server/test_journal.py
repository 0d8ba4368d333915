"""Changes are on disk before they count, are read back bit for bit, and a record that was cut off is set aside."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

import labelwise as lw
from labelwise.core import Classifier
from labelwise.errors import StoreError
from labelwise.server.baking import bake
from labelwise.server.changing import SLACK, Changing, hold, journal_folder
from labelwise.server.journal import Journal, line_of, record_of
from labelwise.server.lessons import UNDO, Lesson, lesson_from, lesson_of
from labelwise.server.refusals import Refusal
from labelwise.store import digest_of, load
from tests.server.asking import images_of, saved


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return saved(tmp_path)


def opened(model: Path) -> Changing:
    made = Changing(load(model), Journal(journal_folder(model), digest_of(model)))
    made.restore()
    return made


def teach(changing: Changing, name: str, label: int = 0) -> None:
    def lesson(now: Classifier) -> Lesson:
        return lesson_from(now, lw.teach(now, name, examples=images_of(label)), "examples")

    changing.teach(lesson)


def same(one: Classifier, other: Classifier) -> None:
    assert one.labels.names == other.labels.names
    for piece in ("codes", "scale", "offset", "memory", "seen"):
        assert torch.equal(getattr(one, piece), getattr(other, piece)), piece
    assert one.described == other.described


def test_what_was_taught_is_read_back_bit_for_bit(model: Path) -> None:
    first = opened(model)
    for i in range(3):
        teach(first, f"new {i}", i)
    first.forget("blob 1")
    first.forget("new 1")
    again = opened(model)
    same(again.present().classifier, first.present().classifier)
    assert again.present().classifier.labels.names == ("blob 0", "blob 2", "blob 3", "new 0", "new 2")
    assert again.present().change == 5
    wanted = load(model)
    for i in range(3):
        wanted = lw.teach(wanted, f"new {i}", examples=images_of(i))
    images = images_of(3)
    found, wanted = again.present().classifier, wanted.remove("blob 1").remove("new 1")
    assert torch.equal(found.scores(images), wanted.scores(images)), "as if taught and forgotten by hand"


def test_undo_goes_back_step_by_step_and_survives(model: Path) -> None:
    changing = opened(model)
    seen = [changing.present().classifier]
    for step in ("a", "b", "blob 2", "a"):
        if step in changing.present().classifier.labels.names:
            changing.forget(step)
        else:
            teach(changing, step)
        seen.append(changing.present().classifier)
    for before in reversed(seen[:-1]):
        changing = opened(model)  # a new start between any two
        changing.undo()
        same(changing.present().classifier, before)
    with pytest.raises(Refusal, match="nothing to undo"):
        opened(model).undo()
    assert opened(model).present().change == 8


def test_a_label_can_be_forgotten_and_taught_anew(model: Path) -> None:
    changing = opened(model)
    changing.forget("blob 0")
    teach(changing, "blob 0", 5)
    assert opened(model).present().classifier.labels.names == ("blob 1", "blob 2", "blob 3", "blob 0")
    changing.undo()
    changing.undo()
    same(opened(model).present().classifier, load(model))


@pytest.mark.parametrize("cut", [1, 5, 9, 40, -2, -1])
def test_a_record_that_was_cut_off_is_set_aside(model: Path, cut: int) -> None:
    changing = opened(model)
    teach(changing, "whole")
    kept = changing.journal.file.read_bytes()
    teach(changing, "cut")
    line = changing.journal.file.read_bytes()[len(kept) :]
    changing.journal.file.write_bytes(kept + line[:cut])
    again = opened(model)
    assert again.present().change == 1
    assert again.journal.file.read_bytes() == kept
    (aside,) = journal_folder(model).glob("torn.*")
    assert aside.read_bytes() == line[:cut]
    teach(again, "next")
    assert opened(model).present().classifier.labels.names[-2:] == ("whole", "next")


def test_a_writer_sets_aside_what_another_process_left(model: Path) -> None:
    one, other = opened(model), opened(model)
    teach(one, "a")
    with one.journal.file.open("ab") as file:
        file.write(b"0123abcd {half a rec")
    teach(other, "b")
    assert one.present().classifier.labels.names[-2:] == ("a", "b")
    assert len(list(journal_folder(model).glob("torn.*"))) == 1


def test_damage_in_the_middle_is_an_error(model: Path) -> None:
    changing = opened(model)
    for name in "abc":
        teach(changing, name)
    lines = changing.journal.file.read_bytes().split(b"\n")
    lines[2] = lines[2][:-9] + b"XXXXXXXXX"
    changing.journal.file.write_bytes(b"\n".join(lines))
    with pytest.raises(StoreError, match="damaged"):
        opened(model)


def test_a_journal_of_another_model_is_refused(model: Path, tmp_path: Path) -> None:
    teach(opened(model), "a")
    other = saved(tmp_path, "indicator")
    shutil.copytree(journal_folder(model), journal_folder(other))
    with pytest.raises(StoreError, match="another model"):
        opened(other)


def test_the_saved_model_is_never_written(model: Path) -> None:
    before = {file.name: file.read_bytes() for file in model.iterdir()}
    changing = opened(model)
    teach(changing, "a")
    changing.forget("blob 0")
    assert {file.name: file.read_bytes() for file in model.iterdir()} == before


def test_a_long_journal_is_made_short_without_a_difference(model: Path) -> None:
    changing, other = opened(model), opened(model)
    teach(changing, "stays")
    changing.forget("blob 3")
    most = 0
    for i in range((SLACK + 3 * UNDO) // 2):
        teach(changing, "comes and goes")
        changing.forget("comes and goes")
        most = max(most, changing.journal.file.stat().st_size)
        if i % 20 == 0:
            same(other.present().classifier, changing.present().classifier)
    teach(changing, "last")
    changing.undo()
    assert changing.journal.records < SLACK + 2 * UNDO + 10
    again = opened(model)
    same(again.present().classifier, changing.present().classifier)
    same(other.present().classifier, changing.present().classifier)
    assert again.present().story.change == changing.present().story.change == other.present().change
    steps = [(one.action, one.label) for one in changing.present().story.undoable]
    assert [(one.action, one.label) for one in again.present().story.undoable] == steps[-UNDO:]
    again.undo()
    assert again.present().classifier.labels.names[-1] == "comes and goes"


def test_a_change_that_cannot_be_written_changes_nothing(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changing = opened(model)
    teach(changing, "a")
    before, kept = changing.present(), changing.journal.file.read_bytes()

    def full(stream: int, data: bytes) -> int:
        real(stream, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr("labelwise.server.journal.os.write", full)
        with pytest.raises(Refusal, match="No space left"):
            changing.forget("a")
    assert changing.present() is before
    assert changing.journal.file.read_bytes() == kept
    changing.forget("a")
    assert opened(model).present().change == 2


def test_one_service_at_a_time(model: Path) -> None:
    lock = hold(journal_folder(model))
    with pytest.raises(StoreError, match=f"process {os.getpid()}"):
        hold(journal_folder(model))
    os.close(lock)
    os.close(hold(journal_folder(model)))


def test_baking_gives_a_classifier_of_its_own(model: Path, tmp_path: Path) -> None:
    changing = opened(model)
    teach(changing, "new")
    changing.forget("blob 0")
    said = bake(model, tmp_path / "baked.lw")
    assert "4 labels, 1 of them taught; 1 of the trained ones forgotten" in said
    same(load(tmp_path / "baked.lw"), changing.present().classifier)


def test_lines_and_lessons_go_there_and_back(model: Path) -> None:
    record = {"action": "forget", "label": "Ünï\n\u2028code"}
    line = line_of(record)
    assert line.count(b"\n") == 1
    assert record_of(line[:-1]) == record
    assert record_of(line[:-2]) is None
    assert record_of(b"zzzzzzzz {}") is None
    base = load(model)
    lesson = lesson_from(base, lw.teach(base, "x", examples=images_of(1)), "examples")
    again = lesson_of(json.loads(json.dumps(lesson.plain())))
    assert torch.equal(again.code, lesson.code)
    assert again.memory is not None
    assert lesson.memory is not None
    assert torch.equal(again.memory, lesson.memory)
    assert (again.scale, again.offset) == (lesson.scale, lesson.offset)
