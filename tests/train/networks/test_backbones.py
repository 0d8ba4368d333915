"""Shapes, published parameter names, and loading of weights."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from labelwise.support.errors import StoreError, UnsupportedError, UsageError
from labelwise.train.networks.backbone import Backbone, convolution
from labelwise.train.networks.backbones import BACKBONES, build_backbone
from labelwise.train.networks.networks import ResidualBlock
from labelwise.train.networks.weights import load_weights

IMAGE_BACKBONES = ("convnet", "resnet18", "resnet50", "vgg11_bn")
Shapes = dict[str, tuple[int, ...]]


def norm(name: str, channels: int) -> Shapes:
    """The published entries of one batch norm."""
    vectors = {f"{name}.{part}": (channels,) for part in ("weight", "bias", "running_mean", "running_var")}
    return {**vectors, f"{name}.num_batches_tracked": ()}


def resnet_shapes(depths: tuple[int, ...], bottleneck: bool) -> Shapes:
    """The published entries of a residual network without its head, written out block by block."""
    shapes: Shapes = {"conv1.weight": (64, 3, 7, 7), **norm("bn1", 64)}
    channels = 64
    for stage, depth in enumerate(depths):
        planes = (64, 128, 256, 512)[stage]
        out = 4 * planes if bottleneck else planes
        for block in range(depth):
            at = f"layer{stage + 1}.{block}"
            if bottleneck:
                shapes[f"{at}.conv1.weight"] = (planes, channels, 1, 1)
                shapes[f"{at}.conv2.weight"] = (planes, planes, 3, 3)
                shapes[f"{at}.conv3.weight"] = (out, planes, 1, 1)
                shapes |= norm(f"{at}.bn3", out)
            else:
                shapes[f"{at}.conv1.weight"] = (planes, channels, 3, 3)
                shapes[f"{at}.conv2.weight"] = (planes, planes, 3, 3)
            shapes |= norm(f"{at}.bn1", planes) | norm(f"{at}.bn2", planes)
            if block == 0 and (stage > 0 or bottleneck):
                shapes[f"{at}.downsample.0.weight"] = (out, channels, 1, 1)
                shapes |= norm(f"{at}.downsample.1", out)
            channels = out
    return shapes


def vgg_shapes() -> Shapes:
    """The published entries of the convolutional part of VGG-11 with batch norm."""
    layers = {0: (64, 3), 4: (128, 64), 8: (256, 128), 11: (256, 256), 15: (512, 256), 18: (512, 512)}
    layers |= {22: (512, 512), 25: (512, 512)}
    shapes: Shapes = {}
    for place, (out, channels) in layers.items():
        shapes |= {f"features.{place}.weight": (out, channels, 3, 3), f"features.{place}.bias": (out,)}
        shapes |= norm(f"features.{place + 1}", out)
    return shapes


@pytest.mark.parametrize(
    ("name", "shapes", "entries", "parameters"),
    [
        ("resnet18", resnet_shapes((2, 2, 2, 2), bottleneck=False), 120, 11_176_512),
        ("resnet50", resnet_shapes((3, 4, 6, 3), bottleneck=True), 318, 23_508_032),
        ("vgg11_bn", vgg_shapes(), 56, 9_225_984),
    ],
)
def test_names_and_shapes_are_the_published_ones(name: str, shapes: Shapes, entries: int, parameters: int) -> None:
    with torch.device("meta"):
        backbone = build_backbone(name, (3, 224, 224))
    assert {key: tuple(value.shape) for key, value in backbone.state_dict().items()} == shapes
    assert len(shapes) == entries
    assert sum(value.numel() for value in backbone.parameters()) == parameters


@pytest.mark.parametrize(("name", "expected"), [("resnet18", 512), ("resnet50", 2048), ("vgg11_bn", 512)])
def test_published_code_sizes_and_maps(name: str, expected: int) -> None:
    with torch.device("meta"):
        backbone = build_backbone(name, (3, 224, 224))
        maps = backbone.maps(torch.zeros(2, 3, 224, 224))
    assert backbone.width_out == expected
    assert maps.shape == (2, expected, 7, 7)


@pytest.mark.parametrize("name", IMAGE_BACKBONES)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 48), (4, 65, 70), (2, 3, 5)])
def test_forward_pools_every_map(name: str, shape: tuple[int, ...]) -> None:
    backbone = build_backbone(name, shape, width=4).eval()
    x = torch.rand(2, *shape)
    maps = backbone.maps(x)
    assert maps.shape[:2] == (2, backbone.width_out)
    pool = Tensor.max if name == "convnet" else Tensor.mean
    slow = torch.stack([torch.stack([pool(channel) for channel in image]) for image in maps])
    torch.testing.assert_close(backbone(x), slow)


@pytest.mark.parametrize("name", IMAGE_BACKBONES)
def test_every_parameter_learns(name: str) -> None:
    backbone = build_backbone(name, (3, 16, 16), width=4)
    backbone(torch.rand(4, 3, 16, 16)).square().sum().backward()
    still = [key for key, value in backbone.named_parameters() if value.grad is None]
    assert still == []
    stem = next(backbone.parameters()).grad
    assert stem is not None
    assert stem.abs().sum() > 0


@pytest.mark.parametrize(("name", "times"), [("convnet", 8), ("resnet18", 8), ("resnet50", 32), ("vgg11_bn", 8)])
def test_code_size_follows_width(name: str, times: int) -> None:
    assert build_backbone(name, (3, 32, 32), width=4).width_out == times * 4


@pytest.mark.parametrize(
    ("name", "side", "expected"),
    [
        *[("resnet18", 48, 6), ("resnet18", 64, 8), ("resnet18", 65, 3)],
        *[("vgg11_bn", 8, 1), ("vgg11_bn", 32, 1), ("vgg11_bn", 64, 2)],
        *[("convnet", 4, 4), ("convnet", 8, 4), ("convnet", 32, 4), ("convnet", 48, 6)],
    ],
)
def test_small_images_keep_their_resolution(name: str, side: int, expected: int) -> None:
    with torch.device("meta"):
        maps = build_backbone(name, (3, side, side)).maps(torch.zeros(2, 3, side, side))
    assert maps.shape[2:] == (expected, expected)


def block_by_hand(block: nn.Module, x: Tensor) -> Tensor:
    """A basic block in eval mode from the published description."""

    def batch_norm(y: Tensor, norm: nn.BatchNorm2d) -> Tensor:
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        return (y - norm.running_mean[:, None, None]) * scale[:, None, None] + norm.bias[:, None, None]

    assert isinstance(block, ResidualBlock)
    part: Any = block
    y = batch_norm(nn.functional.conv2d(x, part.conv1.weight, stride=2, padding=1), part.bn1).clamp(min=0)
    y = batch_norm(nn.functional.conv2d(y, part.conv2.weight, padding=1), part.bn2)
    conv, bn = block.downsample
    assert isinstance(conv, nn.Conv2d)
    assert isinstance(bn, nn.BatchNorm2d)
    return (y + batch_norm(nn.functional.conv2d(x, conv.weight, stride=2), bn)).clamp(min=0)


def test_block_is_the_published_one() -> None:
    block = ResidualBlock(3, 5, stride=2).eval()
    for part in block.modules():
        if isinstance(part, nn.BatchNorm2d):
            for value in (part.weight, part.bias, part.running_mean, part.running_var):
                nn.init.uniform_(value, 0.5, 1.5)  # type: ignore[arg-type]
    x = torch.randn(2, 3, 9, 9)
    torch.testing.assert_close(block(x), block_by_hand(block, x))


def test_convolutions_start_scaled_by_fan_out() -> None:
    weight = build_backbone("resnet18", (3, 32, 32)).state_dict()["layer3.0.conv1.weight"]
    assert weight.std().item() == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.02)


def test_identity_and_auto() -> None:
    features = torch.rand(3, 7)
    identity = build_backbone("auto", (7,))
    assert identity(features) is features
    assert identity.width_out == 7
    with pytest.raises(UnsupportedError, match="no feature maps"):
        identity.maps(features)
    assert type(build_backbone("auto", (3, 32, 32))) is BACKBONES["convnet"]


@pytest.mark.parametrize(
    ("name", "shape", "width", "message"),
    [
        ("resnet-18", (3, 32, 32), None, 'No backbone "resnet-18". Did you mean "resnet18"'),
        ("zebra", (3, 32, 32), None, "Known backbones: auto, convnet, resnet18"),
        ("resnet18", (9,), None, 'precomputed features of shape .* Use "identity"'),
        ("identity", (3, 32, 32), None, 'images of shape .* Use "convnet", "resnet18"'),
        ("identity", (9,), 16, "has no width; given 16"),
        ("convnet", (3, 32, 32), 0, "at least 1; given 0"),
        ("convnet", (32, 32), None, "channels, height, width"),
        ("convnet", (3, 0, 32), None, "at least 1"),
    ],
)
def test_wrong_requests(name: str, shape: tuple[int, ...], width: int | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build_backbone(name, shape, width)


def saved(path: Path, backbone: Backbone) -> dict[str, Tensor]:
    """Save a backbone's weights, jittered, with entries of a head, and return them."""
    weights = {k: v + torch.rand_like(v) if v.is_floating_point() else v for k, v in backbone.state_dict().items()}
    save_file({**weights, "fc.weight": torch.rand(3, 3), "classifier.0.bias": torch.rand(3)}, path)
    return weights


@pytest.mark.parametrize("name", IMAGE_BACKBONES)
def test_weights_come_back(name: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    backbone = build_backbone(name, (3, 32, 32), width=4).eval()
    weights = saved(path, backbone)
    load_weights(backbone, path)
    assert all(torch.equal(value, weights[key]) for key, value in backbone.state_dict().items())


def test_weights_without_counters_and_in_half_precision(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    backbone = build_backbone("resnet18", (3, 32, 32), width=4)
    weights = {k: v.half() for k, v in saved(path, backbone).items() if not k.endswith("num_batches_tracked")}
    save_file(weights, path)
    load_weights(backbone, path)
    assert torch.equal(backbone.state_dict()["conv1.weight"], weights["conv1.weight"].float())


def test_weights_that_do_not_fit_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    backbone = build_backbone("resnet18", (3, 32, 32), width=4)
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    weights = saved(path, backbone)
    del weights["bn1.bias"]
    weights["layer1.0.conv1.weight"] = torch.zeros(4, 5, 3, 3)
    save_file({**weights, "strange": torch.zeros(1)}, path)
    with pytest.raises(StoreError) as caught:
        load_weights(backbone, path)
    text = str(caught.value)
    assert "1 missing: bn1.bias." in text
    assert "1 unexpected: strange." in text
    assert "1 of another shape: layer1.0.conv1.weight [4, 5, 3, 3] instead of [4, 4, 3, 3]." in text
    assert "stem" not in text
    assert all(torch.equal(value, before[key]) for key, value in backbone.state_dict().items())


def test_another_stem_is_named(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    saved(path, build_backbone("resnet18", (3, 224, 224), width=4))
    with pytest.raises(StoreError, match="The stem differs: 7x7 in the file, 3x3 here"):
        load_weights(build_backbone("resnet18", (3, 32, 32), width=4), path)


class Trap:
    """Leaves a trace where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("name", ["weights.pth", "weights.PT", "weights.safetensors"])
def test_pickles_are_never_opened(name: str, tmp_path: Path) -> None:
    path, trace = tmp_path / name, tmp_path / "trace"
    path.write_bytes(pickle.dumps(Trap(trace)))
    with pytest.raises(StoreError, match=r"safetensors"):
        load_weights(build_backbone("convnet", (3, 32, 32)), path)
    assert not trace.exists()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no file of weights at .*gone\.safetensors"):
        load_weights(build_backbone("convnet", (3, 32, 32)), tmp_path / "gone.safetensors")


def test_a_narrow_shortcut_is_the_plain_convolution_at_sizes_that_torch_cannot_do() -> None:
    """Torch 2.13 ends the process in the gradient of this convolution where channels are last in memory."""
    thin = convolution(4, 8, 1, stride=2).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    plain = torch.nn.Conv2d(4, 8, 1, stride=2, bias=False)
    plain.load_state_dict(thin.state_dict())
    images = torch.randn(128, 4, 48, 48, generator=torch.Generator().manual_seed(0))
    ours = images.to(memory_format=torch.channels_last, copy=True).requires_grad_()
    theirs = images.clone().requires_grad_()
    thin(ours).square().sum().backward()
    plain(theirs).square().sum().backward()
    assert ours.grad is not None
    assert theirs.grad is not None
    assert thin.weight.grad is not None
    assert plain.weight.grad is not None
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(thin.weight.grad, plain.weight.grad, rtol=1e-3, atol=1e-1)
