"""A project: nothing that was answered is lost, whatever becomes of the process; two browsers; photos that come later."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from labelwise.label.actions import Action
from labelwise.server.labelling.project import add_labels, open_project
from labelwise.server.store import FILE
from labelwise.support.errors import DataError, StoreError, UsageError
from tests.forks import FORKS
from tests.server.labelling.photos import draw_photos, truth


def answer(folder: Path, told: int) -> None:
    """Answer one image after another and say so; the parent kills this process in the midst."""
    with open_project(folder, None) as project:
        for number in range(10_000):
            project.add([Action(kind="name", rows=(number % 36,), label=f"label {number}")])
            os.write(told, f"{number}\n".encode())


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_photos(tmp_path_factory.mktemp("some photos") / "all of them")


@pytest.fixture(autouse=True)
def _cache(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Photos of all tests are encoded once."""
    monkeypatch.setenv("LABELWISE_CACHE", str(photos.parent / "cache"))


def test_answers_are_there_after_it_was_closed(photos: Path, tmp_path: Path) -> None:
    with open_project(tmp_path / "p", photos, ["red", "blue"]) as project:
        assert project.session.names == ["red", "blue"]
        project.add([Action(kind="name", rows=(3, 4), label="red", person="ann")])
        project.add([Action(kind="name", rows=(5,), label="green")])
        project.undo("")
        actions = project.session.actions
    with open_project(tmp_path / "p", None) as project:
        assert project.session.actions == actions
        assert project.session.ledger.targets[[3, 4, 5]].tolist() == [0, 0, -1]
        assert [truth(file) for file in project.files[:12]] == ["blue"] * 12


@pytest.mark.parametrize("moment", range(3))
def test_a_kill_loses_no_answer(photos: Path, tmp_path: Path, moment: int) -> None:
    with open_project(tmp_path / "p", photos):
        pass
    read, write = os.pipe()
    process = FORKS.Process(target=answer, args=(tmp_path / "p", write))
    process.start()
    os.close(write)
    with open(read) as lines:
        told = -1
        while told < 3 + 4 * moment:
            told = int(lines.readline())
        process.kill()
        told = max([told, *map(int, lines.read().split())])
    process.join()
    with open_project(tmp_path / "p", None) as project:
        labels = [action.label for action in project.session.actions]
    assert labels[: told + 1] == [f"label {number}" for number in range(told + 1)]
    assert len(labels) <= told + 2


def test_wrong_actions_change_neither_session_nor_disk(photos: Path, tmp_path: Path) -> None:
    with open_project(tmp_path / "p", photos) as project:
        project.add([Action(kind="name", rows=(0,), label="red")])
        with pytest.raises(UsageError):
            project.add([Action(kind="name", rows=(1,), label="red"), Action(kind="name", rows=(999,), label="red")])
        assert len(project.session.actions) == 1
        assert project.session.ledger.targets[1] == -1
    with open_project(tmp_path / "p", None) as project:
        assert len(project.session.actions) == 1


def test_two_browsers_are_asked_about_different_images(photos: Path, tmp_path: Path) -> None:
    with open_project(tmp_path / "p", photos) as project:
        first, second = project.question("a"), project.question("b")
        assert first is not None
        assert second is not None
        assert not set(first.rows) & set(second.rows)
        assert project.question("a") == first


def test_photos_that_come_later_are_added_behind_the_others(photos: Path, tmp_path: Path) -> None:
    copy = draw_photos(tmp_path / "photos")
    with open_project(tmp_path / "p", copy) as project:
        before = list(project.files)
        project.add([Action(kind="name", rows=(0,), label="blue")])
    (copy / "a first one.png").write_bytes((copy / "red 0.png").read_bytes())
    (copy / "red 0.png").unlink()
    lines = list[str]()
    with open_project(tmp_path / "p", copy, tell=lines.append) as project:
        assert project.files[:-1] == before
        assert project.files[-1].endswith("a first one.png")
        assert project.session.ledger.targets[0] == 0
        assert project.session.hidden == {before.index(str(copy / "red 0.png"))}
    assert "red 0.png" in lines[0]


def test_one_process_at_a_time_has_it_open(photos: Path, tmp_path: Path) -> None:
    second = open_project(tmp_path / "p", photos)
    with open_project(tmp_path / "p", photos), pytest.raises(StoreError, match="open in another process"), second:
        pass


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no project"), open_project(tmp_path / "p", None):
        pass
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="two images"), open_project(tmp_path / "p", tmp_path / "none"):
        pass
    assert not (tmp_path / "p").exists()


def test_imported_labels_leave_answers_as_they_are(photos: Path, tmp_path: Path) -> None:
    with open_project(tmp_path / "p", photos) as project:
        project.add([Action(kind="name", rows=(0,), label="mine")])
        assert add_labels(project, {file: truth(file) for file in project.files[:10]}) == 9
        names = [project.session.names[target] for target in project.session.ledger.targets[:10]]
        assert names == ["mine", *(truth(file) for file in project.files[1:10])]


def test_a_copy_that_is_restored_is_what_the_session_then_is(photos: Path, tmp_path: Path) -> None:
    """The store counts, not what a process remembers: nothing that is answered afterwards is lost."""
    with open_project(tmp_path / "p", photos) as project:
        project.add([Action(kind="name", rows=(0,), label="red")])
        store = tmp_path / "p" / FILE
        _copy(store, tmp_path / "older")
        project.add([Action(kind="name", rows=(1, 2), label="blue")])
        _copy(tmp_path / "older", store)
        project.question("a")
        assert project.session.names == ["red"]
        project.add([Action(kind="name", rows=(3,), label="green")])
    with open_project(tmp_path / "p", None) as project:
        assert project.session.names == ["red", "green"]


def test_the_store_of_other_images_is_refused(photos: Path, tmp_path: Path) -> None:
    with open_project(tmp_path / "other", draw_photos(tmp_path / "others", 1)):
        pass
    with open_project(tmp_path / "p", photos) as project:
        _copy(tmp_path / "other" / FILE, tmp_path / "p" / FILE)
        with pytest.raises(StoreError, match="other images"):
            project.add([Action(kind="name", rows=(0,), label="red")])
        assert project.session.actions == []


def _copy(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target, timeout=20)) as other:
        one.backup(other)
