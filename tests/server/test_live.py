"""Changes are followed by every process alike, read back bit for bit, and acknowledged from what was committed."""

import os
import random
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import labelwise as lw
from labelwise.core.classifier import Classifier
from labelwise.core.load import load
from labelwise.server import live as module
from labelwise.server.changes import UNDO, State, teach_record
from labelwise.server.errors import HTTPError
from labelwise.server.live import Committed, LiveClassifier, bake, folder_of
from labelwise.server.running import serve
from labelwise.server.settings import Service
from labelwise.server.store import News, Position, Record, UnavailableError
from labelwise.support.errors import StoreError
from labelwise.support.writable import sole_writer
from tests.conftest import blobs
from tests.forks import Fork
from tests.server.asking import images_of, saved

Open = Callable[..., LiveClassifier]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return saved(tmp_path)


@pytest.fixture
def opened(model: Path) -> Iterator[Open]:
    """A function that opens the changes of a model as a service does; all are closed in the end."""
    several: list[LiveClassifier] = []

    def begin(path: Path = model, read_only: bool = False) -> LiveClassifier:
        several.append(LiveClassifier(load(path), path, read_only=read_only))
        return several[-1]

    yield begin
    for one in several:
        one.close()


def teach(live: LiveClassifier, name: str, label: int = 0) -> Committed:
    examples = live.base.scores(images_of(label))
    return live.teach(name, "examples", lambda now: lw.tasks.teach.teach(now, name, examples=examples))


def arrays(classifier: Classifier) -> dict[str, Any]:
    calibration, familiarity = classifier.calibration, classifier.familiarity
    return {
        "embedding": classifier.label_embeddings,
        "scale": calibration.scale,
        "offset": calibration.offset,
        "unseen": calibration.unseen,
        "memory": familiarity.memory,
        "hashes": classifier.origin.train_digests,
    }


def same(one: Classifier, other: Classifier) -> None:
    assert one.labels.names == other.labels.names
    for name, rows in arrays(one).items():
        assert np.array_equal(np.asarray(rows), np.asarray(arrays(other)[name])), name


def names(live: LiveClassifier) -> tuple[str, ...]:
    return live.read().classifier.labels.names


def steps(live: LiveClassifier) -> list[tuple[str, str]]:
    return [(one.action, one.label) for one in live.read().state.undoable]


def test_what_was_taught_is_read_back_bit_for_bit(model: Path, opened: Open) -> None:
    first = opened()
    for i in range(3):
        teach(first, f"new {i}", i)
    first.forget("blob 1")
    assert first.forget("new 1") == Committed(5, 5, "new 1", "")
    again = opened().snapshot
    same(again.classifier, first.snapshot.classifier)
    assert again.classifier.labels.names == ("blob 0", "blob 2", "blob 3", "new 0", "new 2")
    assert again.change == 5
    wanted = load(model)
    for i in range(3):
        wanted = lw.teach(wanted, f"new {i}", examples=images_of(i))
    images = images_of(3)
    wanted = wanted.remove("blob 1").remove("new 1")
    scores = again.classifier.scores(images).log_odds
    assert np.array_equal(np.asarray(scores), np.asarray(wanted.scores(images).log_odds)), "as if done by hand"


def test_undo_goes_back_step_by_step_and_survives(opened: Open) -> None:
    live = opened()
    earlier = [live.snapshot.classifier]
    for step in ("a", "b", "blob 2", "a"):
        if step in live.snapshot.classifier.labels.names:
            live.forget(step)
        else:
            teach(live, step)
        earlier.append(live.snapshot.classifier)
    for before in reversed(earlier[:-1]):
        live = opened()  # a new start between any two
        live.undo()
        same(live.snapshot.classifier, before)
    with pytest.raises(HTTPError, match="nothing to undo"):
        opened().undo()
    assert opened().snapshot.change == 8


def test_a_label_can_be_forgotten_and_taught_again(model: Path, opened: Open) -> None:
    live = opened()
    live.forget("blob 0")
    teach(live, "blob 0", 5)
    assert names(opened()) == ("blob 1", "blob 2", "blob 3", "blob 0")
    live.undo()
    live.undo()
    same(opened().snapshot.classifier, load(model))


def test_taught_labels_may_be_all_that_is_left(opened: Open) -> None:
    live = opened()
    teach(live, "a")
    for i in range(4):
        live.forget(f"blob {i}")
    teach(live, "blob 0", 5)
    assert names(opened()) == names(live) == ("a", "blob 0")
    same(opened().snapshot.classifier, live.snapshot.classifier)
    live.forget("blob 0")
    with pytest.raises(HTTPError, match="only label"):
        live.forget("a")
    with pytest.raises(HTTPError, match="No label") as error:
        live.forget("b")
    assert error.value.status == 404


def test_only_so_many_labels_can_be_taught(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TAUGHT", 2)
    live = opened()
    teach(live, "a")
    teach(live, "b")
    with pytest.raises(HTTPError, match="The limit of 2 taught labels and corrections"):
        teach(live, "c")
    assert live.snapshot.change == 2


def test_only_so_much_memory_can_be_taught(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    live = opened()
    teach(live, "a")
    monkeypatch.setattr(module, "MOST_BYTES", 2 * live.snapshot.state.added[0].nbytes + 4)
    teach(live, "b")
    for change in (teach, correct):
        with pytest.raises(HTTPError, match="fills the"):
            change(live, "b" if change is correct else "c", 1)
    live.forget("a")
    teach(live, "c")
    assert live.snapshot.change == 4


def test_corrections_count_as_taught_labels_do(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TAUGHT", 2)
    live = opened()
    teach(live, "new", 1)
    correct(live, "new", 2)
    for change in (teach, correct):
        with pytest.raises(HTTPError, match="The limit of 2 taught labels and corrections"):
            change(live, "new" if change is correct else "another", 1)
    live.undo()
    correct(live, "new", 2)


def test_names_are_compared_in_one_way_also_with_what_others_just_taught(opened: Open) -> None:
    """The second process has not read the change of the first one."""
    one, other = opened(), opened()
    teach(one, "owl")
    with pytest.raises(HTTPError, match='label "owl" already exists'):
        teach(other, "Owl")
    assert names(one)[-1] == names(other)[-1] == "owl"


def without(name: str) -> Callable[[Record], Record]:
    return lambda taught: replace(taught, arrays={key: a for key, a in taught.arrays.items() if key != name})


FOREIGN: dict[str, Callable[[Record], Record]] = {
    "of another kind": lambda _: Record("rename", {"label": "a", "to": "b"}),
    "undo of nothing": lambda _: Record("undo", {"label": "a"}),
    "without a label": lambda taught: replace(taught, about={}),
    "without rows": lambda taught: replace(taught, arrays={}),
    "without an offset": without("offset"),
    "of another width": lambda taught: replace(taught, arrays={**taught.arrays, "embedding": np.ones((1, 3), "f4")}),
    "of two rows": lambda taught: replace(taught, arrays={**taught.arrays, "scale": np.ones(2, "f4")}),
    "of a label that is there": lambda taught: replace(
        taught, about={**taught.about, "label": blobs().labels.names[0]}
    ),
    "more of no label": lambda taught: replace(taught, kind="correct", about={"label": "okapi", "examples": 1}),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_change_that_does_not_fit_is_an_error_and_what_was_known_stays(what: str, model: Path, opened: Open) -> None:
    """As a later version could write it, or whoever may write to the database; its digest is right."""
    live = opened()
    base = live.base.labels.names
    taught = lw.teach(live.base, "x", examples=images_of(0, 2))
    record = FOREIGN[what](teach_record(live.base, taught, "examples", 2))
    live.store.change(Position(), lambda _: record)
    with pytest.raises(StoreError, match="Change 1 does not fit"):
        live.read()
    with pytest.raises(HTTPError) as refused:
        teach(live, "another")
    assert (refused.value.status, live.snapshot.classifier.labels.names) == (503, base)
    with pytest.raises(StoreError, match="Change 1 does not fit"):
        opened()


def test_a_change_of_another_process_is_followed(opened: Open) -> None:
    one, other, reader = opened(), opened(), opened(read_only=True)
    teach(one, "a")
    teach(other, "b", 1)
    assert names(one)[-2:] == ("a", "b")
    same(one.snapshot.classifier, other.snapshot.classifier)
    one.undo()
    other.forget("blob 0")
    for _ in range(UNDO + 2):
        teach(other, "comes and goes")
        other.forget("comes and goes")
    other.forget("a")
    teach(one, "c", 2)
    same(reader.read().classifier, one.snapshot.classifier)
    assert names(reader) == ("blob 1", "blob 2", "blob 3", "c")
    assert steps(reader) == steps(one) == steps(opened())
    assert len(steps(reader)) == UNDO


def test_a_reader_finds_a_history_that_is_created_later(model: Path, opened: Open) -> None:
    reader = opened(read_only=True)
    assert not folder_of(model).exists(), "a reader writes nothing"
    teach(opened(), "a")
    assert opened(read_only=True).snapshot.change == 1
    assert reader.read().change == 1


def test_several_threads_change_at_once_and_each_answer_is_what_was_committed(opened: Open) -> None:
    lives, done, refused = [opened() for _ in range(3)], list[Committed](), list[int]()

    def many(live: LiveClassifier) -> None:
        for j in range(12):
            for change in (partial(teach, live, f"new {j}"), partial(live.forget, f"new {j - 1}")):
                try:
                    done.append(change())
                except HTTPError as error:
                    refused.append(error.status)

    threads = [threading.Thread(target=many, args=(live,)) for live in lives]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = opened().snapshot
    assert sorted(one.change for one in done) == list(range(1, last.change + 1)), (
        "each success is a change, each change one"
    )
    assert set(refused) <= {404, 409}
    for live in lives:
        same(live.read().classifier, last.classifier)
    assert max(done, key=lambda one: one.change).labels == len(last.classifier.labels)


def test_a_committed_change_is_a_success_whatever_happens_then(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    live = opened()

    def broken(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(LiveClassifier, "_advance", broken)
        assert teach(live, "a") == Committed(1, 5, "a", "")
        assert live.snapshot.change == 0
    assert names(live)[-1] == "a", "the next look applies it"


def killed_amid_a_change(model: Path) -> None:
    live = LiveClassifier(load(model), model)
    teach(live, "whole")
    insert = live.store._insert

    def killed(*given: Any) -> News:
        insert(*given)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    live.store._insert = killed  # type: ignore[method-assign, assignment]
    teach(live, "half")


def test_killed_in_the_midst_of_a_transaction(model: Path, opened: Open) -> None:
    assert Fork(lambda: killed_amid_a_change(model), model.parent).wait(120) == -signal.SIGKILL
    again = opened()
    assert (again.snapshot.change, names(again)[-1]) == (1, "whole")
    teach(again, "next")
    assert names(opened())[-2:] == ("whole", "next")


def test_any_way_to_follow_gives_the_classifier_of_a_fresh_start(opened: Open) -> None:
    draw, live, follower = random.Random(0), opened(), opened()
    for number in range(60):
        known, kind = names(live), draw.choice(("teach", "teach", "forget", "undo"))
        if kind == "teach" or len(known) < 3:
            teach(live, f"new {number}", number % 4)
        elif kind == "undo" and live.snapshot.state.undoable:
            live.undo()
        else:
            live.forget(draw.choice(known))
        if draw.random() < 0.5:
            same(follower.read().classifier, live.snapshot.classifier)
        if number % 6 == 0:
            same(opened(read_only=True).snapshot.classifier, live.snapshot.classifier)


class Obvious:
    """All states there ever were, so that an undo goes back by one."""

    def __init__(self) -> None:
        self.states: list[tuple[list[str], list[str]]] = [([], [])]  # taught and forgotten labels
        self.undoable = 0

    def step(self, taught: list[str], forgotten: list[str]) -> None:
        self.states.append((taught, forgotten))
        self.undoable = min(UNDO, self.undoable + 1)

    def undo(self) -> None:
        self.states.pop()
        self.undoable -= 1


@pytest.mark.parametrize("seed", range(3))
def test_a_state_is_that_of_an_obvious_list_of_steps(seed: int) -> None:
    from labelwise.server.changes import undo_record
    from labelwise.server.store import Record

    draw, obvious, state, records = random.Random(seed), Obvious(), State(), list[Record]()
    for number in range(1, 400):
        taught, forgotten = obvious.states[-1]
        kind = draw.choice(("teach", "teach", "forget", "forget", "trained", "undo"))
        if kind == "undo" and obvious.undoable:
            record = undo_record(state)
            obvious.undo()
        elif kind == "forget" and taught:
            label = draw.choice(taught)
            record = Record("forget", {"label": label})
            obvious.step([one for one in taught if one != label], forgotten)
        elif kind == "trained":
            record = Record("forget", {"label": f"trained {number}"})
            obvious.step(taught, sorted([*forgotten, f"trained {number}"]))
        else:
            record = Record(
                "teach", {"label": f"new {number}", "source": "vector", "texts": [], "examples": 0}, number=number
            )
            obvious.step([*taught, f"new {number}"], forgotten)
        records.append(record)
        state = state.after([record])
        found = [one.label for one in state.taught], sorted(state.forgotten), len(state.undoable)
        assert found == (*obvious.states[-1], obvious.undoable)
    again = State().after(records)
    assert [one.label for one in again.taught] == [one.label for one in state.taught]


def test_rows_of_the_others_are_not_copied_for_each_label(opened: Open) -> None:
    live, follower, places = opened(), opened(), set()
    for number in range(90):
        teach(live, f"new {number}")
        follower.read()
        for one in (live, follower):
            some = arrays(one.snapshot.classifier)
            for name in ("memory", "embedding"):
                places.add((name, np.asarray(some[name]).__array_interface__["data"][0]))
    assert len(places) < 2 * 2 * (64 + 12), "below 64 rows a copy costs nothing"
    same(follower.snapshot.classifier, live.snapshot.classifier)


def test_changes_of_another_model_are_refused(model: Path, tmp_path: Path, opened: Open) -> None:
    teach(opened(), "a")
    other = saved(tmp_path, "indicator")
    folder_of(model).rename(folder_of(other))
    for read_only in (False, True):
        with pytest.raises(StoreError, match="another model"):
            opened(other, read_only=read_only)


def test_the_saved_model_is_never_written(model: Path, opened: Open) -> None:
    before = {file.name: file.read_bytes() for file in model.iterdir()}
    live = opened()
    teach(live, "a")
    live.forget("blob 0")
    assert {file.name: file.read_bytes() for file in model.iterdir()} == before


def test_a_change_that_cannot_be_written_changes_nothing(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    live = opened()
    teach(live, "a")
    with monkeypatch.context() as patch:
        patch.setattr("labelwise.server.store.PATIENCE", 0.1)
        patch.setattr(live.store, "_insert", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(HTTPError, match="nothing was changed") as error:
            teach(live, "b")
    assert (error.value.status, error.value.headers) == (503, {"Retry-After": "1"})
    assert live.read().change == 1
    live.forget("a")
    assert opened().snapshot.change == 2


def test_one_service_at_a_time(model: Path) -> None:
    service = Service(model=model, port=0)
    folder_of(model).mkdir()
    held = sole_writer(folder_of(model), folder_of(model) / "service.lock")
    with held, pytest.raises(StoreError, match=f"process {os.getpid()}"):
        serve(service)


def test_baking_gives_a_classifier_of_its_own(model: Path, tmp_path: Path, opened: Open) -> None:
    live = opened()
    teach(live, "new")
    live.forget("blob 0")
    words = bake(model, tmp_path / "baked.lw")
    assert "4 labels, 1 of them taught; 1 of the trained ones forgotten" in words
    same(load(tmp_path / "baked.lw"), live.snapshot.classifier)


def test_an_empty_history_is_that_of_the_saved_classifier(model: Path, opened: Open) -> None:
    assert opened(read_only=True).snapshot.position == Position()
    same(opened().snapshot.classifier, load(model))


def correct(live: LiveClassifier, name: str, label: int, count: int = 2) -> Committed:
    examples = live.base.scores(images_of(label, count))
    return live.correct(name, lambda now, name: lw.tasks.teach.teach(now, name, examples=examples.of(now)), count)


def known_examples(live: LiveClassifier) -> dict[str, tuple[float, bytes]]:
    known = live.read().classifier.examples
    assert known is not None
    return {
        name: (float(n), mean.tobytes()) for name, n, mean in zip(known.names, known.counts, known.means, strict=True)
    }


def test_a_label_learns_from_more_images_and_undo_takes_them_back(opened: Open) -> None:
    one, other = opened(), opened()
    teach(one, "new", 1)
    before = one.snapshot.classifier
    assert correct(one, "new", 2).labels == len(before.labels)
    after = one.snapshot.classifier
    assert after.labels.names == before.labels.names
    assert np.array_equal(after.label_embeddings[:-1], before.label_embeddings[:-1])
    assert not np.array_equal(after.label_embeddings[-1], before.label_embeddings[-1])
    same(after, other.read().classifier)
    same(after, opened().snapshot.classifier)
    assert known_examples(one) == known_examples(other) == known_examples(opened())
    assert known_examples(one)["new"][0] == 7
    one.undo()
    same(one.snapshot.classifier, before)
    assert known_examples(one) == known_examples(opened())
    with pytest.raises(HTTPError) as refused:
        correct(one, "okapi", 0)
    assert refused.value.status == 404


def test_no_change_is_refused_for_what_may_be_out_of_date(opened: Open) -> None:
    one, other = opened(), opened()
    teach(one, "New")
    assert correct(other, "new", 2).label == "New"
    teach(one, "more")
    assert other.forget("MORE").label == "more"
    other.forget("New")
    assert teach(one, "New").change == 6


def test_a_correction_is_not_computed_from_a_history_that_was_replaced(opened: Open) -> None:
    one = opened()
    teach(one, "new", 1)
    copy = sqlite3.connect(":memory:")
    with closing(copy), closing(sqlite3.connect(str(one.store.file))) as file:
        file.backup(copy)
        correct(one, "new", 2)
        copy.backup(file)
        correct(opened(), "new", 3)  # has the number of the lost one
        correct(one, "new", 0)
    assert known_examples(one)["new"][0] == 9
    same(one.snapshot.classifier, opened().snapshot.classifier)
    twice = opened()
    twice.undo()
    before = twice.snapshot.classifier
    correct(twice, "new", 0)
    same(twice.snapshot.classifier, one.snapshot.classifier)
    assert not np.array_equal(before.label_embeddings, one.snapshot.classifier.label_embeddings)


def test_corrections_go_with_their_label_and_come_back_with_it(opened: Open) -> None:
    live = opened()
    teach(live, "new", 1)
    correct(live, "new", 2)
    correct(live, "new", 3)
    whole = live.snapshot.classifier
    live.forget("new")
    assert live.snapshot.state.added == ()
    teach(live, "other", 2)
    live.undo()
    live.undo()
    same(live.snapshot.classifier, whole)
    live.forget("new")
    teach(live, "new", 1)  # begins anew
    assert known_examples(live)["new"][0] == 5
    same(live.snapshot.classifier, opened().snapshot.classifier)


def test_corrections_of_one_label_at_once_are_all_learned(opened: Open) -> None:
    lives = [opened(), opened()]
    teach(lives[0], "new", 1)
    lives[1].read()
    threads = [threading.Thread(target=correct, args=(lives[i % 2], "new", i % 4, 1)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {known_examples(live)["new"][0] for live in (*lives, opened())} == {9.0}


@pytest.mark.parametrize(
    "error", [UnavailableError("/where/it/lies cannot be used now"), StoreError("/where/it/lies is damaged")]
)
def test_a_correction_that_others_overtake_while_the_store_goes_away_is_refused_with_503(
    error: StoreError, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = opened(), opened()
    teach(one, "new", 1)
    other.read()
    correct(one, "new", 2)

    def fail(_: Position) -> News:
        raise error

    monkeypatch.setattr(other.store, "read", fail)
    with pytest.raises(HTTPError) as refused:
        correct(other, "new", 3)
    assert refused.value.status == 503
    assert "where" not in refused.value.text
    monkeypatch.undo()
    assert known_examples(other)["new"][0] == 7
