"""What classify writes: a table, sorted pictures, a sheet."""

import csv
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from labelwise.cli.answers import Answer, Sorter, answer, folder_names, safe_name, table_of
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
    names = folder_names(["a/b", "a_b", "A_B", "unknown ", "unsure"])
    assert len({name.casefold() for name in names.values()}) == len(names)
    assert (names["unknown"], names["unknown "], names["A_B"]) == ("unknown", "unknown (2)", "A_B (3)")
    long = folder_names(["x" * 300 + str(i) for i in range(12)])
    assert len(set(long.values())) == 15
    assert all(len(os.fsencode(name)) <= 255 for name in long.values())


def test_no_cell_becomes_a_formula() -> None:
    rows = list(csv.reader(table_of([Answer("-1.jpg", "@a", prediction("+b"))]).decode().splitlines()))
    assert rows[1] == ["'-1.jpg", "'@a", "'+b", "0.9000", "'=2+3", "0.0500", "-0.5000"]


def test_nothing_is_overwritten_and_nothing_placed_twice(tmp_path: Path) -> None:
    for folder, colour in (("one", "red"), ("two", "blue")):
        (tmp_path / folder).mkdir()
        Image.new("RGB", (4, 4), colour).save(tmp_path / folder / "x.png")
    for link in (False, True):
        root = tmp_path / f"sorted {link}"
        sorter = Sorter(root, folder_names(["a"]), link, Counter())
        (root / "a").mkdir(parents=True)
        (root / "a" / "x.png").write_text("mine")
        for _ in range(2):
            for folder in ("one", "two"):
                sorter.place(answer(str(tmp_path / folder / "x.png"), prediction("a"), 0.5))
        assert (root / "a" / "x.png").read_text() == "mine"
        assert sorted(os.listdir(root / "a")) == ["x (2).png", "x (3).png", "x.png"]
        assert (root / "a" / "x (3).png").read_bytes() == (tmp_path / "two" / "x.png").read_bytes()
        assert (root / "a" / "x (2).png").is_symlink() is link
    assert (tmp_path / "one" / "x.png").exists(), "nothing is moved"


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(source: Path, target: Path) -> None:
        target.write_text("half")
        raise KeyboardInterrupt

    Image.new("RGB", (4, 4)).save(tmp_path / "x.png")
    monkeypatch.setattr("shutil.copy2", half)
    with pytest.raises(KeyboardInterrupt):
        Sorter(tmp_path / "s", folder_names(["a"]), False, Counter()).place(
            answer(str(tmp_path / "x.png"), prediction("a"), 0.5)
        )
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
    assert page.count("<figure>") == len(rows)
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
    assert "<script>" not in (tmp_path / "s.html").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--link"], "--link goes with --sort-into"),
        (["--out", "x.pdf"], "takes a page (.html)"),
        (["--only", "blob 9"], 'names no answer "blob 9". Did you mean "blob'),
        (["--csv", "/proc/none/x.csv"], "No such file"),
    ],
)
def test_wrong_use(run: Any, model: Path, words: list[str], told: str) -> None:
    code, out, err = run("classify", model, "nothing.jpg", *words)
    assert (code, out) == (2, "")
    assert told in " ".join(err.split())
