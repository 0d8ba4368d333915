"""The command line where pictures are compared with each other: verify, retrieve, and the threshold that calibrate fits."""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import labelwise as lw
from labelwise.data.read.pictures import read_files
from labelwise.evaluate.pairs import evaluate_pairs
from labelwise.evaluate.tested import Tested
from tests.changed import changed
from tests.conftest import blobs
from tests.contract.subjects import trained
from tests.test_cli import run as run


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pictures, and two classifiers: one as fitted, one without a threshold for pairs."""
    place, data = tmp_path_factory.mktemp("match"), blobs(per_label=30, seed=1)
    for name in ("train", "val", "test"):
        split = data.split(name)
        for i, (image, target) in enumerate(zip(split.images, split.targets.tolist(), strict=True)):
            folder = place / "pictures" / name / f"blob {target}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / f"{i}.png")
    lw.save(trained("softmax"), place / "m.lw")
    lw.save(changed(trained("softmax"), verifier=None), place / "bare.lw")
    return place


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


@pytest.mark.parametrize("head", ["", "first,second\n"])
def test_verify_a_table(run: Any, root: Path, head: str) -> None:
    rows = [(some(root, 0)[0], some(root, 0)[1]), (some(root, 0)[0], some(root, 3)[0])]
    text = "\n".join(",".join(str(path.relative_to(root)) for path in row) for row in rows)
    (root / "pairs.csv").write_text(head + text + "\n\n")
    code, out, _ = run("verify", root / "m.lw", "--pairs", root / "pairs.csv", "--json")
    assert code == 0
    assert [pair["same"] for pair in json.loads(out)["pairs"]] == [True, False]


def test_calibrate_fits_the_threshold(run: Any, root: Path, tmp_path: Path) -> None:
    a, b, *_ = some(root, 1)
    code, out, err = run("verify", root / "bare.lw", a, b)
    assert (code, out) == (2, "")
    assert "labelwise calibrate" in " ".join(err.split())
    for words, rule in (((), "eer"), (("--false-accepts", "0.1"), 0.1)):
        path = tmp_path / f"{rule}.lw"
        assert run("calibrate", root / "bare.lw", root / "pictures", "--out", path, *words)[0] == 0
        assert json.loads(run("verify", path, a, b, "--json")[1])["rule"]["rule"] == rule
    path = tmp_path / "white.lw"
    assert run("calibrate", root / "bare.lw", root / "pictures", "--out", path, "--by", "whitened")[0] == 0
    assert json.loads(run("verify", path, a, b, "--json")[1])["rule"]["by"] == "whitened"


def test_retrieve_from_a_folder(run: Any, root: Path) -> None:
    query = some(root, 2)[0]
    code, out, _ = run("retrieve", root / "m.lw", query, "--gallery", root / "pictures" / "test", "-k", 3, "--json")
    assert code == 0
    found = json.loads(out)
    assert found["gallery"] == sum(len(some(root, label)) for label in range(4))
    matches = found["queries"][0]["matches"]
    assert [Path(match["file"]).parent.name for match in matches] == ["blob 2"] * 3
    assert str(query.resolve()) not in [match["file"] for match in matches]
    code, out, _ = run("retrieve", root / "m.lw", query, "--gallery", root / "pictures" / "test")
    assert code == 0
    assert "most like" in out
    words = ("--by", "whitened", "-k", 3, "--json")
    code, out, _ = run("retrieve", root / "m.lw", query, "--gallery", root / "pictures" / "test", *words)
    white = json.loads(out)["queries"][0]["matches"]
    assert [Path(match["file"]).parent.name for match in white] == ["blob 2"] * 3
    assert [match["score"] for match in white] != [match["score"] for match in matches]


def test_index_is_kept_up_to_date(run: Any, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, index, query = tmp_path / "g", tmp_path / "new" / "g.safetensors", some(root, 1)[0]
    folder.mkdir()
    for i in range(4):
        (folder / f"{i}.png").write_bytes(some(root, 1)[i + 1].read_bytes())
    (folder / "broken.png").write_text("no picture")

    def ask(source: Path, *words: object) -> list[str]:
        code, out, _ = run("retrieve", root / "m.lw", query, "--gallery", source, *words, "--json", "-k", 9)
        assert code == 0
        return sorted(Path(match["file"]).name for match in json.loads(out)["queries"][0]["matches"])

    assert ask(folder, "--index", index) == ["0.png", "1.png", "2.png", "3.png"]
    (folder / "0.png").unlink()
    (folder / "4.png").write_bytes(some(root, 2)[0].read_bytes())
    read = list[str]()

    def noted(files: list[str], shape: tuple[int, ...], *, strict: bool) -> Any:
        read.extend(files)
        return read_files(files, shape, strict=strict)

    monkeypatch.setattr("labelwise.tasks.gallery.read_files", noted)
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
        code, out, err = run("retrieve", root / "m.lw", query, "--gallery", source, *words, "--json", "-k", 9)
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
    assert "was kept without --approximate" in " ".join(err.split())


def test_wrong_use(run: Any, root: Path, tmp_path: Path) -> None:
    a = some(root, 0)[0]
    (tmp_path / "one.csv").write_text("a.png\n")
    (tmp_path / "empty.csv").write_text("\n")
    (tmp_path / "nothing").mkdir()
    for words, code, message in (
        (("verify", root / "m.lw", a), 2, "Give two pictures"),
        (("verify", root / "m.lw", a, a, "--pairs", tmp_path / "one.csv"), 2, "not both"),
        (("verify", root / "m.lw", "--pairs", tmp_path / "one.csv"), 1, "must name two pictures"),
        (("verify", root / "m.lw", "--pairs", tmp_path / "empty.csv"), 1, "holds no pair"),
        (("verify", root / "m.lw", "--pairs", tmp_path / "nowhere.csv"), 1, "Cannot read the table"),
        (("verify", root / "m.lw", a, tmp_path / "nowhere.png"), 1, "nowhere.png"),
        (("retrieve", root / "m.lw", a, "--gallery", tmp_path / "nothing"), 1, "No picture found"),
        (("retrieve", root / "m.lw", a, "--gallery", tmp_path / "g.file"), 1, "Cannot read g.file"),
        (("retrieve", root / "m.lw", a, "--gallery", tmp_path / "g", "--index", tmp_path / "i"), 2, "is no folder"),
    ):
        got, out, err = run(*words)
        assert (got, out) == (code, "")
        assert message in " ".join(err.split())


def test_evaluate_adds_pairs_where_a_similarity_was_learnt(run: Any, root: Path) -> None:
    lw.save(trained("prototype"), root / "p.lw")
    code, out, _ = run("evaluate", root / "p.lw", root / "pictures")
    assert code == 0
    assert "pairs of 40 pictures, by how alike they are" in out
    assert {"similarity", "cosine", "sum", "EER", "R@16"} <= set(out.split())
    found = json.loads(run("evaluate", root / "p.lw", root / "pictures", "--json")[1])
    split = lw.data.folder(root / "pictures", size=8).split("test")
    expected = evaluate_pairs(Tested.of(trained("prototype"), split))
    assert found["pairs"]["verification"]["sum"]["eer"] == pytest.approx(expected.verification["sum"].eer)
    assert found["pairs"]["retrieval"]["cosine"]["recall"]["1"] == expected.retrieval["cosine"].recall[1]
    assert "pairs" not in json.loads(run("evaluate", root / "m.lw", root / "pictures", "--json")[1])


def test_evaluate_on_labels_that_are_all_new(run: Any, root: Path) -> None:
    data = blobs(4, per_label=60)
    for part in ("train", "test"):
        split = data.split(part)
        for i, (image, target) in enumerate(zip(split.images, split.targets.tolist(), strict=True)):
            folder = root / "others" / part / f"thing {target}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / f"{i}.png")
    code, out, err = run("evaluate", root / "m.lw", root / "others")
    assert code == 0
    assert "knows none of these labels" in err
    assert "4 labels, 5 pictures of each" in out
    assert "pairs of 80 pictures" in out
    found = json.loads(run("evaluate", root / "m.lw", root / "others", "--json")[1])
    assert [(each["ways"], each["shots"]) for each in found["episodes"]] == [(4, 1), (4, 5)]
    assert found["episodes"][1]["accuracy"]["taught"]["mean"] > 0.8
    assert list(found["pairs"]["verification"]) == ["cosine", "whitened"]


def test_retrieve_refuses_a_score_before_it_encodes_the_gallery(run: Any, root: Path, tmp_path: Path) -> None:
    old = copy.deepcopy(trained("softmax"))
    old.model.unit_within.zero_()  # type: ignore[operator]
    lw.save(old, tmp_path / "old.lw")
    index = tmp_path / "g.safetensors"
    words = ("--gallery", root / "pictures" / "test", "--index", index, "--by", "whitened")
    code, out, err = run("retrieve", tmp_path / "old.lw", some(root, 2)[0], *words)
    assert (code, out) == (1, "")
    assert "Compare by cosine, or train again" in " ".join(err.split())
    assert not index.exists()
