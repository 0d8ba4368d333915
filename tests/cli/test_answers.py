"""What classify writes: a table, sorted pictures, a sheet."""

import csv
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from labelwise.cli.classify import AnswerRow, table_of
from labelwise.cli.sorting import Sorter
from labelwise.support.errors import DataError, UsageError
from labelwise.support.file_names import RECORD, folder_names, safe_name
from labelwise.tasks.classify import Prediction


def prediction(label: str, probability: float = 0.9) -> Prediction:
    return Prediction(label, (label,), probability, probability, -0.5, ((label, probability), ("=2+3", 0.05)))


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("a/b\\c", "a_b_c"),
        ("..", "_"),
        (".hidden", "_hidden"),
        ("end. ", "end"),
        ("tab\there\x00", "tab_here_"),
        ("NUL", "_NUL"),
        ("Ä" * 200, "Ä" * 100),
        ("   ", "_"),
    ],
)
def test_names_of_folders_are_safe(label: str, name: str) -> None:
    assert safe_name(label) == name


def test_no_two_answers_share_a_folder() -> None:
    names = folder_names(["unknown", "a/b", "a_b", "A_B", "unknown ", "unsure"])
    assert len({name.casefold() for name in names.values()}) == len(names)
    assert (names["unknown"], names["unknown "], names["A_B"]) == ("unknown", "unknown (2)", "A_B (3)")
    long = folder_names(["x" * 300 + str(i) for i in range(12)])
    assert len(set(long.values())) == 12
    assert all(len(os.fsencode(name)) <= 255 for name in long.values())


def test_no_cell_becomes_a_formula() -> None:
    rows = list(csv.reader(table_of([AnswerRow("-1.jpg", "@a", prediction("+b"))]).decode().splitlines()))
    assert rows[1] == ["'-1.jpg", "'@a", "'+b", "0.9000", "'=2+3", "0.0500", "-0.5000"]


@pytest.fixture
def images(tmp_path: Path) -> dict[str, str]:
    """Two images of one name."""
    files = {}
    for folder, colour in (("one", "red"), ("two", "blue")):
        (tmp_path / folder).mkdir()
        Image.new("RGB", (4, 4), colour).save(tmp_path / folder / "x.png")
        files[folder] = str(tmp_path / folder / "x.png")
    return files


def sort(root: Path, *places: tuple[str, str], link: bool = False) -> None:
    sorter = Sorter(root, folder_names(["a", "b"]), link=link)
    for file, word in places:
        sorter.place(file, word)
    sorter.finish("m.lw")


@pytest.mark.parametrize("link", [False, True])
def test_files_of_others_stay_and_nothing_is_placed_twice(tmp_path: Path, images: dict[str, str], link: bool) -> None:
    root = tmp_path / "sorted"
    sort(root, (images["one"], "a"), link=link)
    (root / "a" / "x.png").unlink()
    (root / "a" / "x.png").write_text("mine")
    for _ in range(2):
        sort(root, (images["one"], "a"), (images["two"], "a"), link=link)
        assert (root / "a" / "x.png").read_text() == "mine"
        assert sorted(os.listdir(root / "a")) == ["x (2).png", "x (3).png", "x.png"]
        assert (root / "a" / "x (3).png").read_bytes() == Path(images["two"]).read_bytes()
        assert (root / "a" / "x (2).png").is_symlink() is link
    assert Path(images["one"]).exists(), "nothing is moved"


@pytest.mark.parametrize("link", [False, True])
def test_an_earlier_sort_is_renewed(tmp_path: Path, images: dict[str, str], link: bool) -> None:
    root = tmp_path / "sorted"
    sort(root, (images["one"], "a"), (images["two"], "a"), link=link)
    sort(root, (images["one"], "b"), (images["two"], "a"), link=link)
    assert sorted(str(one.relative_to(root)) for one in root.glob("*/*")) == ["a/x.png", "b/x.png"]
    assert (root / "a" / "x.png").read_bytes() == Path(images["two"]).read_bytes()
    assert json.loads((root / RECORD).read_text())["source"] == "answers"


def test_a_folder_of_another_origin_is_refused(tmp_path: Path, images: dict[str, str]) -> None:
    (tmp_path / "photos" / "a").mkdir(parents=True)
    for record in (None, "no JSON", '{"source": "groups"}'):
        if record is not None:
            (tmp_path / "photos" / RECORD).write_text(record)
        with pytest.raises(UsageError, match="was not written by this verb"):
            sort(tmp_path / "photos", (images["one"], "a"))
    assert sorted(os.listdir(tmp_path / "photos")) == [RECORD, "a"]


def test_a_forged_record_removes_nothing_outside(tmp_path: Path, images: dict[str, str]) -> None:
    root = tmp_path / "sorted"
    root.mkdir()
    about = os.stat(images["one"])
    state = [about.st_size, about.st_mtime_ns]
    (root / "b").symlink_to(tmp_path / "one")
    names = ["../one/x.png", images["one"], "b/x.png"]
    (root / RECORD).write_text(json.dumps({"source": "answers", "placed": dict.fromkeys(names, state)}))
    sort(root, (images["two"], "a"))
    assert Path(images["one"]).exists()


def test_no_planted_link_is_followed(tmp_path: Path, images: dict[str, str]) -> None:
    root, victim = tmp_path / "sorted", tmp_path / "victim"
    victim.write_text("precious")
    sort(root, (images["one"], "a"))
    for name in (f"a/.{os.getpid()}.part", "a/x (2).png", f".{RECORD}.{os.getpid()}.part"):
        (root / name).symlink_to(victim)
    sort(root, (images["one"], "a"), (images["two"], "a"))
    assert victim.read_text() == "precious"
    assert (root / "a" / "x (2).png").is_symlink(), "it is not ours"
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "b").symlink_to(outside)
    with pytest.raises(DataError, match="is a link"):
        sort(root, (images["one"], "b"))
    assert os.listdir(outside) == []


def test_a_copy_that_fails_leaves_nothing(
    tmp_path: Path, images: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(source: Path, target: str) -> None:
        Path(target).write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr("shutil.copy2", half)
    with pytest.raises(KeyboardInterrupt):
        sort(tmp_path / "s", (images["one"], "a"))
    assert os.listdir(tmp_path / "s" / "a") == []


def test_classify_writes_a_table_folders_and_a_sheet(
    run: Any, model: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labelwise.cli.inputs.PIECE", 7)
    into, sheet, table = tmp_path / "in to", tmp_path / "s.html", tmp_path / "t.csv"
    words = ["classify", model, pictures / "test", "--json"]
    document = json.loads(run(*words, "--csv", table, "--sort-into", into, "--out", sheet, "--min-probability", 0.9)[1])
    whole = json.loads(run(*words)[1])
    for one, other in zip(document["predictions"], whole["predictions"], strict=True):
        assert (one["file"], one["label"]) == (other["file"], other["label"])
        assert one["probability"] == pytest.approx(other["probability"]), "in pieces as at once"
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert Counter(row["answer"] for row in rows) == document["answers"]
    assert document["answers"].get("unsure", 0) == sum(
        one["label"] != "unknown" and one["probability"] < 0.9 for one in whole["predictions"]
    )
    for word, count in document["answers"].items():
        assert len(list((into / word).iterdir())) == count
    page = sheet.read_text()
    assert page.count("<figure ") == len(rows)
    assert page.count("data:image/jpeg") == len(rows)
    code, out, _ = run("classify", model, pictures / "test", "--only", "blob 1, unknown", "--csv", table)
    assert code == 0
    assert {row["answer"] for row in csv.DictReader(table.read_text().splitlines())} <= {"blob 1", "unknown"}
    assert "blob 2" not in out


def test_a_sheet_is_text_and_never_html(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    name = tmp_path / "<script>alert(1)<" / "script>.png"
    name.parent.mkdir()
    name.write_bytes(next((pictures / "test" / "blob 0").iterdir()).read_bytes())
    assert run("classify", model, name, "--out", tmp_path / "s.html")[0] == 0
    page = (tmp_path / "s.html").read_text()
    assert page.count("<script>") == 1, "the one of the page itself"
    assert "alert(1)<" not in page.replace("&lt;script&gt;alert(1)&lt;", "")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--link"], "--link goes with --sort-into"),
        (["--out", "x.pdf"], "takes a page (.html)"),
        (["--only", "blob 9"], '"blob 9" is not a possible answer. Did you mean "blob'),
        (["--csv", "/proc/none/x.csv"], "No such file"),
    ],
)
def test_wrong_use(run: Any, model: Path, words: list[str], told: str) -> None:
    code, out, err = run("classify", model, "nothing.jpg", *words)
    assert (code, out) == (2, "")
    assert told in " ".join(err.split())
