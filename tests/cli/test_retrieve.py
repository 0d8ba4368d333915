"""The verb retrieve."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import labelwise as lw
from labelwise.images.file_images import FileImages
from tests.contract.subjects import trained


def some(root: Path, label: int) -> list[Path]:
    return sorted((root / "pictures" / "test" / f"blob {label}").iterdir())


def test_retrieve_from_a_folder(run: Any, root: Path) -> None:
    query = some(root, 2)[0]
    code, out, _ = run("retrieve", root / "m.lw", query, "--gallery", root / "pictures" / "test", "--top", 3, "--json")
    assert code == 0
    found = json.loads(out)
    assert found["gallery"] == sum(len(some(root, label)) for label in range(4))
    matches = found["queries"][0]["matches"]
    assert [Path(match["file"]).parent.name for match in matches] == ["blob 2"] * 3
    assert str(query.resolve()) not in [match["file"] for match in matches]
    code, out, _ = run("retrieve", root / "m.lw", query, "--gallery", root / "pictures" / "test")
    assert code == 0
    assert "most like" in out
    scores = {}
    for by in ("whitened", "cosine"):
        words = ("--by", by, "--top", 3, "--json")
        code, out, _ = run("retrieve", root / "m.lw", query, "--gallery", root / "pictures" / "test", *words)
        scores[by] = [match["score"] for match in json.loads(out)["queries"][0]["matches"]]
    assert scores["whitened"] == [match["score"] for match in matches] != scores["cosine"]  # whitened is the default


def test_what_lies_below_the_working_folder_is_named_from_there(
    run: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    code, out, _ = run("retrieve", "m.lw", some(root, 2)[0], "--gallery", "pictures/test", "--top", 2)
    assert code == 0
    assert sum(line.startswith("pictures/test/blob 2/") for line in out.splitlines()) == 2


def test_index_is_kept_up_to_date(run: Any, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, index, query = tmp_path / "g", tmp_path / "new" / "g.safetensors", some(root, 1)[0]
    folder.mkdir()
    for i in range(4):
        (folder / f"{i}.png").write_bytes(some(root, 1)[i + 1].read_bytes())
    (folder / "broken.png").write_text("no picture")

    def ask(source: Path, *words: object) -> list[str]:
        code, out, _ = run("retrieve", root / "m.lw", query, "--gallery", source, *words, "--json", "--top", 9)
        assert code == 0
        return sorted(Path(match["file"]).name for match in json.loads(out)["queries"][0]["matches"])

    assert ask(folder, "--index", index) == ["0.png", "1.png", "2.png", "3.png"]
    (folder / "0.png").unlink()
    (folder / "4.png").write_bytes(some(root, 2)[0].read_bytes())
    read = list[str]()

    def noted(files: Any) -> FileImages:
        read.extend(map(str, files))
        return FileImages(files)

    monkeypatch.setattr("labelwise.tasks.gallery_files.FileImages", noted)
    assert ask(folder, "--index", index) == ["1.png", "2.png", "3.png", "4.png"]
    assert sorted(Path(file).name for file in read) == ["4.png", "broken.png"]
    assert ask(folder, "--index", index) == ask(index) == ["1.png", "2.png", "3.png", "4.png"]


def test_approximate_search_follows_the_folder(run: Any, root: Path, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    folder, kept, query = tmp_path / "g", tmp_path / "g.safetensors", some(root, 1)[0]
    folder.mkdir()
    for i in range(6):
        (folder / f"{i}.png").write_bytes(some(root, 1)[i + 1].read_bytes())

    def ask(source: Path, *words: object) -> list[str]:
        code, out, err = run("retrieve", root / "m.lw", query, "--gallery", source, *words, "--json", "--top", 9)
        assert code == 0, err
        return [Path(match["file"]).name for match in json.loads(out)["queries"][0]["matches"]]

    assert ask(folder, "--approximate") == ask(folder, "--index", kept, "--approximate") == ask(folder)
    (folder / "0.png").unlink()
    (folder / "6.png").write_bytes(some(root, 2)[0].read_bytes())
    exact = ask(folder, "--index", kept)  # without faiss at work: its index is kept right all the same
    assert sorted(exact) == [f"{i}.png" for i in range(1, 7)]
    before = kept.stat().st_mtime_ns
    assert ask(kept, "--approximate") == ask(folder, "--index", kept, "--approximate") == exact
    assert kept.stat().st_mtime_ns == before


def test_approximate_search_says_what_it_lacks(
    run: Any, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, folder, kept = some(root, 1)[0], root / "pictures" / "test", tmp_path / "g.safetensors"
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "faiss", None)
        assert run("retrieve", root / "m.lw", query, "--gallery", folder, "--index", kept)[0] == 0
        code, out, err = run("retrieve", root / "m.lw", query, "--gallery", kept, "--approximate")
    assert (code, out) == (2, "")
    assert 'pip install "labelwise[search]"' in " ".join(err.split())
    pytest.importorskip("faiss")
    code, out, err = run("retrieve", root / "m.lw", query, "--gallery", kept, "--approximate")
    assert (code, out) == (2, "")
    assert "was stored without --approximate" in " ".join(err.split())


def test_wrong_use(run: Any, root: Path, tmp_path: Path) -> None:
    a = some(root, 0)[0]
    (tmp_path / "nothing").mkdir()
    for words, code, message in (
        (("retrieve", root / "m.lw", a, "--gallery", tmp_path / "nothing"), 1, "No image found"),
        (("retrieve", root / "m.lw", a, "--gallery", tmp_path / "g.file"), 1, "Cannot read g.file"),
        (("retrieve", root / "m.lw", a, "--gallery", tmp_path / "g", "--index", tmp_path / "i"), 2, "is not a folder"),
    ):
        got, out, err = run(*words)
        assert (got, out) == (code, "")
        assert message in " ".join(err.split())


def test_retrieve_refuses_a_score_before_it_encodes_the_gallery(run: Any, root: Path, tmp_path: Path) -> None:
    head: Any = trained("softmax").head
    old = replace(trained("softmax"), head=replace(head, unit_within=head.unit_within * 0))
    lw.save(old, tmp_path / "old.lw")
    index = tmp_path / "g.safetensors"
    words = ("--gallery", root / "pictures" / "test", "--index", index, "--by", "whitened")
    code, out, err = run("retrieve", tmp_path / "old.lw", some(root, 2)[0], *words)
    assert (code, out) == (1, "")
    assert "Compare by cosine, or train again" in " ".join(err.split())
    assert not index.exists()


def test_a_gallery_on_disk(run: Any, root: Path, tmp_path: Path) -> None:
    pytest.importorskip("lancedb", reason="needs the extra gallery")
    kept, query = tmp_path / "all photos.lance", some(root, 1)[0]
    folders = [tmp_path / "one", tmp_path / "two"]
    for label, folder in enumerate(folders):
        folder.mkdir()
        for i in range(4):
            (folder / f"{i}.png").write_bytes(some(root, label)[i + 1].read_bytes())

    def ask(*words: object) -> tuple[int, list[str]]:
        code, out, err = run("retrieve", root / "m.lw", *words, "--json", "--top", 9)
        assert code == 0, err
        found = json.loads(out)
        return found["gallery"], [match["file"] for one in found["queries"] for match in one["matches"]]

    assert ask("--gallery", folders[0], "--index", kept) == (4, [])
    (folders[0] / "3.png").unlink()
    (folders[0] / "4.png").write_bytes(some(root, 0)[5].read_bytes())
    assert ask("--gallery", folders[0], "--index", kept) == (4, [])
    count, files = ask(query, "--gallery", folders[1], "--index", kept, "--label", "blob 1")
    assert count == len(files) == 8
    assert {Path(file).parent.name for file in files[:4]} == {"two"}
    assert ask(query, "--gallery", kept) == (8, files)
    assert ask(query, "--gallery", kept, "--no-approximate") == (8, files)
    chosen = ask(query, "--gallery", kept, "--where", "label is null and date > '2000'")[1]
    assert chosen == [file for file in files if Path(file).parent.name == "one"]
    code, _, err = run("retrieve", root / "m.lw", "--gallery", kept, "--remove", f"folder = '{folders[0].resolve()}'")
    assert (code, "Removed 4 images." in err) == (0, True)
    assert ask(query, "--gallery", kept) == (4, files[:4])


def test_wrong_use_of_a_gallery_on_disk(run: Any, root: Path, tmp_path: Path) -> None:
    pytest.importorskip("lancedb", reason="needs the extra gallery")
    model, a, folder = root / "m.lw", some(root, 0)[0], root / "pictures" / "test"
    kept, none = tmp_path / "g.lance", tmp_path / "none.lance"
    assert run("retrieve", model, "--gallery", folder, "--index", kept, "--by", "whitened")[0] == 0
    for words, code, message in (
        ((model, a, "--gallery", kept, "--by", "cosine"), 2, "holds whitened embeddings"),
        ((model, a, "--gallery", none), 1, "is not a gallery"),
        ((model, a, "--gallery", tmp_path / "no", "--index", none), 2, "is not a folder"),
        ((model, a, "--gallery", kept, "--by", "whitened", "--where", "bad"), 2, "Give a condition on"),
        ((model, a, "--gallery", kept, "--label", "x"), 2, "--label needs images to add"),
        ((model, a, "--gallery", folder, "--where", "label = 'x'"), 2, "goes with a gallery on disk"),
        ((model, "--gallery", folder), 2, "Give an image to search for"),
    ):
        got, out, err = run("retrieve", *words)
        assert (got, out) == (code, ""), err
        assert message in " ".join(err.split())
    assert not none.exists()
