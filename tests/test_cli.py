"""The command line as a user meets it: a process of its own only where that matters, otherwise in this one."""

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from labelwise import cli
from labelwise.cli.output import show_warnings
from labelwise.errors import LabelwiseWarning
from tests.conftest import blobs

Run = tuple[int, str, str]
QUICK = ["--set", "encoder.width=8", "--set", "augment.flip=false", "--set", "optimizer.lr=0.05", "--set", "batch=16"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def call(*words: object) -> Run:
        monkeypatch.setattr(sys, "argv", ["labelwise", *map(str, words)])
        capsys.readouterr()
        code: object = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code
        printed = capsys.readouterr()
        return (code if isinstance(code, int) else 0), printed.out, printed.err

    return call


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pictures as a user has it: one sub-folder per label, and one file that is no picture."""
    root = tmp_path_factory.mktemp("pictures")
    data = blobs(per_label=30)
    for name, split in data.splits.items():
        for i, (image, target) in enumerate(zip(split.images, split.targets.tolist(), strict=True)):
            place = root / name / f"blob {target}"
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(place / f"{i}.png")
    (root / "train" / "blob 0" / "broken.jpg").write_text("not a picture")
    return root


@pytest.fixture(scope="session")
def model(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "blobs.lw"
    words = [
        "fit",
        pictures,
        "--out",
        path,
        "--size",
        8,
        "--epochs",
        60,
        "--device",
        "cpu",
        "--encoder",
        "none",
        *QUICK,
    ]
    subprocess.run([sys.executable, "-m", "labelwise", *map(str, words)], check=True)
    return path


def test_warnings_of_the_library_are_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """For the user, without the line of code that they come from."""
    with show_warnings():
        warnings.warn("A checkpoint is damaged.", LabelwiseWarning, stacklevel=1)
    assert capsys.readouterr().err == "Warning: A checkpoint is damaged.\n"


def test_help_is_quick_because_torch_is_not_imported() -> None:
    code = "import sys; sys.argv = ['labelwise', '--help']\nfrom labelwise.cli import main\ntry: main()\nexcept SystemExit: pass\nassert not {'torch', 'numpy', 'jinja2'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for verb in (
        "fit",
        "classify",
        "ask",
        "teach",
        "forget",
        "outliers",
        "explain",
        "evaluate",
        "calibrate",
        "rank",
        "verify",
        "retrieve",
        "imagine",
        "report",
        "demo",
    ):
        assert verb in done.stdout


def test_fit_wrote_one_folder_and_listed_what_it_skipped(model: Path) -> None:
    assert sorted(p.name for p in model.parent.iterdir()) == ["blobs.lw"]
    log = [json.loads(line) for line in (model / "log.jsonl").read_text().splitlines()]
    assert "broken.jpg" in log[0]["skipped"]
    assert "not a picture" in log[0]["reason"]
    assert [entry["epoch"] for entry in log[1:]] == list(range(60))


def test_fit_strict_refuses_unreadable_pictures(run: Any, pictures: Path, tmp_path: Path) -> None:
    code, out, err = run("fit", pictures, "--out", tmp_path / "m", "--size", 8, "--strict")
    assert (code, out) == (1, "")
    assert "broken.jpg" in err


def test_fit_keeps_what_is_there(run: Any, pictures: Path, model: Path) -> None:
    code, _, err = run("fit", pictures, "--out", model, "--size", 8)
    assert code == 2
    assert "--overwrite" in err


def test_unknown_setting_names_the_nearest(run: Any, pictures: Path, tmp_path: Path) -> None:
    code, out, err = run("fit", pictures, "--out", tmp_path / "m", "--set", "negatvies=3")
    assert (code, out) == (2, "")
    assert 'Did you mean "negatives"?' in err
    assert run("fit", pictures, "--out", tmp_path / "m", "--method", "indicater")[0] == 2


def test_settings_are_listed(run: Any, tmp_path: Path) -> None:
    code, out, _ = run("fit", "finches", "--out", tmp_path / "m", "--set", "help")
    assert code == 0
    assert "optimizer.lr" in out


def test_classify(run: Any, model: Path, pictures: Path) -> None:
    folder = pictures / "test" / "blob 2"
    code, out, _ = run("classify", model, folder, "--json", "--top", 2)
    assert code == 0
    document = json.loads(out)
    assert len(document["predictions"]) == len(list(folder.iterdir()))
    assert np.mean([p["top"][0]["label"] == "blob 2" for p in document["predictions"]]) > 0.8
    assert all(len(p["top"]) == 2 for p in document["predictions"])
    code, out, _ = run("classify", model, folder)
    assert code == 0
    assert "blob 2" in out


def test_classify_skips_or_refuses_what_it_cannot_read(run: Any, model: Path, pictures: Path) -> None:
    broken, good = pictures / "train" / "blob 0" / "broken.jpg", pictures / "test" / "blob 1"
    code, out, err = run("classify", model, broken, good, "--json")
    assert code == 0
    assert len(json.loads(out)["skipped"]) == 1
    assert "broken.jpg" in err
    assert run("classify", model, broken, good, "--strict")[0] == 1
    assert run("classify", model, broken)[0] == 1


def test_ask(run: Any, model: Path, pictures: Path) -> None:
    image = next((pictures / "test" / "blob 3").iterdir())
    answers = {label: json.loads(run("ask", model, image, label, "--json")[1]) for label in ("blob 3", "blob 1")}
    assert answers["blob 3"]["probability"] > answers["blob 1"]["probability"]
    code, out, err = run("ask", model, image, "okapi")
    assert (code, out) == (2, "")
    assert 'No label "okapi". ' in err
    assert "teach" in err


def test_teach_classify_forget(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    taught, left = tmp_path / "taught.lw", tmp_path / "left.lw"
    examples = sorted((pictures / "val" / "blob 0").iterdir())
    code, out, _ = run("teach", model, "a new blob", "--examples", *examples, "--out", taught)
    assert code == 0
    assert f"learnt from {len(examples)} pictures" in " ".join(out.split())
    found = json.loads(run("classify", taught, pictures / "test" / "blob 0", "--json", "--top", 5)[1])
    assert "a new blob" in [entry["label"] for entry in found["predictions"][0]["top"]]
    assert run("forget", taught, "a new blob", "--out", left)[0] == 0
    code, _, err = run("teach", model, "x", "--examples", tmp_path / "nowhere", "--out", tmp_path / "y")
    assert code == 1
    assert "no such file" in err.lower()
    assert not (tmp_path / "y").exists()


def test_outliers(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    strange = tmp_path / "strange"
    strange.mkdir()
    for i in range(3):
        stripes = np.zeros((16, 16, 3), np.uint8)
        stripes[i::3] = 255
        Image.fromarray(stripes).save(strange / f"{i}.png")
    code, out, _ = run("outliers", model, strange, "--known", pictures, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["figures"]["auroc"] > 0.9
    assert [one["score"] for one in document["outliers"]] == sorted(
        (o["score"] for o in document["outliers"]), reverse=True
    )


def test_explain(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    image = next((pictures / "test" / "blob 0").iterdir())
    code, out, _ = run("explain", model, image, "blob 0", "--out", tmp_path / "new" / "why.png", "--json")
    assert code == 0
    assert np.asarray(json.loads(out)["heat"]).shape == (8, 8)
    with Image.open(tmp_path / "new" / "why.png") as picture:
        assert picture.size == (384, 384)
    assert run("explain", model, image, "--out", tmp_path / "why.txt")[0] == 2


def test_evaluate_and_leak_warning(run: Any, model: Path, pictures: Path) -> None:
    code, out, err = run("evaluate", model, pictures, "--json")
    figures = json.loads(out)
    assert code == 0
    assert figures["accuracy"] > 0.8
    assert figures["leaked"] == 0
    assert "Warning" not in err
    code, out, err = run("evaluate", model, pictures, "--split", "train")
    assert code == 0
    assert "Warning: 100.0 % of these images were used to train" in " ".join(err.split())
    assert run("evaluate", model, pictures, "--unknown", "digits", "--json")[0] == 0


def test_calibrate(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    code, out, _ = run("calibrate", model, pictures, "--out", tmp_path / "c.lw", "--keep", "0.8")
    assert code == 0
    assert "calibration error" in " ".join(out.split())
    kept = [
        json.loads(run("evaluate", m, pictures, "--split", "val", "--json")[1])["kept"]
        for m in (model, tmp_path / "c.lw")
    ]
    assert kept[1] == pytest.approx(0.8, abs=0.03)
    assert kept[0] > kept[1]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["fit", "nowhere", "--out", "m"], 1, "no such file or folder"),
        (["fit", "finchs", "--out", "m"], 1, 'Did you mean "finches"?'),
        (["evaluate", "nowhere.lw", "finches"], 1, "No saved classifier at nowhere.lw"),
        (["fit", "finches"], 2, "--out"),
        (["fly"], 2, "No such command"),
        (["fit", "finches", "--out", "m", "--device", "tpu"], 2, "auto, cpu or cuda"),
    ],
)
def test_wrong_use(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    got, out, err = run(*words)
    assert got == code
    assert message in " ".join(err.split())
    assert out == ""
    assert not (tmp_path / "m").exists()
