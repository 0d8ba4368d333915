"""The command line with labels that have a description and no image."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import labelwise as lw
from labelwise.cli.fit import _tell_closed_form
from labelwise.fitting.choice import FitOptions
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.describe.word_files import read_vector
from labelwise.methods import METHODS
from labelwise.support.errors import LabelwiseError

COLOURS = {
    "red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "yellow": (1, 1, 0), "cyan": (0, 1, 1),
    "magenta": (1, 0, 1), "white": (1, 1, 1), "black": (0, 0, 0),
}  # fmt: skip
UNSEEN = ("magenta", "black")
QUICK = ["--device", "cpu", "--encoder", "none", "--size", 8, "--set", "epochs=2", "--set", "encoder.width=4"]


def write_squares(root: Path, texts: bool, vectors: bool) -> Path:
    """Coloured squares in folders, what is known of the colours, and a split where two have no picture in train."""
    made = np.random.default_rng(0)
    split = ["file,label,split"]
    for name, colour in COLOURS.items():
        (root / name).mkdir(parents=True)
        for i in range(4 if name in UNSEEN else 12):
            pixels = made.integers(0, 50, (8, 8, 3)) + 200 * np.array(colour)
            Image.fromarray(pixels.astype(np.uint8)).save(root / name / f"{i}.png")
            split.append(f"{name}/{i}.png,{name},{'test' if i < 4 else 'train'}")
    root.with_name(f"{root.name} split.csv").write_text("\n".join(split))
    rows = [
        {"label": name, **({"text": f"a {name} square"} if texts else {})}
        | (dict(zip(("r", "g", "b"), map(str, colour), strict=True)) if vectors else {})
        for name, colour in COLOURS.items()
    ]
    with (root / "labels.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return root


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_squares(tmp_path_factory.mktemp("data") / "squares", texts=True, vectors=False)


def split_of(data: Path) -> list[object]:
    return ["--splits", data.with_name(f"{data.name} split.csv")]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture
def by_text(run: Any, squares: Path, models: Path) -> Path:
    if not (models / "texts.lw").exists():
        code, out, err = run("fit", squares, *split_of(squares), "--out", models / "texts.lw", *QUICK)
        assert code == 0, err
        assert "Method clarel: sentences describe the labels without an image in train (2)." in " ".join(err.split())
        said = " ".join(out.split())
        assert "6 labels have images, 2 have only a description" in said
        assert "In a trial with 2 held-out labels" in said
        assert "harmonic mean" in said
        assert "calibration error" in said
    return models / "texts.lw"


@pytest.fixture
def by_vector(run: Any, models: Path) -> Path:
    if not (models / "vectors.lw").exists():
        data = write_squares(models / "coloured", texts=False, vectors=True)
        code, _, err = run("fit", data, *split_of(data), "--method", "eszsl", "--out", models / "vectors.lw", *QUICK)
        assert code == 0, err
    return models / "vectors.lw"


def test_every_method_is_in_the_help(run: Any) -> None:
    said = run("fit", "--help")[1]
    assert all(name in said for name in METHODS)


def test_settings_of_any_method_pass_until_one_is_chosen(run: Any, squares: Path, tmp_path: Path) -> None:
    code, _, err = run("fit", squares, *split_of(squares), "--out", tmp_path / "m", *QUICK, "--set", "negatives=3")
    assert code == 2
    assert "Method clarel" in err
    assert 'No setting "negatives"' in err
    code, _, err = run("fit", "nowhere", "--out", tmp_path / "m", "--set", "label_texts=0.2")
    assert code == 1
    assert "no such file" in err.lower()


def test_three_labels_are_too_few_to_hold_one_out(run: Any, squares: Path, tmp_path: Path) -> None:
    shutil.copytree(squares, tmp_path / "few")
    for name in ("green", "yellow", "cyan", *UNSEEN):  # labels.csv still describes them
        shutil.rmtree(tmp_path / "few" / name)
    code, out, err = run("fit", tmp_path / "few", "--out", tmp_path / "m.lw", *QUICK)
    assert code == 0, err
    said = " ".join(out.split())
    assert "3 labels have images, 5 have only a description" in said
    assert "Too few labels have images, so the accuracy" in said
    assert "calibration error" in said


def test_a_label_is_taught_by_sentences(run: Any, by_text: Path, squares: Path, tmp_path: Path) -> None:
    words = ["--text", "an orange square", "--text", "it is orange"]
    code, out, err = run("teach", by_text, "orange", *words, "--out", tmp_path / "o.lw")
    assert code == 0, err
    assert '"orange" learned from its description; 9 labels' in " ".join(out.split())
    found = json.loads(run("classify", tmp_path / "o.lw", squares / "red", "--json", "--top", 9)[1])
    assert "orange" in [entry["label"] for entry in found["predictions"][0]["top"]]
    assert "orange" in lw.load(tmp_path / "o.lw").unseen
    code, out, _ = run("teach", tmp_path / "o.lw", "pink", squares / "magenta", "--out", tmp_path / "p.lw")
    assert code == 0
    assert "learned from 4 images" in " ".join(out.split())


def test_a_label_is_taught_by_a_vector(run: Any, by_vector: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("label,r,g,b\nred,1,0,0\norange,1,0.5,0\n")
    for i, given in enumerate(("1,0.5,0", tmp_path / "labels.csv")):
        code, out, err = run("teach", by_vector, "orange", "--vector", given, "--out", tmp_path / f"{i}.lw")
        assert code == 0, err
        assert '"orange" learned from its attributes; 9 labels' in " ".join(out.split())
    one, other = (lw.load(tmp_path / f"{i}.lw") for i in range(2))
    assert np.array_equal(one.label_embeddings, other.label_embeddings)
    wanted = lw.teach(lw.load(by_vector), "orange", vector=[1, 0.5, 0])
    assert np.array_equal(one.label_embeddings, wanted.label_embeddings)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "Give one of images, sentences (--text) and attributes (--vector); given: none."),
        (["--text", "a", "--vector", "1"], 2, "given: --text, --vector."),
        (["--text", ""], 2, "by one or more sentences; given ''"),
        (["--text", "qqzzx"], 1, 'No word vector for any word of: "qqzzx"'),
        (["--vector", "1,0,0"], 2, "trained with texts of labels; given a vector"),
        (["--vector", "1,x"], 2, '"x" is not a number'),
        (["--vector", "none.csv"], 1, 'Cannot read the file "none.csv"'),
    ],
)
def test_what_cannot_be_taught(
    run: Any, by_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    got, out, err = run("teach", by_text, "new", "--out", "new.lw", *words)
    assert (got, out) == (code, "")
    assert message in " ".join(err.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content", ["0.5,1,-2\n", "0.5\n1\n-2\n", "0.5;1;-2", "Label,a,b,c\nowl,7,7,7\nnewt,0.5,1,-2\n", "\n0.5, 1 ,-2e0\n\n"]
)  # fmt: skip
def test_a_vector_from_a_file(tmp_path: Path, content: str) -> None:
    for name in ("v.csv", "v.txt"):
        (tmp_path / name).write_text(content)
    assert read_vector(str(tmp_path / "v.csv"), "newt") == [0.5, 1, -2]
    if not content.startswith("Label"):
        assert read_vector(str(tmp_path / "v.txt"), "newt") == [0.5, 1, -2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("1,2\n3,4\n", "has 2 rows of up to 2 fields"),
        ("1,,3\n", 'Row 1 of ".*v.csv": "" is not a number'),
        ("a,b\n", '"a" is not a number'),
        ("label,a\nnewts,1\n", 'has no row for "newt". Did you mean "newts"'),
        ("label,text\nnewt,small\n", "has no attribute columns"),
        ("label,a\nnewt,x\n", "a finite number was expected"),
    ],
)
def test_a_file_that_holds_no_vector(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "v.csv").write_text(content)
    with pytest.raises(LabelwiseError, match=message):
        read_vector(str(tmp_path / "v.csv"), "newt")


def test_evaluate_prints_the_zero_shot_protocol(run: Any, by_text: Path, squares: Path, tmp_path: Path) -> None:
    code, out, err = run(
        "evaluate", by_text, squares, *split_of(squares), "--json", "--out", tmp_path / "new" / "curve.png"
    )
    assert code == 0, err
    document = json.loads(out)
    found = document["zero_shot"]
    assert (found["seen_labels"], found["unseen_labels"], found["images"]) == (6, 2, 32)
    assert "curve" not in found
    whole = (6 * found["seen"] + 2 * found["unseen"]) / 8
    assert whole == pytest.approx(document["balanced_accuracy"]), "the gap of the protocol is the classifier's"
    with Image.open(tmp_path / "new" / "curve.png") as picture:
        assert picture.size == (600, 552)
    code, out, _ = run("evaluate", by_text, squares, *split_of(squares))
    said = " ".join(out.split())
    assert "zero-shot: 2 labels had no training images (unseen), 6 had (seen)" in said
    assert f"all labels, without the seen penalty {100 * found['unseen_without_gap']:.1f} %" in said
    assert f"choice among unseen labels {100 * found['zero_shot']:.1f} %" in said
    assert f"all gaps (area, AUSUC): {found['area']:.3f}" in said


def test_no_protocol_where_one_kind_of_label_is_tested(run: Any, by_text: Path, squares: Path, tmp_path: Path) -> None:
    code, out, _ = run("evaluate", by_text, squares, *split_of(squares), "--split", "train", "--json")
    assert code == 0
    assert "zero_shot" not in json.loads(out)
    code, _, err = run(
        "evaluate", by_text, squares, *split_of(squares), "--split", "train", "--out", tmp_path / "c.png"
    )
    assert code == 1
    assert "needs test images of labels with training images and of labels without" in " ".join(err.split())
    code, _, err = run("evaluate", by_text, squares, *split_of(squares), "--out", tmp_path / "c.txt")
    assert code == 2
    assert "takes a file of type .png, .svg, .pdf" in err
    assert list(tmp_path.iterdir()) == []


def test_check_says_which_methods_can_train(run: Any, squares: Path, tmp_path: Path) -> None:
    said = run("data", "check", squares, *split_of(squares))[1]
    assert "Methods that can train on this: clarel," in said
    assert (
        "Methods that can train on this, without the 2 labels that have no training images: discriminant, indicator,"
        in said
    )
    bare = shutil.copytree(squares, tmp_path / "bare")
    (bare / "labels.csv").unlink()
    assert (
        "Methods that would need descriptions (vectors or texts of every label): clarel, eszsl,"
        in run("data", "check", bare)[1]
    )
    assert json.loads(run("data", "check", bare, "--json")[1])["methods"]["clarel"] == ["descriptions"]


def test_a_table_of_images_with_sentences_and_no_labels_trains_clarel(run: Any, squares: Path, tmp_path: Path) -> None:
    rows = [f"{squares / name / f'{i}.png'},a {name} square" for name in COLOURS for i in range(4)]
    table = squares / "sentences.csv"
    table.write_text("path,text\n" + "\n".join(rows))
    quick = [option for option in QUICK if option not in ("--set", "encoder.width=4", "epochs=2")] + [
        "--set",
        "epochs=2",
    ]
    code, out, err = run("fit", table, "--out", tmp_path / "s.lw", *quick)
    assert code == 0, err
    assert "clarel" in out + err
    assert lw.load(tmp_path / "s.lw").unseen == set(COLOURS)
    code, out, err = run("fit", table, "--out", tmp_path / "t.lw", "--method", "clarel", *quick)
    assert code != 0
    assert "class_weight=0" in " ".join(err.split())


def test_what_labels_with_images_may_lose_is_said_before(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    targets = np.arange(60) % 3
    images = (4 * np.eye(3).repeat(4, 1)[targets] + rng.random((60, 12))).astype(np.float32)
    labels = Labels(names=("a", "b", "c", "d"), vectors=np.eye(4, dtype=np.float32))
    data = Dataset(name="drawn", labels=labels, splits={"train": Split(images=images, targets=targets)})
    _tell_closed_form(data, FitOptions(), "eszsl")
    said = " ".join(capsys.readouterr().err.split())
    assert "Method discriminant classifies 100.0 % of the labelled images correctly (leave-one-out)." in said
    assert said.endswith("To keep it: --method discriminant")
