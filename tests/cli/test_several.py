"""The command line where several labels may be true of one picture, from a table that says so."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from labelwise.cli.output import calibration_line
from tests.cli.test_fit import QUICK
from tests.conftest import squares
from tests.pixels_of import px


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of pictures as a user writes it."""
    root, data = tmp_path_factory.mktemp("squares"), squares(150)
    rows = ["path,labels,split"]
    for name, part in data.splits.items():
        for i, (image, words) in enumerate(zip(px(part), part.words(data.labels.names), strict=True)):
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(root / f"{name}{i}.png")
            rows.append(f"{name}{i}.png,{words},{name}")
    (root / "squares.csv").write_text("\n".join(rows) + "\n")
    return root / "squares.csv"


@pytest.fixture(scope="module")
def model(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import labelwise as lw
    from tests.conftest import quick

    path = tmp_path_factory.mktemp("models") / "squares.lw"
    lw.save(lw.fit(lw.data.load(table, size=8), quick("indicator", 60), lw.Run(device="cpu")), path)
    return path


def test_fit_says_which_methods_can(run: Any, table: Path, tmp_path: Path) -> None:
    words = ["fit", table, "--size", 8, "--set", "epochs=1", "--device", "cpu", "--encoder", "none", *QUICK]
    code, out, err = run(*words, "--out", tmp_path / "m.lw")
    assert code == 0
    assert "Method indicator: several labels may be true of one image. Alternatives: multilabel." in err
    assert "Validation images: mean average precision" in out
    code, _, err = run(*words, "--out", tmp_path / "n.lw", "--method", "softmax")
    assert code == 2
    assert "Methods that can: indicator, multilabel" in " ".join(err.split())


def test_evaluate_prints_each_label(run: Any, model: Path, table: Path) -> None:
    code, out, _ = run("evaluate", model, table)
    assert code == 0
    for words in (
        "mean average precision",
        "micro F1",
        "macro F1",
        "every answer right",
        "calibration error of yes and no (ECE)",
        "red",
        "green",
        "blue",
    ):
        assert words in out
    code, out, _ = run("evaluate", model, table, "--json")
    found = json.loads(out)
    assert found["mean_average_precision"] > 0.8
    assert set(found["average_precision"]) == {"red", "green", "blue"}
    code, _, err = run("evaluate", model, table, "--out", "c.png")
    assert code == 1
    assert "There is no curve" in err


def test_classify_lists_what_is_true_and_ask_answers(run: Any, model: Path, table: Path) -> None:
    data = squares(150).split("test")
    files = [table.parent / f"test{i}.png" for i in range(len(data))]
    _, out, _ = run("classify", model, *files, "--json", "--top", 1)
    found = json.loads(out)["predictions"]
    assert {len(p["labels"]) for p in found} >= {0, 1, 2}
    assert all(len(p["top"]) == 1 for p in found)
    two = next(i for i, p in enumerate(found) if len(p["labels"]) == 2)
    none = next(i for i, p in enumerate(found) if p["label"] == "none")
    _, out, _ = run("classify", model, files[two], files[none])
    assert all(name in out for name in found[two]["labels"])
    assert f"none; most like {found[none]['top'][0]['label']}" in " ".join(out.split())
    for name in ("red", "green", "blue"):
        _, out, _ = run("ask", model, files[two], name, "--json")
        assert json.loads(out)["yes"] == (name in found[two]["labels"])


def test_the_other_verbs_work(run: Any, model: Path, table: Path, tmp_path: Path) -> None:
    code, out, _ = run("calibrate", model, table, "--out", tmp_path / "c.lw")
    assert code == 0
    assert "calibration error" in out
    code, out, _ = run("data", "check", table, "--size", 8, "--out", tmp_path / "s.png")
    assert code == 0
    assert "Several labels may be true of one image" in out
    assert "Methods that would need images of one label each" in out
    code, out, _ = run("analyse", model, table, "--what", "calibration", "--json")
    assert json.loads(out)["every"]["pairs"] == 150
    code, _, _ = run("teach", model, "violet", table.parent / "test0.png", "--out", tmp_path / "t.lw")
    assert code == 0
    code, out, _ = run("evaluate", tmp_path / "t.lw", table, "--json")
    assert json.loads(out)["asked"] == 3


def test_the_error_told_is_that_of_the_choice_or_of_the_answers() -> None:
    one = {"ece_before": 0.2, "ece_after": 0.1, "answer_ece_before": 0.4, "answer_ece_after": 0.3}
    assert (
        calibration_line(one)
        == "Probabilities are off by 10.0 % on average (calibration error, ECE); before calibration by 20.0 %"
    )
    several = calibration_line({"answer_ece_before": 0.4, "answer_ece_after": 0.3})
    assert several.startswith("Probabilities of a yes are off by 30.0 %")
    assert several.endswith("before calibration by 40.0 %")
