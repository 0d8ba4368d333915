"""Packages add encoders and verbs by an entry point; the example package is installed as pip does it: a module and its metadata."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import labelwise as lw
from labelwise.support.errors import LabelwiseWarning
from labelwise.support.plugins import PLUGINS, plugins

EXAMPLE = Path(__file__).parent / "examples" / "plugin"
MODULE = "labelwise_colours"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install the example package in a folder of its own."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    site = tmp_path / "site packages"
    about = site / f"{MODULE}-1.0.dist-info"
    about.mkdir(parents=True)
    shutil.copy(EXAMPLE / f"{MODULE}.py", site)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    (about / "entry_points.txt").write_text(
        "".join(f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in some.items()) for group, some in groups)
    )
    monkeypatch.syspath_prepend(site)
    plugins.cache_clear()
    yield site
    sys.modules.pop(MODULE, None)
    plugins.cache_clear()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for label, colour in {"red": (200, 30, 30), "green": (30, 190, 40)}.items():
        folder = tmp_path / "my photos" / label
        folder.mkdir(parents=True)
        for i in range(6):
            pixels = np.clip(np.array(colour) + rng.normal(0, 30, (32, 32, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{i}.png")
    return tmp_path / "my photos"


def test_the_example_is_short() -> None:
    assert len((EXAMPLE / f"{MODULE}.py").read_text().splitlines()) <= 60


def test_an_encoder_of_a_package_fits_answers_and_is_found_again(installed: Path, photos: Path) -> None:
    classifier = lw.fit(photos, encoder="colours")
    classifier.save(photos.parent / "colours.lw")
    again = lw.load(photos.parent / "colours.lw")
    images = [photos / "red" / "0.png", photos / "green" / "5.png"]
    assert [each.label for each in again.classify(images)] == ["red", "green"]
    np.testing.assert_array_equal(again.predict_proba(images), classifier.predict_proba(images))


def test_what_a_module_leaves_out_it_does_not_offer(installed: Path) -> None:
    mine = plugins()[-1]
    assert len(plugins()) == len(PLUGINS) + 1
    assert list(mine.VERBS) == ["More"]
    assert (list(mine.names()), mine.reads(installed), mine.rows(None), dict(mine.METHODS)) == ([], False, [], {})


def test_a_verb_of_a_package_is_a_command(installed: Path, photos: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "labelwise", "--json", "colours", str(photos / "red" / "0.png")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["rgb"] == [192, 0, 0], done.stderr


def test_a_package_that_cannot_be_imported_is_left_out(installed: Path) -> None:
    (installed / f"{MODULE}.py").write_text("import a_module_that_is_not_there")
    with pytest.warns(LabelwiseWarning, match='"colours".*a_module_that_is_not_there'):
        assert len(plugins()) == len(PLUGINS)
