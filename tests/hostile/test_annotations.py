"""Annotation files of other tools that were made to break a reader: each is read, ignored, or refused in words."""

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import labelwise as lw
from labelwise.images.formats.annotations import rows_of
from labelwise.images.formats.find import read_annotations
from labelwise.support.errors import DataError
from labelwise.support.files import VARIABLE
from tests.hostile.parsers import PARSERS
from tests.images.formats.written import LABELS, photos, write_csv, write_json

VALUES: tuple[Any, ...] = (None, 5, 1e308, float("nan"), 10**400, True, "", "\ud800", "http://[", "a\0b", [], {}, [[]], {"a": None})  # fmt: skip


def changed(document: Any) -> Iterator[Any]:
    """The document with each of its parts, one at a time, replaced by each of the values, or left out."""
    for path in list(paths(document)):
        for value in VALUES:
            yield replaced(document, path, value)


def paths(part: Any) -> Iterator[tuple[Any, ...]]:
    yield ()
    inside = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, one in inside:
        yield from ((key, *rest) for rest in paths(one))


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    new = copy.copy(document)
    new[path[0]] = replaced(document[path[0]], path[1:], value)
    return new


@pytest.mark.parametrize("name", ["annotations.json", "export.json", "labels.json"])
def test_any_value_in_the_place_of_any_other_is_read_or_refused(name: str, tmp_path: Path) -> None:
    """A file name that was a number, or an address that is none, was a traceback."""
    for seed in PARSERS[name].seeds():
        for document in changed(json.loads(seed)):
            PARSERS[name].accepts(json.dumps(document).encode(), tmp_path)


def label_folders(folder: Path) -> Path:
    for label in LABELS:
        photos(folder / label.replace(";", ""))
    (folder / "labels").mkdir()
    return folder


@pytest.mark.parametrize("name", ["x.xml", "x.yaml", "classes.txt", "labels.json", "metadata.csv", "annotations.xml"])
def test_what_is_no_file_annotates_nothing(name: str, tmp_path: Path) -> None:
    """Each was a traceback: a pipe, a folder and a link to nothing among label folders."""
    for kind in ("pipe", "folder", "link"):
        place = label_folders(folder := tmp_path / kind) / name
        if kind == "pipe":
            os.mkfifo(place)
        elif kind == "folder":
            place.mkdir()
        else:
            place.symlink_to(tmp_path / "nothing")
        assert len(lw.data.load(folder).labels) == 2


def test_a_text_of_another_encoding_annotates_nothing(tmp_path: Path) -> None:
    folder = label_folders(tmp_path / "data")
    (folder / "notes.yaml").write_bytes("café: 1".encode("latin-1"))
    assert len(lw.data.load(folder).labels) == 2


@pytest.mark.parametrize("box", [[float("nan")] * 4, [1e300] * 4, [0, 0, 1e12, 5]])
def test_boxes_of_numbers_that_no_image_has_are_refused(box: list[float], tmp_path: Path) -> None:
    """They made addresses of hundreds of characters, which were files that are missing."""
    file = {"images": [{"id": 1, "file_name": "a.png"}], "categories": [{"id": 2, "name": "owl"}]}
    write_json(tmp_path / "a.json", {**file, "annotations": [{"image_id": 1, "category_id": 2, "bbox": box}]})
    with pytest.raises(DataError, match="a box has the numbers"):
        read_annotations(tmp_path / "a.json")


def test_a_yaml_file_of_other_names_is_no_data_of_yolo(tmp_path: Path) -> None:
    folder = label_folders(tmp_path / "data")
    (folder / "notes.yaml").write_text("surnames: x\n  names: y\n")
    assert len(lw.data.load(folder).labels) == 2


@pytest.mark.parametrize(
    "names", ["\n  - a" + " " * 200_000 + "b", " [" + "-" * 200_000 + "1]", " ['" + "a' '" * 50_000]
)
def test_names_of_yolo_that_took_hours_or_all_memory_of_the_parser(names: str, tmp_path: Path) -> None:
    (tmp_path / "labels").mkdir()
    (tmp_path / "data.yaml").write_text(f"names:{names}\n")
    with pytest.raises(DataError):
        rows_of(read_annotations(tmp_path))


def test_names_of_yolo_in_one_line(tmp_path: Path) -> None:
    photos(tmp_path / "images", ["a.png"])
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "a.txt").write_text("".join(f"{number} .5 .5 .2 .{number + 2}\n" for number in range(4)))
    (tmp_path / "data.yaml").write_text("""names: ["owl, barn", 'wren', tit mouse, 7]  # birds\n""")
    rows = rows_of(read_annotations(tmp_path))
    assert [rows.names[target] for target in rows.targets] == ["owl, barn", "wren", "tit mouse", "7"]


def test_a_line_of_json_may_hold_any_separator_of_unicode(tmp_path: Path) -> None:
    photos(tmp_path, ["a.png", "b.png"])
    lines = [{"file_name": f"{label}.png", "label": label, "text": "one\u2028two\x85"} for label in "ab"]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    (tmp_path / "metadata.jsonl").write_text(text, encoding="utf-8")
    assert rows_of(read_annotations(tmp_path)).names == ("a", "b")


def test_what_a_small_file_would_unfold_to_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one cell in a table of thousands of columns; empty lists; empty elements."""
    monkeypatch.setenv(VARIABLE, "0.01")
    header = ["file_name", *(f"column {i}" for i in range(1000))]
    files = [write_csv(tmp_path / "metadata.csv", header, [["a.png"]] * 1000), tmp_path / "x.json", tmp_path / "x.xml"]
    files[1].write_text("[" + "[]," * 100_000 + "[]]")
    files[2].write_text("<annotations>" + '<a b="1"/>' * 40_000 + "</annotations>")
    for file in files:
        assert file.stat().st_size < 500_000
        with pytest.raises(DataError, match="of memory"):
            read_annotations(file)
