"""Networks of other libraries, with stand-ins for these libraries."""

import pickle
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from labelwise.core.load import load
from labelwise.core.store import save
from labelwise.fitting.rebuild import model_of
from labelwise.images.describe.labels import Labels
from labelwise.methods import Softmax
from labelwise.methods.shared.linear import HeadModel
from labelwise.support.errors import StoreError, UnsupportedError, UsageError
from labelwise.train.model import Spec
from labelwise.train.networks.adapters import CLIP
from labelwise.train.networks.backbones import build_backbone
from labelwise.train.networks.encoder import Encoder
from labelwise.train.networks.weights import IMAGENET
from tests.changed import bind_model
from tests.close import assert_close


class Net(nn.Module):
    """A convolution whose weights tell whether they are the public ones."""

    image_size = (12, 12)

    def __init__(self, full: bool, classes: int = 0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3, stride=2)
        nn.init.constant_(self.conv.weight, 0.5 if full else 0.0)
        self.fc = nn.Linear(5, classes) if classes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.conv(x).mean((2, 3)))  # type: ignore[no-any-return]


class TimmNet(Net):
    def forward_features(self, x: Tensor) -> Tensor:
        return self.conv(x)  # type: ignore[no-any-return]

    def forward_head(self, maps: Tensor, pre_logits: bool) -> Tensor:
        assert pre_logits
        return maps.mean((2, 3))


class Tower(Net):
    def forward(self, x: Tensor) -> Any:
        return SimpleNamespace(last_hidden_state=self.conv(x).flatten(2).mT, pooler_output=None)


def timm() -> dict[str, Any]:
    def create_model(name: str, pretrained: bool, num_classes: int = 1000) -> nn.Module:
        if name != "net":
            raise RuntimeError(f"Unknown model ({name})")
        return TimmNet(pretrained, num_classes)

    about = {"mean": (0.1, 0.2, 0.3), "std": (1.0, 2.0, 3.0), "input_size": (3, 12, 12)}
    return {"timm": {"create_model": create_model, "data": SimpleNamespace(resolve_model_data_config=lambda _: about)}}


def torchvision() -> dict[str, Any]:
    def get_model(_: str, weights: str | None) -> Any:
        return Net(weights == "DEFAULT", 1000)

    return {"torchvision": {}, "torchvision.models": {"get_model": get_model, "list_models": lambda module: ["net"]}}


def transformers() -> dict[str, Any]:
    def of(value: Any) -> Any:
        return SimpleNamespace(from_pretrained=lambda _, trust_remote_code: value)

    def model(full: bool) -> Any:
        return SimpleNamespace(vision_model=Tower(full))

    made = SimpleNamespace(from_pretrained=lambda _, trust_remote_code: model(True), from_config=lambda _: model(False))
    config = SimpleNamespace(vision_config=SimpleNamespace(image_size=12))
    pictures = SimpleNamespace(image_mean=[0.5] * 3, image_std=[0.25] * 3)
    return {"transformers": {"AutoModel": made, "AutoConfig": of(config), "AutoImageProcessor": of(pictures)}}


def open_clip() -> dict[str, Any]:
    def create_model(name: str, pretrained: str | None = None) -> Any:
        assert pretrained in (None, "tag")
        return SimpleNamespace(visual=Net(pretrained == "tag"))

    return {"open_clip": {"create_model": create_model}}


def inject(monkeypatch: pytest.MonkeyPatch, modules: dict[str, Any]) -> None:
    for name, contents in modules.items():
        fake = ModuleType(name)
        fake.__dict__.update(contents)
        monkeypatch.setitem(sys.modules, name, fake)


CASES = {
    "timm:net": (timm, ((0.1, 0.2, 0.3), (1.0, 2.0, 3.0)), 12),
    "torchvision:net": (torchvision, IMAGENET, 224),
    "transformers:some/path": (transformers, ((0.5,) * 3, (0.25,) * 3), 12),
    "open_clip:net/tag": (open_clip, CLIP, 12),
}


@pytest.mark.parametrize("name", CASES)
def test_features_of_public_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library, published, size = CASES[name]
    inject(monkeypatch, library())
    encoder = Encoder(backbone=name, frozen=True).build((1, 9, 9))
    assert (encoder.view.size, encoder.backbone.published) == (size, published)
    grey = torch.full((2, 1, 9, 9), 0.75)
    mean, std = (torch.tensor(numbers) for numbers in published)
    bias = encoder.backbone.state_dict()["network.conv.bias"]
    torch.testing.assert_close(encoder.trunk(grey), (0.5 * 9 * ((0.75 - mean) / std).sum() + bias).expand(2, 5))
    assert not any(value.requires_grad for value in encoder.parameters())
    if name.startswith("timm"):
        torch.testing.assert_close(encoder.pool(encoder.maps(grey)), encoder(grey))
    else:
        with pytest.raises(UnsupportedError, match="no feature maps"):
            encoder.maps(grey)


@pytest.mark.parametrize("name", CASES)
def test_an_encoder_can_be_pickled(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inject(monkeypatch, CASES[name][0]())
    encoder = Encoder(backbone=name, frozen=True).build((3, 12, 12))
    images = torch.rand(2, 3, 12, 12)
    assert torch.equal(pickle.loads(pickle.dumps(encoder))(images), encoder(images))


@pytest.mark.parametrize("name", CASES)
def test_a_classifier_is_saved_with_its_network(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    inject(monkeypatch, CASES[name][0]())
    labels, method = Labels(names=("a", "b")), Softmax(encoder=Encoder(backbone=name, frozen=True))
    model = method.build(Spec(shape=(3, 12, 12), labels=labels))
    classifier = bind_model(model, labels, method)
    save(classifier, tmp_path / "m")
    images = torch.rand(2, 3, 12, 12)
    assert_close(load(tmp_path / "m").scores(images).log_odds, classifier.scores(images).log_odds, atol=1e-4)


FETCHED = (
    "timm:hf-hub:some/net",
    "timm:hf_hub:some/net",
    "transformers:some/net",
    "torchvision:segments",
    "open_clip:hf-hub:some/net",
)


@pytest.mark.parametrize("name", FETCHED)
def test_a_saved_classifier_never_downloads_its_network(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    inject(monkeypatch, timm())
    encoder = Encoder(backbone="timm:net", frozen=True)
    labels, method = Labels(names=("a", "b")), Softmax(encoder=encoder)
    model = method.build(Spec(shape=(3, 12, 12), labels=labels))
    named = Softmax(encoder=replace(encoder, backbone=name))
    save(bind_model(model, labels, named), tmp_path / "m")
    classifier = load(tmp_path / "m")

    def fetch(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was fetched")

    kinds = dict.fromkeys(("AutoModel", "AutoConfig", "AutoImageProcessor"), SimpleNamespace(from_pretrained=fetch))
    lists = {"list_models": lambda module: ["net"]}
    inject(monkeypatch, {"timm": {"create_model": fetch}, "open_clip": {"create_model": fetch}, "transformers": kinds})
    inject(monkeypatch, {"torchvision": {}, "torchvision.models": {"get_model": fetch, **lists}})
    with pytest.raises(StoreError, match="never downloads anything"):
        model_of(classifier)


def test_the_network_of_a_saved_classifier_gets_the_saved_weights(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    inject(monkeypatch, timm())
    labels, method = Labels(names=("a", "b")), Softmax(encoder=Encoder(backbone="timm:net", frozen=True))
    model = method.build(Spec(shape=(3, 12, 12), labels=labels))
    save(bind_model(model, labels, method), tmp_path / "m")
    create, asked = timm()["timm"]["create_model"], []

    def watched(name: str, *, pretrained: bool, **options: Any) -> Any:
        asked.append(pretrained)
        return create(name, pretrained=pretrained, **options)

    monkeypatch.setattr(sys.modules["timm"], "create_model", watched)
    again = model_of(load(tmp_path / "m"))
    assert set(asked) == {False}, "public weights are not asked for"
    images = torch.rand(2, 3, 12, 12)
    assert isinstance(again, HeadModel)
    assert isinstance(model, HeadModel)
    torch.testing.assert_close(again.encoder(images), model.encoder(images))


def test_weights_that_cannot_be_had_are_told_on_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = open_clip()
    create = modules["open_clip"]["create_model"]

    def offline(name: str, pretrained: str | None = None) -> Any:
        if pretrained:
            raise OSError("no network")
        return create(name)

    inject(monkeypatch, {"open_clip": {"create_model": offline}})
    encoder = Encoder(backbone="open_clip:net/tag").build((3, 12, 12))
    with pytest.raises(StoreError, match="no network"):
        encoder(torch.rand(1, 3, 12, 12))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("timm:other", r"timm cannot make \"other\" .*Unknown model"),
        ("tim:net", 'No library "tim". Did you mean "timm"'),
        ("open_clip:net", 'given "open_clip:net"'),
        ("transformers:x", r'"transformers" cannot be imported .*pip install transformers torch=='),
    ],
)
def test_wrong_requests(name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inject(monkeypatch, timm() | open_clip())
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match=message):
        build_backbone(name, (3, 12, 12))


def test_width_and_channels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    inject(monkeypatch, timm())
    with pytest.raises(UsageError, match="no width"):
        build_backbone("timm:net", (3, 12, 12), 8)
    with pytest.raises(UsageError, match="grey or colour"):
        build_backbone("timm:net", (4, 12, 12))
