"""Changes are on disk before they count, are read back bit for bit, and damage is told."""

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import labelwise as lw
from labelwise.core.classifier import Classifier
from labelwise.core.store import load
from labelwise.server import present as module
from labelwise.server.lessons import UNDO, State, lesson_of, unpacked
from labelwise.server.present import Present, bake, folder_of
from labelwise.server.records import crc_of
from labelwise.server.refusals import Refusal
from labelwise.server.running import serve
from labelwise.server.settings import Service
from labelwise.support.errors import StoreError
from labelwise.support.writable import sole_writer
from tests.forks import Fork
from tests.server.asking import images_of, saved

Open = Callable[..., Present]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return saved(tmp_path)


@pytest.fixture
def opened(model: Path) -> Iterator[Open]:
    """A function that opens the changes of a model as a service does; all are closed in the end."""
    found: list[Present] = []

    def begin(path: Path = model, read_only: bool = False) -> Present:
        found.append(Present(load(path), path, read_only=read_only))
        return found[-1]

    yield begin
    for one in found:
        one.close()


def teach(present: Present, name: str, label: int = 0) -> None:
    examples = present.base.scores(images_of(label))
    present.teach(name, "examples", lambda now: lw.tasks.teach.teach(now, name, examples=examples))


def same(one: Classifier, other: Classifier) -> None:
    assert one.labels.names == other.labels.names
    assert torch.equal(one.label_embeddings, other.label_embeddings)
    for piece in ("scale", "offset", "unseen"):
        assert torch.equal(getattr(one.calibration, piece), getattr(other.calibration, piece)), piece
    assert one.familiarity.memory is not None
    assert other.familiarity.memory is not None
    assert torch.equal(one.familiarity.memory, other.familiarity.memory)
    assert one.origin.train_hashes is not None
    assert other.origin.train_hashes is not None
    assert torch.equal(one.origin.train_hashes, other.origin.train_hashes)


def steps(present: Present) -> list[tuple[str, str]]:
    return [(one.action, one.label) for one in present.read().state.undoable]


def test_what_was_taught_is_read_back_bit_for_bit(model: Path, opened: Open) -> None:
    first = opened()
    for i in range(3):
        teach(first, f"new {i}", i)
    first.forget("blob 1")
    first.forget("new 1")
    again = opened().served
    same(again.classifier, first.served.classifier)
    assert again.classifier.labels.names == ("blob 0", "blob 2", "blob 3", "new 0", "new 2")
    assert again.change == 5
    wanted = load(model)
    for i in range(3):
        wanted = lw.teach(wanted, f"new {i}", examples=images_of(i))
    images = images_of(3)
    wanted = wanted.remove("blob 1").remove("new 1")
    found = again.classifier.scores(images).log_odds
    assert torch.equal(found, wanted.scores(images).log_odds), "as if taught and forgotten by hand"


def test_undo_goes_back_step_by_step_and_survives(opened: Open) -> None:
    present = opened()
    seen = [present.served.classifier]
    for step in ("a", "b", "blob 2", "a"):
        if step in present.served.classifier.labels.names:
            present.forget(step)
        else:
            teach(present, step)
        seen.append(present.served.classifier)
    for before in reversed(seen[:-1]):
        present = opened()  # a new start between any two
        present.undo()
        same(present.served.classifier, before)
    with pytest.raises(Refusal, match="nothing to undo"):
        opened().undo()
    assert opened().served.change == 8


def test_a_label_can_be_forgotten_and_taught_anew(model: Path, opened: Open) -> None:
    present = opened()
    present.forget("blob 0")
    teach(present, "blob 0", 5)
    assert opened().served.classifier.labels.names == ("blob 1", "blob 2", "blob 3", "blob 0")
    present.undo()
    present.undo()
    same(opened().served.classifier, load(model))


def test_taught_labels_may_be_all_that_is_left(opened: Open) -> None:
    present = opened()
    teach(present, "a")
    for i in range(4):
        present.forget(f"blob {i}")
    assert opened().served.classifier.labels.names == ("a",)
    with pytest.raises(Refusal, match="only label"):
        present.forget("a")


def test_only_so_many_labels_can_be_taught(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TAUGHT", 2)
    present = opened()
    teach(present, "a")
    teach(present, "b")
    with pytest.raises(Refusal, match="2 labels are taught already"):
        teach(present, "c")
    assert present.served.change == 2


def test_a_change_of_another_process_is_followed(opened: Open) -> None:
    one, other, reader = opened(), opened(), opened(read_only=True)
    assert not reader.behind()
    teach(one, "a")
    teach(other, "b", 1)
    assert one.behind()
    assert reader.behind()
    assert one.read().classifier.labels.names[-2:] == ("a", "b")
    same(one.served.classifier, other.served.classifier)
    assert not one.behind()
    one.undo()
    other.forget("blob 0")
    for _ in range(UNDO + 2):  # rows that the reader knows are gone in the end
        teach(other, "comes and goes")
        other.forget("comes and goes")
    other.forget("a")
    teach(one, "c", 2)
    same(reader.read().classifier, one.served.classifier)
    assert reader.served.classifier.labels.names == ("blob 1", "blob 2", "blob 3", "c")
    assert steps(reader) == steps(one) == steps(opened())


def test_a_reader_finds_a_database_that_is_made_later(model: Path, opened: Open) -> None:
    reader = opened(read_only=True)
    assert not folder_of(model).exists(), "a reader writes nothing"
    writer = opened()
    teach(writer, "a")
    assert reader.behind()
    assert opened(read_only=True).served.change == 1
    assert reader.read().change == 1


def test_two_threads_teach_at_once(opened: Open) -> None:
    presents = [opened(), opened()]

    def many(i: int) -> None:
        for j in range(10):
            teach(presents[i], f"new {i} {j}")

    threads = [threading.Thread(target=many, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = opened().served
    assert found.change == 20
    assert len(found.classifier.labels) == 24
    same(presents[0].read().classifier, found.classifier)
    same(presents[1].read().classifier, found.classifier)


def killed_amid_a_change(model: Path) -> None:
    present = Present(load(model), model)
    present.database._rows("PRAGMA cache_size = 2")  # what is written does not wait in memory for the commit
    write = present.database.write

    def killed(*given: Any) -> None:
        write(*given)
        present.database._rows("PRAGMA cache_spill = 1")
        present.database._rows("INSERT INTO change (number, tensors) VALUES (99, zeroblob(500000))")
        os.kill(os.getpid(), signal.SIGKILL)

    teach(present, "whole")
    present.database.write = killed  # type: ignore[method-assign, assignment]
    teach(present, "half")


def test_killed_in_the_midst_of_a_transaction(model: Path, opened: Open) -> None:
    assert Fork(lambda: killed_amid_a_change(model), model.parent).wait(120) == -signal.SIGKILL
    assert (folder_of(model) / "changes.sqlite-wal").stat().st_size > 100_000, "half of it is on disk"
    again = opened()
    assert again.served.change == 1
    assert again.served.classifier.labels.names[-1] == "whole"
    teach(again, "next")
    assert opened().served.classifier.labels.names[-2:] == ("whole", "next")


def test_a_flipped_bit_is_told_or_changes_nothing(model: Path, opened: Open) -> None:
    present = opened()
    for name in "abc":
        teach(present, name)
    present.forget("blob 0")
    present.close()
    wanted, file = present.served.classifier, folder_of(model) / "changes.sqlite"
    content, base, said = file.read_bytes(), load(model), list[str]()
    drawn = torch.Generator().manual_seed(0)
    places = torch.randint(0, 8 * len(content), (300,), generator=drawn).tolist()
    for place in [*range(16 * 8, 100 * 8, 7), *places]:
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        file.write_bytes(damaged)
        for read_only in (False, True):
            try:
                found = Present(base, model, read_only=read_only)
            except StoreError as error:
                said.append(str(error))
            else:
                same(found.served.classifier, wanted)
                found.close()
        for left in file.parent.glob("changes.sqlite-*"):
            left.unlink()
    assert len(said) > 100
    assert all(str(file) in text for text in said)


def test_a_log_that_could_not_be_emptied_is_guarded(model: Path, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelwise.server.database.CHECKPOINT", 0)
    present, reader = opened(), opened()
    teach(present, "a")
    reader.read()
    reader.database._rows("BEGIN")
    reader.database._rows("SELECT * FROM head")  # it reads on, and the log must stay
    for name in "bc":
        teach(present, name)
    folder, copies = folder_of(model), folder_of(model).with_name("copies")
    shutil.copytree(folder, copies)
    wanted, base = present.served.classifier, load(model)
    reader.database._rows("COMMIT")
    for one in (present, reader):
        one.close()
    log = (copies / "changes.sqlite-wal").read_bytes()
    assert len(log) > 4096
    told = list[str]()
    places = torch.randint(0, len(log), (100,), generator=torch.Generator().manual_seed(0)).tolist()
    for place in [*range(0, 56, 3), *places, None]:
        shutil.rmtree(folder)
        shutil.copytree(copies, folder, ignore=shutil.ignore_patterns("*-shm"))
        damaged = bytearray(log if place is not None else b"")
        if place is not None:
            damaged[place] ^= 1 << place % 8
        (folder / "changes.sqlite-wal").write_bytes(damaged)
        for read_only in (True, False):
            try:
                found = Present(base, model, read_only=read_only)
            except StoreError as error:
                told.append(str(error))
            else:
                same(found.served.classifier, wanted)
                found.close()
    assert len(told) > 100
    assert all("its log was cut off or damaged" in text for text in told)


@pytest.mark.parametrize("how", ["empty", "gone"])
def test_a_database_that_is_lost_is_told(how: str, model: Path, tmp_path: Path, opened: Open) -> None:
    present = opened()
    teach(present, "a")
    present.close()
    file = folder_of(model) / "changes.sqlite"
    file.unlink()
    if how == "empty":
        file.touch()
    for read_only in (True, False):
        with pytest.raises(StoreError, match="empty or not there, and 1 changes were written"):
            opened(read_only=read_only)
    with pytest.raises(StoreError, match="not there"):
        bake(model, tmp_path / "baked.lw")
    (folder_of(model) / "changes.mark").write_bytes(b"x")
    with pytest.raises(StoreError, match=r"changes\.mark is damaged"):
        opened()


def test_the_format_before_is_read_and_brought_up_to_date(model: Path, opened: Open) -> None:
    present = opened()
    for name in "abc":
        teach(present, name)
    present.forget("b")
    present.close()
    wanted, file = present.served.classifier, folder_of(model) / "changes.sqlite"
    (folder_of(model) / "changes.mark").unlink()
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as old:
        row = old.execute("SELECT model, change, settled, undone, digest FROM head").fetchone()
        for name in ("size", "numbers"):
            old.execute(f"ALTER TABLE head DROP COLUMN {name}")
        old.execute("UPDATE head SET crc = ?", (crc_of(row),))
        old.execute("PRAGMA user_version = 2")
    content = file.read_bytes()
    reader = opened(read_only=True)
    same(reader.served.classifier, wanted)
    assert file.read_bytes() == content, "a reader writes nothing"
    reader.close()
    again = opened()
    same(again.served.classifier, wanted)
    teach(again, "d")
    again.close()
    same(opened().served.classifier, again.served.classifier)
    with contextlib.closing(sqlite3.connect(folder_of(model) / "changes.format2.sqlite")) as copy:
        assert copy.execute("PRAGMA user_version").fetchone() == (2,)
        assert copy.execute("SELECT count(*) FROM change").fetchone() == (4,)


def test_any_way_to_follow_gives_the_classifier_of_a_fresh_start(opened: Open, model: Path) -> None:
    draw, present, follower = random.Random(0), opened(), opened()
    for number in range(60):
        names, kind = present.served.classifier.labels.names, draw.choice(("teach", "teach", "forget", "undo"))
        if kind == "teach" or len(names) < 3:
            teach(present, f"new {number}", number % 4)
        elif kind == "undo" and present.served.state.undoable:
            present.undo()
        else:
            present.forget(draw.choice(names))
        if draw.random() < 0.5:
            same(follower.read().classifier, present.served.classifier)
        if number % 6 == 0:
            same(opened(read_only=True).served.classifier, present.served.classifier)


def test_rows_of_the_others_are_not_copied_for_each_label(opened: Open) -> None:
    present, follower, places = opened(), opened(), set()
    for number in range(90):
        teach(present, f"new {number}")
        follower.read()
        for one in (present, follower):
            memory = one.served.classifier.familiarity.memory
            assert memory is not None
            places |= {(i, part.data_ptr()) for i, part in enumerate((memory, one.served.classifier.label_embeddings))}
    assert len(places) < 2 * 2 * (64 + 12), "below 64 rows a copy costs nothing"
    same(follower.served.classifier, present.served.classifier)


def test_a_damaged_record_is_told_with_its_number(model: Path, opened: Open) -> None:
    present = opened()
    for name in "abc":
        teach(present, name)
    present.close()
    file = folder_of(model) / "changes.sqlite"
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE change SET label = 'x' WHERE number = 2")
    connection.close()
    with pytest.raises(StoreError, match="record 2 differs from its checksum"):
        opened()
    with sqlite3.connect(file) as connection:
        connection.execute("DELETE FROM change WHERE number = 2")
    connection.close()
    with pytest.raises(StoreError, match="record 2 is missing"):
        opened()


def test_changes_of_another_model_are_refused(model: Path, tmp_path: Path, opened: Open) -> None:
    teach(opened(), "a")
    other = saved(tmp_path, "indicator")
    shutil.copytree(folder_of(model), folder_of(other))
    for read_only in (False, True):
        with pytest.raises(StoreError, match="another model"):
            opened(other, read_only=read_only)


def test_the_saved_model_is_never_written(model: Path, opened: Open) -> None:
    before = {file.name: file.read_bytes() for file in model.iterdir()}
    present = opened()
    teach(present, "a")
    present.forget("blob 0")
    assert {file.name: file.read_bytes() for file in model.iterdir()} == before


def test_rows_that_no_longer_count_are_deleted(opened: Open) -> None:
    present = opened()
    teach(present, "stays")
    present.forget("blob 3")
    for _ in range(UNDO):
        teach(present, "comes and goes")
        present.forget("comes and goes")
    teach(present, "last")
    present.undo()
    assert len(present.database._rows("SELECT number FROM change")) <= UNDO + 3
    again = opened()
    same(again.served.classifier, present.served.classifier)
    assert again.served.change == present.served.change == 104
    assert steps(again) == steps(present)
    assert len(steps(again)) == UNDO - 1
    for _ in range(UNDO - 1):
        again.undo()
    with pytest.raises(Refusal, match="nothing to undo"):
        again.undo()
    assert again.served.classifier.labels.names[:4] == ("blob 0", "blob 1", "blob 2", "stays")


def test_a_change_that_cannot_be_written_changes_nothing(opened: Open) -> None:
    present = opened()
    teach(present, "a")
    before = present.served
    (pages,) = present.database._rows("PRAGMA page_count")[0]
    present.database._rows(f"PRAGMA max_page_count = {pages}")

    def fill() -> None:
        for i in range(100):
            teach(present, f"too much {i}")

    with pytest.raises(Refusal, match="full") as refusal:
        fill()
    assert (refusal.value.status, refusal.value.headers) == (503, {"Retry-After": "1"})
    written = present.served
    assert opened().served.classifier.labels.names == written.classifier.labels.names
    present.database._rows("PRAGMA max_page_count = 100000")
    present.forget("a")
    assert opened().served.change == written.change + 1 > before.change


def test_one_service_at_a_time(model: Path) -> None:
    service = Service(model=model, port=0)
    folder_of(model).mkdir()
    held = sole_writer(folder_of(model), folder_of(model) / "service.lock")
    with held, pytest.raises(StoreError, match=f"process {os.getpid()}"):
        serve(service)


def test_baking_gives_a_classifier_of_its_own(model: Path, tmp_path: Path, opened: Open) -> None:
    present = opened()
    teach(present, "new")
    present.forget("blob 0")
    said = bake(model, tmp_path / "baked.lw")
    assert "4 labels, 1 of them taught; 1 of the trained ones forgotten" in said
    same(load(tmp_path / "baked.lw"), present.served.classifier)


def test_lessons_go_there_and_back(model: Path) -> None:
    base = load(model)
    lesson = lesson_of(base, lw.teach(base, "Ünï\tcode", examples=images_of(1)), "examples")
    number, _, label, _, words, tensors = State(change=6).teach(lesson).changes[0].packed()
    again = unpacked(number, label, words, tensors)
    assert (again.number, again.label, again.source, again.examples) == (7, lesson.label, "examples", 5)
    assert set(again.rows) == {"embedding", "scale", "offset", "unseen", "memory", "train_hashes"}
    for name, rows in lesson.rows.items():
        assert torch.equal(again.rows[name], rows)
        assert rows.untyped_storage().nbytes() == rows.nbytes, "it does not keep the rows of the others in memory"
