"""Normalisation, projection and precision of the image encoder."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from labelwise.core.arrays import LENGTH
from labelwise.support.errors import UnsupportedError, UsageError
from labelwise.train.networks import channel_statistics as module
from labelwise.train.networks.backbones import build_backbone
from labelwise.train.networks.image_encoder import ImageEncoder


def byte_images(n: int, *shape: int) -> Tensor:
    return torch.randint(0, 256, (n, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("chunk", [1, 1000, 2**22])
def test_normalisation_of_bytes(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    images = byte_images(7, 3, 9, 5)
    images[:, 1] //= 4
    encoder = build("convnet", (3, 9, 5))
    encoder.fit_normalisation(images)
    slow = np.stack([images[:, c].numpy().astype(np.float64).ravel() / 255 for c in range(3)])
    np.testing.assert_allclose(encoder.mean, slow.mean(1), rtol=1e-6)
    np.testing.assert_allclose(encoder.std, slow.std(1), rtol=1e-6)
    whitened = encoder.normalise(images.float() / 255)
    torch.testing.assert_close(whitened.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(whitened.std((0, 2, 3), correction=0), torch.ones(3))


def build(name: str, shape: tuple[int, ...], width: int | None = None, code_size: int | None = None) -> ImageEncoder:
    return ImageEncoder(build_backbone(name, shape, width), shape, code_size)


def test_normalisation_of_features_far_from_zero() -> None:
    features = torch.randn(1000, 4, generator=torch.Generator().manual_seed(0)) + torch.tensor([0, 1, 1e3, -1e4])
    encoder = build("identity", (4,))
    encoder.fit_normalisation(features)
    exact = features.numpy().astype(np.float64)
    np.testing.assert_allclose(encoder.mean, exact.mean(0), rtol=1e-6)
    np.testing.assert_allclose(encoder.std, exact.std(0), rtol=1e-6)
    standard = (features - encoder.mean) / encoder.std
    torch.testing.assert_close(encoder(features), standard * LENGTH / 2)
    assert float(encoder(features).square().sum(1).mean().sqrt()) == pytest.approx(LENGTH, rel=1e-4)


def test_waveforms_are_brought_to_one_loudness_and_never_normalised_sample_by_sample() -> None:
    waves = torch.randn(6, 2000, generator=torch.Generator().manual_seed(0)) * 0.1
    encoder = build("xvector_8k", (2000,), width=8).eval()
    encoder.fit_normalisation(waves)
    assert (encoder.mean.tolist(), encoder.std.tolist()) == ([0], [1])
    prepared = encoder.prepare(waves)
    torch.testing.assert_close(prepared.square().mean(1), torch.ones(6))
    torch.testing.assert_close(prepared / waves, (prepared / waves)[:, :1].expand_as(waves))
    torch.testing.assert_close(
        encoder(waves), encoder(waves * 0.05), msg="a quiet recording has the embedding of a loud one"
    )
    torch.testing.assert_close(
        encoder(waves), encoder.backbone(prepared), msg="embeddings are trained, so none is rescaled"
    )
    assert not encoder.untrained
    assert encoder.prepare(torch.zeros(1, 2000)).abs().max() == 0


def test_std_has_a_floor() -> None:
    encoder = build("identity", (3,))
    encoder.fit_normalisation(torch.tensor([[0.0, 5.0, 1.0], [4.0, 5.0, 1.0]]))
    assert encoder.std.tolist() == pytest.approx([2, 0.002, 0.002])
    encoder.fit_normalisation(torch.full((3, 3), 7.0))
    assert encoder.std.tolist() == [1, 1, 1]
    grey = build("convnet", (1, 8, 8))
    grey.fit_normalisation(torch.full((2, 1, 8, 8), 51, dtype=torch.uint8))
    assert grey.mean.tolist() == pytest.approx([0.2])
    assert grey.std.tolist() == [1]


def test_normalisation_is_saved() -> None:
    encoder = build("convnet", (3, 8, 8), code_size=5)
    encoder.fit_normalisation(byte_images(4, 3, 8, 8))
    other = build("convnet", (3, 8, 8), code_size=5)
    other.load_state_dict(encoder.state_dict())
    x = torch.rand(2, 3, 8, 8)
    assert torch.equal(other.eval()(x), encoder.eval()(x))
    assert torch.equal(other.mean, encoder.mean)


@pytest.mark.parametrize(
    "images", [torch.empty(0, 3, 8, 8), torch.zeros(2, 1, 8, 8), torch.full((2, 3, 8, 8), torch.nan)]
)
def test_images_that_cannot_be_normalised(images: Tensor) -> None:
    encoder = build("convnet", (3, 8, 8))
    with pytest.raises(UsageError, match=r"at least one image of shape \[3, 8, 8\]|not a finite number"):
        encoder.fit_normalisation(images)
    assert encoder.mean.tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["convnet", "resnet18", "vgg11_bn"])
@pytest.mark.parametrize("code_size", [None, 6, 16])
def test_forward_is_pooled_maps(name: str, code_size: int | None) -> None:
    encoder = build(name, (3, 16, 16), width=4, code_size=code_size).eval()
    encoder.fit_normalisation(byte_images(4, 3, 16, 16))
    x = torch.rand(2, 3, 16, 16)
    embeddings = encoder(x)
    assert embeddings.shape == (2, encoder.code_size)
    torch.testing.assert_close(encoder.pool(encoder.maps(x)), embeddings)
    plain = encoder.backbone((x - encoder.mean[:, None, None]) / encoder.std[:, None, None])
    if code_size in (None, encoder.backbone.width_out):
        torch.testing.assert_close(embeddings, plain)
        assert not [key for key in encoder.state_dict() if key.startswith("project")]
    else:
        assert isinstance(encoder.project, nn.Linear)
        torch.testing.assert_close(embeddings, plain @ encoder.project.weight.T + encoder.project.bias)


def test_features_have_embeddings_but_no_maps() -> None:
    encoder = build("auto", (6,), code_size=3)
    assert encoder(torch.rand(2, 6)).shape == (2, 3)
    with pytest.raises(UnsupportedError, match="no feature maps"):
        encoder.maps(torch.rand(2, 6))


def test_code_size_must_be_positive() -> None:
    with pytest.raises(UsageError, match="code size must be at least 1; given 0"):
        build("convnet", (3, 8, 8), code_size=0)


@pytest.mark.parametrize("name", ["convnet", "resnet18", "resnet50", "vgg11_bn"])
def test_half_precision_and_channels_last(name: str) -> None:
    torch.manual_seed(0)
    last = torch.channels_last
    encoder = build(name, (3, 32, 32), width=4, code_size=8).eval()
    encoder.fit_normalisation(byte_images(4, 3, 32, 32))
    x = torch.rand(4, 3, 32, 32)
    expected = encoder(x)
    encoder.to(memory_format=last)  # type: ignore[call-overload]
    x = x.to(memory_format=last)
    assert encoder.normalise(x).is_contiguous(memory_format=last)
    assert encoder.maps(x).is_contiguous(memory_format=last)
    torch.testing.assert_close(encoder(x), expected, atol=1e-3, rtol=1e-2)
    encoder.train()
    with torch.autocast("cpu", torch.bfloat16):
        embeddings = encoder(x)
    assert embeddings.dtype == torch.bfloat16
    embeddings.float().square().sum().backward()
    assert all(value.grad is not None and value.grad.isfinite().all() for value in encoder.parameters())
    encoder.eval()
    with torch.autocast("cpu", torch.bfloat16):
        assert encoder.normalise(x).dtype == torch.float32


@pytest.mark.parametrize(("name", "moves"), [("efficientnet_lite0", False), ("resnet18", True)])
def test_batch_norms_that_came_with_weights_stay_in_training(name: str, moves: bool) -> None:
    encoder = ImageEncoder(build_backbone(name, (3, 32, 32), None if name == "efficientnet_lite0" else 4), (3, 32, 32))
    before = {key: value.clone() for key, value in encoder.state_dict().items() if key.endswith("running_mean")}
    encoder.train()(torch.rand(4, 3, 32, 32)).sum().backward()
    after = encoder.state_dict()
    assert encoder.backbone.training
    assert all(torch.equal(value, after[key]) != moves for key, value in before.items())
    assert all(weight.grad is not None for weight in encoder.backbone.parameters())


def test_an_interrupted_encoding_leaves_the_mode_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = build("convnet", (3, 8, 8), width=4).train()

    def stop(_: Tensor) -> Tensor:
        assert not encoder.training
        raise KeyboardInterrupt

    monkeypatch.setattr(encoder, "trunk", stop)
    with pytest.raises(KeyboardInterrupt):
        encoder.features(torch.zeros(2, 3, 8, 8))
    assert encoder.training
    assert all(part.training for part in encoder.modules())
