"""The graph of EfficientNet-lite0 gives what the network gives, and is written without torch."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from labelwise.encoders.efficientnet import LITE0, Network, folded
from labelwise.encoders.registry import open_encoder
from labelwise.images.view import View
from labelwise.support.errors import StoreError
from labelwise.train.networks.encoder import Encoder

pytestmark = pytest.mark.skipif(LITE0.file() is None, reason="needs the package of weights")
SEEN = [
    ((3, 224, 224), View()),
    ((3, 64, 64), View()),  # made larger
    ((1, 300, 260), View(size=96)),  # grey, made smaller
    ((3, 128, 128), View(crop=0.875, size=112, mirror=True)),
]


@pytest.mark.parametrize(("shape", "view"), SEEN)
def test_features_are_those_of_the_network(shape: tuple[int, ...], view: View) -> None:
    smooth = np.linspace(0, 255, shape[2])[None, None] + np.zeros(shape)
    noise = np.random.default_rng(0).integers(0, 256, (2, *shape))
    images = np.concatenate([noise, smooth[None]]).astype(np.uint8)
    network = Encoder(backbone="efficientnet_lite0", frozen=True).build(shape, view).eval()
    with torch.no_grad():
        wanted = network.trunk(torch.from_numpy(images) / 255).numpy()
        maps = network.maps(torch.from_numpy(images) / 255).numpy()
    encoder = open_encoder(shape=shape, view=view)
    assert np.abs(encoder(images) - wanted).max() <= 1e-4 * np.abs(wanted).max()
    if not view.mirror:
        found = encoder.locate(images)[1]  # type: ignore[attr-defined]
        assert np.abs(found - maps).max() <= 1e-4 * np.abs(maps).max()


def test_maps_have_the_features_as_their_mean() -> None:
    encoder = open_encoder(shape=(3, 64, 64), view=View(size=64, mirror=True))
    images = np.random.default_rng(0).integers(0, 256, (3, 3, 64, 64), np.uint8)
    maps = encoder.locate(images)[1]  # type: ignore[attr-defined]
    np.testing.assert_allclose(maps.mean((2, 3)), encoder(images), atol=1e-5)
    assert encoder.width == 1280


def test_folding_is_a_convolution_and_then_a_batch_norm() -> None:
    torch.manual_seed(0)
    convolution, norm = torch.nn.Conv2d(3, 4, 3, bias=False), torch.nn.BatchNorm2d(4, eps=1e-3).eval()
    for values in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
        torch.nn.init.uniform_(values, 0.5, 2.0)  # type: ignore[arg-type]
    weights = {f"n.{name}": value.numpy() for name, value in norm.state_dict().items()}
    weight, bias = folded({**weights, "c.weight": convolution.weight.detach().numpy()}, "c", "n")
    x = torch.randn(2, 3, 8, 8)
    one = torch.nn.functional.conv2d(x, torch.from_numpy(weight), torch.from_numpy(bias))
    torch.testing.assert_close(one, norm(convolution(x)))


def test_variants_scale_the_inner_stages() -> None:
    assert len(list(LITE0.blocks())) == 16
    blocks = list(Network(size=260, width=1.1, depth=1.2).blocks())
    assert len(blocks) == 1 + 3 + 3 + 4 + 4 + 5 + 1
    assert blocks[0] == (3, 1, 1, 32, 16)
    assert blocks[-1] == (3, 1, 6, 208, 352)


def test_weights_that_are_missing_or_others_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match=r"not installed.*the package a-package"):
        replace(LITE0, package="a_package_that_is_not_there").weights()
    folder = tmp_path / "other_weights"
    (folder / "models").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise AssertionError('no code of the package runs')")
    torch.save({"w": torch.ones(2)}, folder / "models" / "w.pth", _use_new_zipfile_serialization=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(StoreError, match="holds other weights"):
        replace(LITE0, package="other_weights").weights()


def test_torch_is_not_imported_and_nothing_is_reported(tmp_path: Path) -> None:
    words = (
        "import sys, os; import numpy as np; from labelwise.encoders.registry import open_encoder;"
        "print(open_encoder(shape=(3, 32, 32))(np.zeros((1, 3, 32, 32), np.uint8)).shape);"
        "assert 'torch' not in sys.modules; assert os.environ['ORT_DISABLE_TELEMETRY'] == '1'"
    )
    import os

    places = {
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "caches"),
        "LABELWISE_CACHE": str(tmp_path / "own"),
    }
    run = subprocess.run([sys.executable, "-c", words], env={**os.environ, **places}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "(1, 1280)\n"
    assert [path.name for path in tmp_path.iterdir()] == ["own"]
