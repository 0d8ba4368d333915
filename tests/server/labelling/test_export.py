"""Exports: each form holds every label, and gives them back."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from labelwise.images.catalogue import load
from labelwise.images.formats.answers import read_answers
from labelwise.images.split.divide import pool
from labelwise.label.session import Labelled
from labelwise.server.labelling.export import FORMS, export
from labelwise.support.errors import DataError, UsageError
from labelwise.support.files import VARIABLE
from tests.server.labelling.photos import draw_photos, truth


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = draw_photos(tmp_path_factory.mktemp("p") / "some photos", 3)
    return [str(file) for file in sorted(folder.iterdir())]


def labelled(files: list[str]) -> list[Labelled]:
    return [
        Labelled(label="" if row == 4 else f"{truth(file)}, ünì", probability=1.0, source="person")
        for row, file in enumerate(files)
    ]


@pytest.mark.parametrize("form", FORMS)
def test_what_is_written_can_be_read(form: str, files: list[str], tmp_path: Path) -> None:
    labels = labelled(files)
    written = export(files, labels, tmp_path, form)
    assert written == export(files, labels, tmp_path, form)
    assert [one.name for one in tmp_path.iterdir()] == [form]
    read = read_answers(written)
    wanted = sorted(one.label for one in labels if one.label)
    assert sorted(read.values()) == wanted
    if form in ("folders", "csv", "parquet", "yolo", "imagefolder", "coco", "labelstudio"):
        assert read == {file: one.label for file, one in zip(files, labels, strict=True) if one.label}


@pytest.mark.parametrize("form", FORMS)
def test_guesses_are_no_answers_unless_asked_for(form: str, files: list[str], tmp_path: Path) -> None:
    labels = [
        Labelled(label="red", probability=0.9, source="guess" if row % 2 else "person") for row in range(len(files))
    ]
    written = export(files, labels, tmp_path, form)
    assert len(read_answers(written)) == len(files[::2])
    assert len(read_answers(written, guesses=True)) == len(files)
    if form not in ("copies",):
        assert set(read_answers(written)) == set(files[::2])


@pytest.mark.parametrize("form", FORMS)
def test_what_is_written_can_be_fitted(form: str, files: list[str], tmp_path: Path) -> None:
    labels = [replace(one, label=one.label and f"=1 {one.label}") for one in labelled(files)]
    written = export(files, labels, tmp_path, form)
    place = written / f"images.{form}" if form in ("csv", "parquet") else written
    data = load(place, root=Path(files[0]).parent if form in ("csv", "parquet", "labelstudio") else None)
    assert len(pool(data)) == 8
    assert data.labels.names == tuple(sorted({one.label for one in labels if one.label}))


def test_copies_are_files_of_their_own(files: list[str], tmp_path: Path) -> None:
    written = export(files, labelled(files), tmp_path, "copies")
    assert not any(file.is_symlink() for file in written.glob("*/*"))


def test_a_guess_is_a_prediction_in_label_studio(files: list[str], tmp_path: Path) -> None:
    labels = [Labelled(label="red", probability=0.9, source="guess")] * len(files)
    tasks = json.loads((export(files, labels, tmp_path, "labelstudio") / "labelstudio.json").read_text())
    assert [task["predictions"][0]["score"] for task in tasks] == [0.9] * len(files)
    assert not any("annotations" in task for task in tasks)


def test_labels_that_are_no_names_of_folders_stay_inside(files: list[str], tmp_path: Path) -> None:
    labels = [Labelled(label="../../out", probability=1.0, source="person")] * len(files)
    written = export(files, labels, tmp_path / "in", "folders")
    assert [one.name for one in written.iterdir()] == ["__.._out"]


@pytest.mark.parametrize("form", FORMS)
def test_labels_and_files_that_look_alike_or_like_formulas_stay_apart(
    form: str, files: list[str], tmp_path: Path
) -> None:
    """Two labels that are no names of folders, one of 800 bytes, one called as a split; a file that a spreadsheet would compute."""
    odd = tmp_path / "=1+1.png"
    odd.write_bytes(Path(files[0]).read_bytes())
    names = ("a/b", "a_b", "\U0001f426" * 200, "train", "=2+2")
    rows = [str(odd), *files[:4]]
    labels = [Labelled(label=name, probability=1.0, source="person") for name in names]
    written = export(rows, labels, tmp_path / "out", form)
    read = read_answers(written)
    assert len(read) == len(set(read.values())) == 5
    if form not in ("folders", "copies", "yolo"):
        assert sorted(read.values()) == sorted(names)
    if form == "imagefolder":
        named = [line.partition(",")[0] for line in (written / "metadata.csv").read_text().splitlines()[1:]]
        assert all((written / name).is_file() for name in named)


@pytest.mark.parametrize("form", FORMS)
def test_a_file_whose_name_is_no_text(form: str, files: list[str], tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff.png"
    Path(os.fsdecode(odd)).write_bytes(Path(files[0]).read_bytes())
    labels = [Labelled(label="bird", probability=1.0, source="person")] * 2
    assert len(read_answers(export([os.fsdecode(odd), files[1]], labels, tmp_path / "out", form))) == 2


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", b"file,name\n1,2\n"),
        ("x.csv", b'path,label\n"' + b"x" * 200_000 + b'",a\n'),
        ("x.csv", b"path,label\nx.png\0,a\n"),
        ("x.parquet", b"PAR1 no"),
        ("x.json", b"[" * 100_000),
        ("x.json", b'{"categories": [{"id": 1, "name": 3}], "images": [{"id": 1, "file_name": "x"}], "annotations": [{"image_id": 1, "category_id": 1}]}'),
        ("x.json", b'[{"annotations": [{}]}]'),
        ("x.txt", b"\xff"),
    ],
)  # fmt: skip
def test_what_is_no_export_is_refused_in_words(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match="holds no labels that can be read"):
        read_answers(tmp_path / name)


def test_a_pipe_is_no_export(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.csv")
    for name in ("x.csv", "missing.csv"):
        with pytest.raises(UsageError, match="holds no labels"):
            read_answers(tmp_path / name)


def test_errors_leave_what_was_there(files: list[str], tmp_path: Path) -> None:
    written = export(files, labelled(files), tmp_path, "copies")
    before = sorted(written.rglob("*"))
    with pytest.raises(DataError, match="nowhere"):
        export([*files[:-1], "/nowhere.png"], labelled(files), tmp_path, "copies")
    assert sorted(written.rglob("*")) == before
    assert [one.name for one in tmp_path.iterdir()] == ["copies"]
    with pytest.raises(UsageError, match="written as"):
        export(files, labelled(files), tmp_path, "xml")
    with pytest.raises(UsageError, match="No image"):
        export(files, [Labelled(label="", probability=0, source="none")] * len(files), tmp_path, "csv")


def test_a_small_table_of_very_many_rows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Parquet file of some kilobytes may hold millions of rows, and JSON lists of lists."""
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    monkeypatch.setenv(VARIABLE, "0.001")
    same = pyarrow.array(["a"] * 300_000).dictionary_encode()
    parquet.write_table(pyarrow.table({"path": same, "label": same}), tmp_path / "x.parquet")
    (tmp_path / "x.json").write_text("[" + "[]," * 20_000 + "[]]")
    for file in tmp_path.iterdir():
        assert file.stat().st_size < 100_000
        with pytest.raises(UsageError, match="of memory"):
            read_answers(file)
