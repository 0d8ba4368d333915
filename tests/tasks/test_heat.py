"""Where the evidence for a label is: as gradients say it where there are maps, and by covering parts of the image elsewhere."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from labelwise.encoders.encoder import Precomputed
from labelwise.images.view import View
from labelwise.support.errors import UnsupportedError
from labelwise.tasks.explain import evidence
from labelwise.train.networks.backbones import build_backbone
from labelwise.train.networks.image_encoder import ImageEncoder
from labelwise.train.networks.torch_encoder import TorchEncoder
from tests.encoders.samples import pixels

SHAPE = (3, 24, 20)


class Bent:
    """A head that is not linear in features."""

    def embed(self, features: Any) -> Any:
        return np.tanh(features)

    def score(self, embeddings: Any, label_embeddings: Any) -> Any:
        return embeddings @ label_embeddings.T


def network(name: str, code_size: int | None = None, view: View | None = None) -> ImageEncoder:
    torch.manual_seed(0)
    view = view or View()
    encoder = ImageEncoder(build_backbone(name, view.seen(SHAPE), 8), SHAPE, code_size, view=view)
    encoder(torch.rand(16, *SHAPE))
    return encoder.eval()


def gradients(trained: ImageEncoder, images: Any, labels: Any, weights: Any) -> Any:
    """Grad-CAM by torch, without a view."""
    maps = trained.maps(torch.from_numpy(images) / 255).detach().requires_grad_()
    features = trained.pool(maps)
    scores = features.tanh() @ torch.from_numpy(labels).float().T
    (slopes,) = torch.autograd.grad((scores * torch.from_numpy(weights)).sum(), maps)
    heat = (slopes.sum((2, 3), keepdim=True) * maps).sum(1, keepdim=True).relu()
    return interpolate(heat, size=SHAPE[1:], mode="bilinear", align_corners=False)[:, 0].detach().numpy()


@pytest.mark.parametrize(
    ("name", "code_size"), [("resnet18", None), ("resnet18", 7), ("convnet", None), ("convnet", 7)]
)
def test_evidence_is_where_gradients_say(name: str, code_size: int | None) -> None:
    trained, images, rng = network(name, code_size), pixels(3, SHAPE), np.random.default_rng(0)
    encoder = TorchEncoder(trained)
    labels, weights = rng.normal(size=(4, encoder.width)), np.eye(4)[[0, 2, 3]]
    head: Any = Bent()
    found, wanted = evidence(encoder, head, labels, images, weights), gradients(trained, images, labels, weights)
    assert wanted.max() > 0
    np.testing.assert_allclose(found / found.max(), wanted / wanted.max(), atol=2e-3)


def test_nothing_lies_outside_of_what_the_encoder_sees() -> None:
    encoder: Any = TorchEncoder(network("resnet18", view=View(crop=16)))
    head: Any = Bent()
    heat = evidence(encoder, head, np.ones((1, encoder.width)), pixels(2, SHAPE), np.ones((2, 1)))
    inside = heat[(slice(None), *encoder.window)]
    assert heat.shape == (2, *SHAPE[1:])
    assert inside.sum() == heat.sum() > 0


class Corner:
    """An encoder without maps: the brightness of the upper left quarter, and of the lower right."""

    id, name, shape, fit, width, runtime = "corner", "corner", SHAPE, "crop", 2, "none"

    def __call__(self, images: Any) -> Any:
        quarters = images[:, :, :12, :10], images[:, :, 12:, 10:]
        return np.stack([each.mean((1, 2, 3)) / 255 for each in quarters], 1).astype(np.float32)


def test_without_maps_parts_are_covered() -> None:
    images = np.zeros((2, *SHAPE), np.uint8)
    images[:, :, :12, :10] = images[:, :, 12:, 10:] = 255
    encoder: Any = Corner()
    head: Any = Bent()
    upper, lower = evidence(encoder, head, np.eye(2), images, np.eye(2))
    assert upper[:9, :7].min() > 10 * upper[15:, 13:].max()
    assert lower[15:, 13:].min() > 10 * lower[:9, :7].max()
    assert upper.shape == SHAPE[1:]


def test_features_have_no_places() -> None:
    head: Any = Bent()
    with pytest.raises(UnsupportedError, match=r"takes \[4\] \(features or sounds\)"):
        evidence(Precomputed(4), head, np.eye(4), np.ones((1, 4)), np.eye(4)[:1])
