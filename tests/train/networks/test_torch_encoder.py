"""An image encoder in memory as an encoder: the same bits alone and among others, and what torch computes."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from labelwise.encoders.encode import encode
from labelwise.encoders.encoder import Locates, Precomputed
from labelwise.encoders.onnx import OnnxEncoder
from labelwise.encoders.registry import is_installed
from labelwise.images.images import ArrayImages
from labelwise.images.view import View
from labelwise.support.cache import FILE, user_folder
from labelwise.support.errors import LabelwiseWarning
from labelwise.train.networks import torch_encoder
from labelwise.train.networks.backbones import build_backbone
from labelwise.train.networks.encoder import Encoder
from labelwise.train.networks.image_encoder import ImageEncoder
from labelwise.train.networks.torch_encoder import TorchEncoder, shared_encoder
from tests.encoders.samples import pixels

SHAPE = (3, 24, 24)


def trained(name: str = "convnet", code_size: int | None = None, view: View | None = None) -> ImageEncoder:
    torch.manual_seed(0)
    view = view or View()
    encoder = ImageEncoder(build_backbone(name, view.seen(SHAPE), 8), SHAPE, code_size, view=view)
    encoder(torch.rand(16, *SHAPE))  # batch norms see something
    return encoder.eval()


VIEWS = [View(), View(crop=20, mirror=True), View(size=16)]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("code_size", [None, 5])
def test_features_are_the_embeddings_of_the_network(code_size: int | None, view: View) -> None:
    network, images = trained(code_size=code_size, view=view), pixels(7, SHAPE)
    with torch.no_grad():
        wanted = network(torch.from_numpy(images) / 255).numpy()
    encoder = TorchEncoder(network)
    np.testing.assert_allclose(encoder(images), wanted, rtol=1e-4, atol=1e-6)
    assert encoder.width == wanted.shape[1]
    assert encoder(images[:0]).shape == (0, encoder.width)


@pytest.mark.parametrize("name", ["convnet", "resnet18"])
def test_the_memory_format_of_weights_changes_no_bit(name: str) -> None:
    images, plain, last = pixels(5, SHAPE), trained(name), trained(name)
    last.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert np.array_equal(TorchEncoder(plain)(images), TorchEncoder(last)(images))


@pytest.mark.parametrize("name", ["convnet", "resnet18"])
def test_an_image_has_the_same_bits_whatever_comes_with_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path))
    encoder, images = TorchEncoder(trained(name)), pixels(41, SHAPE)
    alone = np.concatenate([encoder(images[i : i + 1]) for i in range(41)])
    order = np.random.default_rng(0).permutation(41)
    ways = {
        "together": encoder(images),
        "shuffled": encoder(images[order])[np.argsort(order)],
        "by one worker": encode(encoder, ArrayImages(images), workers=1).values,
        "by four workers": encode(encoder, ArrayImages(images), workers=4).values,
    }
    assert {way: row.tobytes() == alone.tobytes() for way, row in ways.items()} == dict.fromkeys(ways, True)
    assert not (user_folder() / FILE).exists(), "features of weights that may never be saved are not kept"


def test_the_number_of_threads_is_as_before() -> None:
    encoder, before = TorchEncoder(trained()), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda seed: encoder(pixels(9, SHAPE, seed)), range(20)))
        encoder(pixels(1, SHAPE))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_maps_show_where_a_feature_comes_from() -> None:
    network, images = trained("resnet18", code_size=6), pixels(3, SHAPE)
    encoder = TorchEncoder(network)
    layer = network.project
    assert isinstance(encoder, Locates)
    assert isinstance(layer, torch.nn.Linear)
    shift = layer.bias.detach().numpy()
    np.testing.assert_allclose(encoder.locate(images)[1].mean((2, 3)) + shift, encoder(images), rtol=1e-3, atol=1e-5)


def test_other_weights_and_other_views_have_other_ids() -> None:
    network = trained()
    before = TorchEncoder(network).id
    assert TorchEncoder(network).id == before
    with torch.no_grad():
        next(network.parameters()).mul_(2)
    after = TorchEncoder(network).id
    network.view = replace(network.view, mirror=True)
    assert len({before, after, TorchEncoder(network).id}) == 3


@pytest.mark.skipif(not is_installed(), reason="needs the package of weights")
def test_a_frozen_encoder_is_shared_until_it_is_trained() -> None:
    frozen = Encoder(backbone="efficientnet_lite0", frozen=True, size=32).build((3, 32, 32))
    encoder = shared_encoder(frozen)
    assert isinstance(encoder, OnnxEncoder)
    images = pixels(3, (3, 32, 32))
    wanted = TorchEncoder(frozen)(images)
    assert np.abs(encoder(images) - wanted).max() <= 1e-4 * np.abs(wanted).max()
    state = {name: value.clone() for name, value in frozen.state_dict().items()}
    frozen.tune(True)
    frozen.tune(False)
    assert isinstance(shared_encoder(frozen), TorchEncoder)
    frozen.load_state_dict(state)
    assert isinstance(shared_encoder(frozen), OnnxEncoder)
    state["backbone.stem.0.weight"] *= 2
    frozen.load_state_dict(state)
    assert isinstance(shared_encoder(frozen), TorchEncoder)


def test_feature_rows_have_no_network() -> None:
    assert shared_encoder(Encoder().build((7,))) == Precomputed(7)


def test_where_half_precision_does_not_reach_the_network_itself_answers() -> None:
    backbone = trained("resnet18").backbone
    images = torch.rand(2, *SHAPE)
    with torch.no_grad():
        half = torch_encoder._Replayed(backbone)
        assert (half(images) - backbone(images)).abs().max() <= 1e-2 * backbone(images).abs().max()
        with pytest.warns(LabelwiseWarning, match="range of float16") as caught:
            twice = [half(images * 1e6) for _ in range(2)]
        assert len(caught) == 1
        assert all(each.equal(backbone(images * 1e6)) for each in twice)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("mirror", [False, True])
def test_on_a_gpu_features_are_equal_in_half_precision(mirror: bool) -> None:
    network, images = trained("resnet18", view=View(mirror=mirror)), pixels(9, SHAPE)
    wanted = TorchEncoder(network)(images)
    encoder = TorchEncoder(network.cuda())
    for _ in range(8):  # as it is, then recorded and replayed
        assert np.abs(encoder(images) - wanted).max() <= 1e-2 * np.abs(wanted).max()
    assert "float16" in encoder.runtime
