"""Links that somebody planted in a folder that a command is given: nothing behind them is written, cut or removed."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from labelwise.label.session import Labelled
from labelwise.server.labelling.export import export
from labelwise.server.labelling.project import open_project
from labelwise.server.store import FILE, Store
from labelwise.support.errors import LabelwiseError, StoreError, UsageError
from labelwise.support.writable import sole_writer, turn
from tests.server.labelling.photos import draw_photos


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    file = tmp_path / "precious"
    file.write_text("precious")
    return file


def test_a_lock_that_is_a_link(precious: Path, tmp_path: Path) -> None:
    for lock in (tmp_path / ".x.lw.lock", tmp_path / "label.lock"):
        lock.symlink_to(precious)
        with pytest.raises(LabelwiseError), sole_writer(tmp_path / "x.lw", lock):
            pass
        with pytest.raises(OSError, match="symbolic"), turn(lock):
            pass
    assert precious.read_text() == "precious"


def test_a_project_whose_lock_is_a_link(precious: Path, tmp_path: Path) -> None:
    photos = draw_photos(tmp_path / "photos", 1)
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "label.lock").symlink_to(precious)
    with pytest.raises(LabelwiseError), open_project(tmp_path / "p", photos):
        pass
    assert precious.read_text() == "precious"


def test_a_store_that_is_a_link(tmp_path: Path) -> None:
    """SQLite would change how the other database is kept."""
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE x (y)")
    before = other.read_bytes()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / FILE).symlink_to(other)
    with pytest.raises(StoreError, match="is a link"):
        Store(tmp_path / "state", "model")
    assert other.read_bytes() == before
    assert not other.with_name("other.sqlite-wal").exists()


def test_an_export_into_a_link(precious: Path, tmp_path: Path) -> None:
    files = [str(file) for file in sorted(draw_photos(tmp_path / "photos", 1).iterdir())]
    labels = [Labelled(label="bird", probability=1.0, source="person")] * len(files)
    home = tmp_path / "home"
    (home / "copies").mkdir(parents=True)
    precious = precious.rename(home / "copies" / "precious")
    (tmp_path / "export").symlink_to(home)
    with pytest.raises(UsageError, match="is a link"):
        export(files, labels, tmp_path / "export", "copies")
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "copies").symlink_to(home / "copies")
    left = tmp_path / "real" / ".copies.77.part"
    left.mkdir()
    export(files, labels, tmp_path / "real", "copies")  # replaces the link, not what it leads to
    assert [file.name for file in (home / "copies").iterdir()] == ["precious"]
    assert [file.name for file in (tmp_path / "real").iterdir()] == ["copies"], "nor is left what a kill left"
