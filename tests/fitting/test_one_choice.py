"""The shell and Python make the same classifier of the same data: one function decides what is left open."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import labelwise as lw
from labelwise.core.classifier import MethodRecord
from labelwise.encoders.efficientnet import VARIANTS
from labelwise.fitting.closed_form import takes
from labelwise.images.dataset import Dataset
from labelwise.train.method import Run
from labelwise.train.networks.backbone import Backbone
from labelwise.train.networks.encoder import PRETRAINED, Encoder
from tests.changed import description
from tests.cli.conftest import run as run
from tests.conftest import blobs, squares
from tests.pixels_of import px

SIDE = 16  # of the pictures that the stand-in for the pretrained network takes


class TinyPretrained(Backbone):
    """A stand-in for the pretrained network: one convolution with fixed weights."""

    published = ((0.5,) * 3, (0.5,) * 3)
    comes_trained = True
    size = SIDE

    def __init__(self) -> None:
        super().__init__(8)
        self.convolution = nn.Conv2d(3, 8, 3, 2)

    def maps(self, x: Tensor) -> Tensor:
        return self.convolution(x).relu()  # type: ignore[no-any-return]

    def load_published(self) -> None:
        made = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            parameter.data.normal_(generator=made)


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the stand-in in the place of the pretrained network; torch runs it, so no closed form without torch takes pictures."""
    monkeypatch.setattr("labelwise.train.networks.backbones.EfficientNetLite0", TinyPretrained)
    monkeypatch.setitem(VARIANTS, PRETRAINED, replace(VARIANTS[PRETRAINED], size=SIDE))
    monkeypatch.setattr(
        "labelwise.fitting.fit.takes", lambda method, data, run: data.features and takes(method, data, run)
    )


@pytest.fixture(params=["pretrained encoder installed", "not installed"])
def installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    there: bool = request.param == "pretrained encoder installed"
    monkeypatch.setattr("labelwise.encoders.choose.is_installed", lambda name: there)
    stand_in(monkeypatch)
    monkeypatch.setattr("labelwise.train.loop._out_of_patience", lambda _, now: now.epoch >= 2)  # quick, in both ways
    return there


def write_pictures(root: Path, data: Dataset, split: str = "train") -> list[Path]:
    """Write the pictures of a split into a folder for each label, twice as large as they are, and return where."""
    files = []
    for i, (image, target) in enumerate(zip(px(data.split(split)), data.split(split).targets.tolist(), strict=True)):
        file = root / data.labels.names[target] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).resize((20, 16)).save(file)
        files.append(file)
    return files


def folder_of(root: Path, known: str) -> Path:
    """A folder of pictures with a space in its name, and perhaps a file that describes its labels and one more."""
    place = root / "my pictures"
    write_pictures(place, blobs(5, per_label=18))
    if known:
        rows = {"text": "a {} square", "red,green": "0.{},0.7"}
        lines = [f"blob {i},{rows[known].format(i)}" for i in range(6)]
        (place / "labels.csv").write_text("\n".join([f"label,{known}", *lines]))
    return place


def table_of(root: Path) -> Path:
    """A table of pictures, of each of which several labels may be true."""
    data = squares(60)
    words = data.split("train").words(data.labels.names)
    rows = []
    for i, (image, labels) in enumerate(zip(px(data.split("train")), words, strict=True)):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(root / f"{i}.png")
        rows.append(f'{i}.png,"{labels}"')
    file = root / "table.csv"
    file.write_text("\n".join(["path,labels", *rows]))
    return file


def saved(folder: Path) -> dict[str, Any]:
    """What a saved classifier says of itself, apart from times and the command; the checksum of its weights is part of it."""
    about = description(folder)
    about["summary"]["training"].pop("seconds")
    about["summary"].pop("command", None)  # only the shell has one
    return about


CASES = {
    "labels": ("folder", "", "indicator"),
    "sentences": ("folder", "text", "clarel"),
    "vectors": ("folder", "red,green", "izf"),
    "several": ("table", "", "indicator"),
}


@pytest.mark.parametrize("case", CASES)
def test_shell_and_python_agree(run: Any, installed: bool, case: str, tmp_path: Path) -> None:
    kind, known, method = CASES[case]
    source = folder_of(tmp_path, known) if kind == "folder" else table_of(tmp_path)
    code, _, err = run("fit", source, "--out", tmp_path / "shell.lw", "--device", "cpu")
    assert code == 0, err
    lw.save(lw.fit(getattr(lw.data, kind)(source), run=Run(device="cpu")), tmp_path / "python.lw")
    shell, python = saved(tmp_path / "shell.lw"), saved(tmp_path / "python.lw")
    assert shell == python
    assert python["method"]["name"] == ("discriminant" if installed and case == "labels" else method)
    assert python["method"]["settings"]["encoder"]["frozen"] == installed
    assert python["encoder"]["shape"] == ([3, SIDE, SIDE] if installed else [3, 64, 64])


def test_an_explicit_method_is_what_is_trained(installed: bool, tmp_path: Path) -> None:
    data = lw.data.folder(folder_of(tmp_path, ""))
    found = lw.fit(data, lw.methods.Softmax(epochs=1), Run(device="cpu"))
    assert found.origin.method == MethodRecord.of(lw.methods.Softmax(epochs=1))
    assert found.shape == (3, 64, 64), "from scratch, whatever is installed"
    found = lw.fit(
        data, lw.methods.Softmax(epochs=1, encoder=Encoder(backbone="efficientnet_lite0")), Run(device="cpu")
    )
    assert found.shape == (3, SIDE, SIDE), "pictures are read as the encoder takes them"
    assert len(lw.classify(found, data.split("test").images)) == len(data.split("test"))


def test_a_side_that_was_asked_for_stays(run: Any, installed: bool, tmp_path: Path) -> None:
    source = folder_of(tmp_path, "")
    assert run("fit", source, "--out", tmp_path / "shell.lw", "--device", "cpu", "--size", 10)[0] == 0
    lw.save(lw.fit(lw.data.folder(source, size=10), run=Run(device="cpu")), tmp_path / "python.lw")
    assert saved(tmp_path / "shell.lw") == saved(tmp_path / "python.lw")
    assert saved(tmp_path / "shell.lw")["encoder"]["shape"] == [3, 10, 10]


def test_features_in_a_table_get_no_encoder(run: Any, installed: bool, tmp_path: Path) -> None:
    rows = [
        f"{label},{i % 7},{label == 'a'}".replace("True", "1").replace("False", "0")
        for i in range(20)
        for label in "ab"
    ]
    (tmp_path / "t.csv").write_text("\n".join(["label,f0,f1", *rows]))
    code, _, err = run("fit", tmp_path / "t.csv", "--out", tmp_path / "shell.lw", "--device", "cpu")
    assert code == 0, err
    lw.save(lw.fit(lw.data.table(tmp_path / "t.csv"), run=Run(device="cpu")), tmp_path / "python.lw")
    assert saved(tmp_path / "shell.lw") == saved(tmp_path / "python.lw")
    code, _, err = run("fit", tmp_path / "t.csv", "--out", tmp_path / "n.lw", "--size", 32)
    assert code == 2
    assert "--size 32 resizes images" in " ".join(err.split())
