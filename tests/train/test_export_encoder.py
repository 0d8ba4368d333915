"""What was trained, as an ONNX file: the same features to 1e-4 without torch."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from labelwise.encoders.onnx import OnnxEncoder, card_file, open_onnx
from labelwise.images.view import View
from labelwise.support.errors import LabelwiseError, UnsupportedError
from labelwise.train import export_encoder as module
from labelwise.train.export_encoder import export_encoder
from labelwise.train.networks.backbones import build_backbone
from labelwise.train.networks.image_encoder import ImageEncoder
from labelwise.train.networks.networks import ConvNet
from labelwise.train.networks.torch_encoder import TorchEncoder
from tests.encoders.samples import pixels

pytestmark = pytest.mark.skipif(find_spec("onnxscript") is None, reason="onnxscript is not installed")


def network(name: str, shape: tuple[int, ...], view: View, code_size: int | None = None) -> ImageEncoder:
    torch.manual_seed(0)
    encoder = ImageEncoder(build_backbone(name, view.seen(shape), 8), shape, code_size, view=view)
    encoder(torch.rand(16, *shape))
    return encoder.eval()


def save(encoder: OnnxEncoder, folder: Path) -> Path:
    (folder / "encoder.onnx").write_bytes(encoder.content)
    (folder / "encoder.json").write_bytes(card_file(encoder.card))
    return folder / "encoder.onnx"


CASES = [
    ("convnet", (1, 16, 16), View(), None),
    ("convnet", (3, 24, 20), View(crop=16, mirror=True), 5),
    ("resnet18", (3, 16, 16), View(size=24), None),
]


@pytest.mark.parametrize(("name", "shape", "view", "code_size"), CASES)
def test_features_and_maps_are_those_of_torch(
    name: str, shape: tuple[int, ...], view: View, code_size: int | None, tmp_path: Path
) -> None:
    trained, images = network(name, shape, view, code_size), pixels(5, shape)
    exported = export_encoder(trained)
    saved = open_onnx(save(exported, tmp_path))
    assert saved.id == exported.id
    for found, wanted in (
        (saved(images), TorchEncoder(trained)(images)),
        (saved.locate(images)[1], TorchEncoder(trained).locate(images)[1]),
    ):
        assert np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max()
    assert saved.width == trained.code_size


def test_a_network_whose_features_are_no_pooled_maps_has_none() -> None:
    assert not export_encoder(network("lenet", (3, 16, 16), View())).has_maps


def test_it_is_run_without_torch(tmp_path: Path) -> None:
    file = save(export_encoder(network("convnet", (3, 16, 16), View(size=12))), tmp_path)
    words = (
        f"import sys; import numpy as np; from labelwise.encoders.onnx import open_onnx; encoder = open_onnx({str(file)!r});"
        "print(encoder(np.zeros((2, 3, 16, 16), np.uint8)).shape); assert 'torch' not in sys.modules"
    )
    run = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, env={**os.environ})
    assert (run.stdout, run.stderr) == ("(2, 64)\n", "")


def test_what_cannot_be_written_or_comes_out_wrong_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Choosing(ConvNet):
        def maps(self, x: torch.Tensor) -> torch.Tensor:
            return super().maps(x) * (2 if x.sum() > 0 else 1)

    with pytest.raises(UnsupportedError, match="Choosing cannot be written as an ONNX graph"):
        export_encoder(ImageEncoder(Choosing((3, 16, 16), 4), (3, 16, 16)))
    monkeypatch.setattr(module, "TOLERANCE", -1.0)
    with pytest.raises(LabelwiseError, match="differs from torch by"):
        export_encoder(network("convnet", (1, 8, 8), View()))
