"""The everyday commands in an environment without torch: ``make plain`` installs one and runs this file there.

Where torch is installed these tests hide it from child processes, so that they say the same.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

HIDE = "import sys; sys.modules['torch'] = None; "
COLOURS = {"red": (200, 30, 30), "green": (30, 190, 40), "blue": (40, 40, 210)}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("my photos"), np.random.default_rng(0)
    for label, colour in COLOURS.items():
        (folder / label).mkdir()
        for i in range(8):
            pixels = np.clip(np.array(colour) + rng.normal(0, 30, (40, 48, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{i}.png")
    return folder


def run(code: str, folder: Path) -> str:
    """Return what a child process without torch prints."""
    environment = {**os.environ, "LABELWISE_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", HIDE + code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def shell(folder: Path, *words: object) -> str:
    return run(f"sys.argv = ['labelwise', *{list(map(str, words))!r}]; from labelwise.cli import main; main()", folder)


@pytest.fixture(scope="module")
def model(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "colours.lw"
    shell(photos.parent, "fit", photos, "--out", folder)
    return folder


def test_the_shell_fits_and_answers(photos: Path, model: Path, tmp_path: Path) -> None:
    image = photos / "red" / "0.png"
    answers = json.loads(shell(photos.parent, "classify", model, image, "--json"))
    assert "red" in json.dumps(answers)
    assert "yes" in shell(photos.parent, "ask", model, image, "red").lower()
    figures = json.loads(shell(photos.parent, "evaluate", model, photos, "--json"))
    assert figures["accuracy"] > 0.5
    assert json.loads(shell(photos.parent, "evaluate", model, photos, "--folds", "2", "--json"))["accuracy"] > 0.5
    shell(
        photos.parent,
        "teach",
        model,
        "scarlet",
        *sorted((photos / "red").glob("*.png"))[:3],
        "--out",
        tmp_path / "t.lw",
    )
    assert "scarlet" in (tmp_path / "t.lw" / "classifier.json").read_text()


def test_python_answers(photos: Path, model: Path) -> None:
    code = (
        f"import labelwise as lw; c = lw.load({str(model)!r}); images = [{str(photos / 'blue' / '0.png')!r}]; "
        "print(lw.classify(c, images)[0].label, lw.explain(c, images[0]).heat.ndim, len(lw.verify(c, images, images)))"
    )
    assert run(code, photos.parent).split() == ["blue", "2", "1"]


def test_training_says_what_to_install(photos: Path, tmp_path: Path) -> None:
    words = ["labelwise", "fit", str(photos), "--method", "softmax", "--out", str(tmp_path / "s.lw")]
    code = f"{HIDE}sys.argv = {words!r}; from labelwise.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "labelwise[train]" in done.stderr
    assert "Traceback" not in done.stderr


def test_data_are_checked_grouped_and_encoded(photos: Path, model: Path, tmp_path: Path) -> None:
    shell(photos.parent, "data", "check", photos)
    shell(photos.parent, "data", "encode", photos, "--out", tmp_path / "a.npz")
    shell(photos.parent, "data", "encode", photos, "--encoder", model, "--out", tmp_path / "b.npz")
    for name in "ab":
        assert np.load(tmp_path / f"{name}.npz")["features"].shape == (24, 1280)
    shell(photos.parent, "group", photos, "--out", tmp_path / "groups", "--count", 3)
    assert len([each for each in (tmp_path / "groups").iterdir() if each.is_dir()]) == 3
