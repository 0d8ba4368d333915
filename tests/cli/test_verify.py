"""The verb verify."""

import json
from pathlib import Path
from typing import Any

import pytest


def some(root: Path, label: int) -> list[Path]:
    return sorted((root / "pictures" / "test" / f"blob {label}").iterdir())


def test_verify_two_pictures(run: Any, root: Path) -> None:
    (a, b, *_), (c, *_) = some(root, 1), some(root, 2)
    code, out, _ = run("verify", root / "m.lw", a, b, "--json")
    assert code == 0
    found = json.loads(out)
    assert found["pairs"][0]["same"] is True
    assert found["rule"]["rule"] == "eer"
    other = json.loads(run("verify", root / "m.lw", a, c, "--json")[1])["pairs"][0]
    assert other["same"] is False
    assert other["probability"] < 0.5 < found["pairs"][0]["probability"]
    code, out, _ = run("verify", root / "m.lw", a, c)
    assert code == 0
    assert "different" in out


@pytest.mark.parametrize(("head", "separator"), [("", ","), ("first,second\n", ","), ("first;second\n", ";")])
def test_verify_a_table(run: Any, root: Path, head: str, separator: str) -> None:
    rows = [(some(root, 0)[0], some(root, 0)[1]), (some(root, 0)[0], some(root, 3)[0])]
    text = "\n".join(separator.join(str(path.relative_to(root)) for path in row) for row in rows)
    (root / "pairs.csv").write_text(head + text + "\n\n")
    code, out, _ = run("verify", root / "m.lw", "--pairs", root / "pairs.csv", "--json")
    assert code == 0
    assert [pair["same"] for pair in json.loads(out)["pairs"]] == [True, False]


def test_a_folder_is_no_picture_of_a_pair(run: Any, root: Path) -> None:
    """Its pictures would stand in the place of those of the other side."""
    folders = [root / "pictures" / "test" / f"blob {label}" for label in (1, 2)]
    (root / "folders.csv").write_text(f"{some(root, 0)[0]},{folders[1]}\n")
    for words in (folders, (some(root, 1)[0], folders[1]), ("--pairs", root / "folders.csv")):
        code, out, err = run("verify", root / "m.lw", *words, "--json")
        assert (code, out) == (2, "")
        assert "blob 2 is a folder" in " ".join(err.split()) or "blob 1 is a folder" in " ".join(err.split())
        assert "--pairs" in err


def test_wrong_use(run: Any, root: Path, tmp_path: Path) -> None:
    a = some(root, 0)[0]
    (tmp_path / "one.csv").write_text("a.png\n")
    (tmp_path / "empty.csv").write_text("\n")
    for words, code, message in (
        (("verify", root / "m.lw", a), 2, "Give two images"),
        (("verify", root / "m.lw", a, a, "--pairs", tmp_path / "one.csv"), 2, "not both"),
        (("verify", root / "m.lw", "--pairs", tmp_path / "one.csv"), 1, "must name two images"),
        (("verify", root / "m.lw", "--pairs", tmp_path / "empty.csv"), 1, "has no pair"),
        (("verify", root / "m.lw", "--pairs", tmp_path / "nowhere.csv"), 1, "Cannot read the table"),
        (("verify", root / "m.lw", a, tmp_path / "nowhere.png"), 1, "nowhere.png"),
    ):
        got, out, err = run(*words)
        assert (got, out) == (code, "")
        assert message in " ".join(err.split())
