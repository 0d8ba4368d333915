"""The verb report."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import labelwise as lw
from tests.cli.folders import write_folders
from tests.conftest import blobs, quick
from tests.contract.subjects import trained
from tests.reporting.pages import Page, check_alone


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pictures, two classifiers, and a flat folder of strange pictures."""
    place, data = tmp_path_factory.mktemp("report"), blobs()
    write_folders(place / "pictures", data)
    (place / "strange").mkdir()
    for i in range(3):
        Image.fromarray(np.full((8, 8, 3), 80 * i, np.uint8)).save(place / "strange" / f"{i}.png")
    log = place / "log.jsonl"
    lines = [{"stage": "head", "stage_number": 0, "epoch": e, "loss": 1 / (e + 1), "terms": {}} for e in range(3)]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"cut": ')
    lw.save(trained("softmax"), place / "a.lw", log=log)
    lw.save(trained("indicator"), place / "b.lw")
    return place


def test_report_writes_a_page(run: Any, root: Path) -> None:
    code, out, _ = run("report", root / "a.lw", root / "pictures", "--out", root / "new" / "r.html")
    assert code == 0
    assert out.startswith("80 images of pictures, test split; left out: none.\n")
    page = Page((root / "new" / "r.html").read_text())
    check_alone(page)
    assert "Training loss of stage head" in page.titles
    assert f"labelwise report {root / 'a.lw'} {root / 'pictures'} --out {root / 'new' / 'r.html'}" in page.words
    assert "labelwise fit" not in page.words, "it was not fitted in the shell"
    assert [path.name for path in (root / "new").iterdir()] == ["r.html"]


def test_the_command_that_fitted_is_shown_as_it_was_typed(run: Any, root: Path) -> None:
    words = (
        "fit", root / "pictures", "--out", root / "f.lw", "--method", "softmax", "--set", "epochs=1",
        "--set", "encoder.backbone=convnet", "--device", "cpu",
    )  # fmt: skip
    code, out, err = run(*words, "--json")
    assert code == 0, err
    assert "command" not in json.loads(out)
    assert run("report", root / "f.lw", root / "pictures", "--out", root / "f.html")[0] == 0
    page = Page((root / "f.html").read_text())
    assert " ".join(("labelwise", *map(str, words), "--json")) in page.words
    assert f"labelwise report {root / 'f.lw'} {root / 'pictures'} --out {root / 'f.html'}" in page.words


def test_report_says_the_same_as_json(run: Any, root: Path) -> None:
    out_html = root / "j.html"
    code, out, _ = run(
        "report", root / "a.lw", root / "pictures", "--out", out_html, "--compare", root / "b.lw",
        "--unknown", root / "strange", "--json",
    )  # fmt: skip
    assert code == 0
    found = json.loads(out)
    evaluated = json.loads(run("evaluate", root / "a.lw", root / "pictures", "--json")[1])
    assert found["closed"]["accuracy"] == evaluated["accuracy"]
    assert found["closed"]["ece"] == pytest.approx(evaluated["ece"], abs=1e-6)
    assert found["model"] == "a.lw"
    assert found["compare"][0]["model"] == found["paired"][0]["model"] == "b.lw"
    assert "unknown images (3)" in Page(out_html.read_text()).words


def test_classifiers_of_one_name_are_told_apart(run: Any, root: Path) -> None:
    (root / "other").mkdir(exist_ok=True)
    lw.save(trained("indicator"), root / "other" / "a.lw", overwrite=True)
    args = ("report", root / "a.lw", root / "pictures", "--out", root / "n.html", "--compare", root / "other" / "a.lw")
    code, out, _ = run(*args, "--json")
    assert code == 0
    assert [json.loads(out)["model"], json.loads(out)["compare"][0]["model"]] == [
        str(root / "a.lw"),
        str(root / "other" / "a.lw"),
    ]


def test_report_on_data_that_do_not_fit(run: Any, root: Path) -> None:
    code, _, err = run("report", root / "a.lw", "digits", "--out", root / "x.html")
    assert code == 1
    assert "does not know these labels" in err
    code, _, err = run("report", root / "a.lw", root / "pictures", "--out", root / "x.html", "--split", "nowhere")
    assert code == 2
    assert "'nowhere' is not one of 'train', 'val', 'test', 'all'" in " ".join(err.replace("│", " ").split())
    code, _, err = run("report", root / "a.lw", root / "pictures", "--out", root / "x.pdf")
    assert code == 2
    assert "takes an .html file" in err
    code, _, err = run("report", root / "a.lw", root / "pictures", "--out", root / "x.html", "--compare", root / "a.lw")
    assert code == 2
    assert "takes other classifiers" in err
    code, _, err = run("report", root / "none.lw", root / "pictures", "--out", root / "x.html")
    assert code == 1
    assert "No saved classifier" in err
    assert not (root / "x.html").exists()


def test_a_leak_is_told(run: Any, root: Path) -> None:
    lw.save(lw.fit(lw.data.load(root / "pictures", size=8), quick("softmax", 1), lw.Run(device="cpu")), root / "l.lw")
    code, _, err = run("report", root / "l.lw", root / "pictures", "--out", root / "l.html", "--split", "train")
    assert code == 0
    assert "used to train or calibrate" in err


def test_promises_are_measured_in_the_shell_and_on_the_page(run: Any, root: Path) -> None:
    asked = ("--max-error", "0.1", "--coverage", "0.9")
    code, out, _ = run("evaluate", root / "a.lw", root / "pictures", *asked)
    assert code == 0
    assert "at most 10 % wrong" in out
    assert "90 % of lists hold the label" in out
    page_file = root / "promises.html"
    found = json.loads(run("report", root / "a.lw", root / "pictures", "--out", page_file, *asked, "--json")[1])
    assert [one["promise"] for one in found["promises"]["errors"]] == [0.02, 0.05, 0.1, 0.2]
    page = Page(page_file.read_text())
    check_alone(page)
    assert "Share of wrong answers: measured over promised" in page.titles
    assert "at most 10 % wrong" in page.words
    code, _, err = run("evaluate", root / "a.lw", root / "pictures", "--max-error", "0")
    assert code == 0
    assert "promises: The share of wrong answers must be between 0 and 1; given 0." in err
