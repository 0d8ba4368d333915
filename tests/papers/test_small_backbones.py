"""Sizes, published numbers of parameters, and the parts against their description."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from labelwise.support.errors import UsageError
from labelwise.train.networks.backbones import build_backbone
from labelwise_papers.baselines.backbones import LeNet, TripleBlock, WideBlock
from labelwise_papers.sound.spectrogram import Spectrogram
from labelwise_papers.sound.xvectors import MelXVector, XVector


def numbers(module: nn.Module) -> int:
    return sum(value.numel() for value in module.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "size", "parameters", "maps"),
    [
        ("lenet", (1, 28, 28), 50, 260 + 5_020 + 16_050, (20, 4, 4)),
        ("wrn28_10", (3, 32, 32), 640, 36_479_194 - 6_410, (640, 8, 8)),  # published with ten outputs
        ("resnet12", (3, 84, 84), 640, 12_424_320, (640, 5, 5)),
        ("xvector", (1, 23, 40), 256, 3_477_760, (1536, 1, 40)),
    ],
)
def test_published_sizes(name: str, shape: tuple[int, ...], size: int, parameters: int, maps: tuple[int, ...]) -> None:
    with torch.device("meta"):
        backbone = build_backbone(name, shape)
        found = backbone.maps(torch.zeros(2, *shape))
        embeddings = backbone(torch.zeros(2, *shape))
    assert backbone.width_out == size
    assert embeddings.shape == (2, size)
    assert found.shape == (2, *maps)
    assert numbers(backbone) == parameters


@pytest.mark.parametrize(
    ("name", "shape", "times"),
    [("lenet", (3, 17, 20), 5), ("wrn28_10", (2, 9, 8), 40), ("resnet12", (3, 5, 30), 10), ("xvector", (1, 3, 7), 0.5)],
)
def test_every_parameter_learns_and_width_is_followed(name: str, shape: tuple[int, ...], times: float) -> None:
    torch.manual_seed(0)
    backbone = build_backbone(name, shape, width=4)
    embeddings = backbone(torch.rand(6, *shape))
    assert embeddings.shape == (6, backbone.width_out) == (6, 4 * times)
    embeddings.square().sum().backward()
    still = [key for key, value in backbone.named_parameters() if value.grad is None or not value.grad.abs().sum()]
    assert [key for key in still if not key.endswith("bias")] == []  # a bias before a batch norm does nothing
    torch.testing.assert_close(backbone.eval()(torch.rand(1, *shape)).shape, torch.Size((1, backbone.width_out)))


def jittered(block: nn.Module) -> nn.Module:
    for part in block.modules():
        if isinstance(part, nn.BatchNorm2d):
            for value in (part.weight, part.bias, part.running_mean, part.running_var):
                nn.init.uniform_(value, 0.5, 1.5)  # type: ignore[arg-type]
    return block.eval()


def normed(y: Tensor, norm: nn.Module) -> Tensor:
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    return (y - norm.running_mean[:, None, None]) * scale[:, None, None] + norm.bias[:, None, None]


@pytest.mark.parametrize(("out", "stride"), [(3, 1), (5, 1), (5, 2)])
def test_wide_block_is_the_published_one(out: int, stride: int) -> None:
    block = jittered(WideBlock(3, out, stride))
    assert isinstance(block, WideBlock)
    x = torch.randn(2, 3, 9, 9)
    y = normed(x, block.bn1).clamp(min=0)
    around = x if block.shortcut is None else nn.functional.conv2d(y, block.shortcut.weight, stride=stride)
    y = nn.functional.conv2d(y, block.conv1.weight, stride=stride, padding=1)
    y = nn.functional.conv2d(normed(y, block.bn2).clamp(min=0), block.conv2.weight, padding=1)
    torch.testing.assert_close(block(x), y + around)
    assert (block.shortcut is None) == (out == 3)


@pytest.mark.parametrize("pooled", [True, False])
def test_triple_block_is_the_published_one(pooled: bool) -> None:
    block = jittered(TripleBlock(3, 5, pooled))
    assert isinstance(block, TripleBlock)
    x = torch.randn(2, 3, 7, 6)
    y = leaky_relu(block.norms[0](block.convs[0](x)), 0.1)
    y = leaky_relu(block.norms[1](block.convs[1](y)), 0.1)
    y = leaky_relu(block.norms[2](block.convs[2](y)) + block.shortcut(x), 0.1)
    slow = y[:, :, :6].reshape(2, 5, 3, 2, 3, 2).amax((3, 5)) if pooled else y
    torch.testing.assert_close(block(x), slow)


def test_lenet_by_hand() -> None:
    network = LeNet((1, 16, 20), width=2)
    x = torch.randn(3, 1, 16, 20)
    y = network.conv1(x).unflatten(3, (8, 2)).unflatten(2, (6, 2)).amax((3, 5)).clamp(min=0)
    y = network.conv2(y).unflatten(3, (2, 2)).unflatten(2, (1, 2)).amax((3, 5)).clamp(min=0)
    torch.testing.assert_close(network(x), (y.flatten(1) @ network.full.weight.T + network.full.bias).clamp(min=0))
    with pytest.raises(UsageError, match="at least 16 pixels"):
        LeNet((1, 15, 20))


def test_xvector_takes_mean_and_deviation_over_time() -> None:
    network = XVector((1, 3, 11), width=4).eval()
    x = torch.randn(2, 1, 3, 11)
    maps = network.maps(x)
    mean = maps[:, :, 0].mean(2)
    variance = (maps[:, :, 0] - mean[..., None]).square().mean(2)
    statistics = torch.cat([mean, (variance + 1e-5).sqrt()], 1)
    wanted = statistics @ network.full.weight.T + network.full.bias
    torch.testing.assert_close(network(x), wanted)
    torch.testing.assert_close(network(x + 5), network(x), rtol=1e-4, atol=1e-4)


def test_xvector_sees_seven_frames_either_side() -> None:
    torch.manual_seed(0)  # of four channels all may be dead
    network = XVector((1, 3, 31), width=4).eval()
    x = torch.randn(1, 1, 3, 31, requires_grad=True)
    (gradient,) = torch.autograd.grad(network.layers(x.flatten(1, 2))[0, :, 15].sum(), x)
    reached = gradient[0, 0].abs().sum(0).nonzero()[:, 0]
    assert (int(reached.min()), int(reached.max())) == (15 - 7, 15 + 7)


def test_xvector_of_waveforms_is_that_of_their_coefficients() -> None:
    waves = torch.randn(3, 4000)
    whole = build_backbone("xvector_8k", (4000,), width=8).eval()
    mfcc = Spectrogram(8000, coefficients=23)(waves)
    part = XVector((1, 23, mfcc.shape[-1]), width=8).eval()
    part.load_state_dict(whole.state_dict())
    torch.testing.assert_close(part(mfcc), whole(waves))
    assert build_backbone("xvector_16k", (8000,), width=8).maps(torch.randn(2, 8000)).shape == (2, 24, 1, 48)


def test_mel_xvector_leaves_silence_out() -> None:
    torch.manual_seed(0)
    network = MelXVector((8000,), width=8, rate=8000)
    network(torch.randn(4, 8000))  # so that energies are standardised by more than the start values
    network.eval()
    sound = torch.randn(3, 4000)
    early, late = (nn.functional.pad(sound, sides) for sides in ((800, 3200), (3200, 800)))
    torch.testing.assert_close(network(early), network(late), rtol=1e-4, atol=1e-4)
    maps = network.maps(early)[:, :, 0]
    heard = maps.any(1)[0].nonzero()[:, 0]  # frames 10 to 59 and those whose window reaches in
    assert (int(heard.min()), int(heard.max())) == (8, 59)
    inside = maps[:, :, heard]
    statistics = torch.cat([inside.mean(2), (inside.var(2, correction=0) + 1e-5).sqrt()], 1)
    torch.testing.assert_close(network(early), network.full(statistics))


def test_mel_xvector_of_energies_keeps_their_mean_and_takes_silence() -> None:
    torch.manual_seed(0)
    network = build_backbone("xvector_mel_16k", (8000,), width=8).eval()
    assert isinstance(network, MelXVector)
    waves = torch.randn(2, 8000)
    energies = Spectrogram(16_000, mels=40)(waves)[:, 0]
    assert network.maps(waves).shape == (2, 24, 1, 48)
    torch.testing.assert_close(network.maps(waves)[:, :, 0], network.layers(network.standard(energies)))
    assert not torch.allclose(network(waves), network(2 * waves), atol=1e-3)
    assert network(torch.zeros(1, 8000)).isfinite().all()


def test_mel_xvector_learns() -> None:
    network = build_backbone("xvector_mel_8k", (2000,), width=4)
    network(torch.randn(6, 2000)).square().sum().backward()
    still = [key for key, value in network.named_parameters() if value.grad is None or not value.grad.abs().sum()]
    assert [key for key in still if not key.endswith("bias")] == []


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("lenet", (9,), 'Use "identity", "xvector_8k", "xvector_16k", "xvector_mel_8k", "xvector_mel_16k"'),
        ("xvector_8k", (3, 32, 32), 'does not take these. Use "convnet".*"lenet".*"wrn28_10", "resnet12", "xvector"'),
    ],
)
def test_wrong_requests(name: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build_backbone(name, shape)
