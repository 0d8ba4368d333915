"""Frozen encoders: weights that never change, images encoded once, and answers that do not depend on that."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from labelwise.api import explain, teach
from labelwise.core.arrays import LENGTH
from labelwise.core.load import load
from labelwise.core.store import save
from labelwise.fitting.encoding import write_features
from labelwise.fitting.fit import fit
from labelwise.fitting.torch_encoding import encode_dataset
from labelwise.fitting.training import training_data
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.sources.packs import pack
from labelwise.methods import Encoder, ImageMethod, Indicator, Multilabel, Softmax
from labelwise.methods.shared.linear import LinearModel
from labelwise.support.errors import DataError, Interrupted, StoreError, UsageError
from labelwise.train.augment import Augment
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.model import as_float
from labelwise.train.networks.backbone import Backbone
from labelwise.train.networks.backbones import build_backbone
from labelwise.train.networks.image_encoder import ImageEncoder
from labelwise.train.networks.networks import ConvNet
from tests.changed import model_of
from tests.pixels_of import px
from tests.stopping import stopped_at

CPU = Run(device="cpu")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Weights of a small network, as if it had been trained elsewhere."""
    torch.manual_seed(1)
    path = tmp_path_factory.mktemp("weights") / "convnet.safetensors"
    save_file(build_backbone("convnet", (3, 8, 8), 8).state_dict(), path)
    return str(path)


def frozen(path: str, code_size: int | None = None) -> Encoder:
    return Encoder(backbone="convnet", width=8, weights=path, frozen=True, code_size=code_size)


@pytest.mark.parametrize("kind", [Softmax, Indicator, Multilabel])
@pytest.mark.parametrize("code_size", [None, 6])
def test_training_leaves_the_backbone_alone(
    kind: type[ImageMethod], code_size: int | None, weights: str, blob_data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = kind(encoder=frozen(weights, code_size), epochs=3)
    data = training_data(blob_data)
    before = copy.deepcopy(method.build(data.spec).encoder.backbone.state_dict())  # type: ignore[union-attr]
    seen: list[int] = []
    plain = ConvNet.maps

    def counted(network: ConvNet, x: Tensor) -> Tensor:
        seen.append(len(x))
        return plain(network, x)

    monkeypatch.setattr(ConvNet, "maps", counted)
    model, _ = train(method, data, CPU)
    assert isinstance(model, LinearModel)
    validated = kind is not Multilabel and code_size is None  # training from the closed form stops by validation images
    encoded = len(data.train) + validated * len(data.val)
    assert sum(seen) == encoded, "each image is encoded once, statistics included"
    after = model.encoder.backbone.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert model.statistics.counts.sum() == len(data.train)
    assert not model.train().encoder.backbone.training
    assert model.encoder.training


def test_only_what_follows_is_trained(weights: str, blob_data: Dataset) -> None:
    data = training_data(blob_data)
    method = Softmax(encoder=frozen(weights, 6))
    model = method.build(data.spec)
    stage = next(iter(method.stages(model, data)))
    named = {id(value): name for name, value in model.named_parameters()}
    expected = {"encoder.project.weight", "encoder.project.bias", "head.weight", "head.bias"}
    assert {named[id(value)] for value in stage.parameters} == expected


def test_features_and_images_get_the_same_embeddings(weights: str, blob_data: Dataset) -> None:
    encoder = frozen(weights, 6).build((3, 8, 8)).train()
    images = px(blob_data.split("train"))
    method, data = Softmax(encoder=frozen(weights), augment=Augment(flip=True)), training_data(blob_data)
    with pytest.raises(UsageError, match="augmentation has no effect"):
        method.encode(method.build(data.spec), data)
    features = encoder.features(images)
    assert features.dtype == torch.float32
    assert features.shape == (len(images), encoder.backbone.width_out)
    assert encoder.training
    assert encoder.features(images) is features, "computed once"
    assert encoder.features(features) is features
    encoder.fit_features(features)
    exact = features.double().numpy()
    np.testing.assert_allclose(encoder.feature_mean, exact.mean(0), rtol=1e-5)
    floor = 1e-3 * exact.std(0).max()
    np.testing.assert_allclose(encoder.feature_std, exact.std(0).clip(floor), rtol=1e-4)
    embeddings = encoder(as_float(images))
    torch.testing.assert_close(encoder(features), embeddings)
    torch.testing.assert_close(encoder.pool(encoder.maps(as_float(images))), embeddings)


def test_embeddings_have_the_same_length_whatever_their_size(weights: str, blob_data: Dataset) -> None:
    encoder = frozen(weights).build((3, 8, 8))
    images = px(blob_data.split("train"))
    encoder.fit_features(encoder.features(images))
    varies = encoder.features(images).std(0) > 0
    wanted = LENGTH * float(varies.double().mean()) ** 0.5
    assert float(encoder(as_float(images)).square().sum(1).mean().sqrt()) == pytest.approx(wanted, rel=1e-4)


def test_normalisation_of_published_weights_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "resnet.safetensors"
    save_file(build_backbone("resnet18", (3, 96, 96), 4).state_dict(), path)
    settings = Encoder(backbone="resnet18", width=4, weights=str(path), size=96)
    for shape in ((3, 8, 8), (1, 8, 8)):
        encoder = settings.build(shape).eval()
        encoder.fit_normalisation(torch.randint(0, 256, (5, *shape), dtype=torch.uint8))
        assert encoder.mean.tolist() == pytest.approx([0.485, 0.456, 0.406])
        x = torch.rand(2, *shape)
        large = torch.nn.functional.interpolate(x, (96, 96), mode="bicubic", antialias=True).clamp(0, 1)
        expected = encoder.backbone((large - encoder.mean[:, None, None]) / encoder.std[:, None, None])
        torch.testing.assert_close(encoder(x), expected)
    with pytest.raises(StoreError, match=r"encoder\.size"):
        Encoder(backbone="resnet18", width=4, weights=str(path)).build((3, 8, 8))(torch.rand(1, 3, 8, 8))


def test_own_weights_of_a_network_without_published_ones_are_normalised_by_the_data(weights: str) -> None:
    encoder = frozen(weights).build((3, 8, 8))
    encoder.fit_normalisation(torch.full((2, 3, 8, 8), 51, dtype=torch.uint8))
    assert encoder.mean.tolist() == pytest.approx([0.2] * 3)


@pytest.mark.parametrize("kind", [Softmax, Indicator])
def test_a_saved_classifier_opens_without_the_file_of_weights(
    kind: type[ImageMethod], tmp_path: Path, blob_data: Dataset
) -> None:
    path = tmp_path / "weights.safetensors"
    torch.manual_seed(1)
    save_file(build_backbone("convnet", (3, 8, 8), 8).state_dict(), path)
    classifier = fit(blob_data, kind(encoder=frozen(str(path))), CPU)
    test = blob_data.split("test")
    scores = classifier.scores(px(test)).log_odds
    assert (scores.argmax(1) == torch.as_tensor(test.targets)).double().mean() > 0.8
    save(classifier, tmp_path / "model.lw")
    path.unlink()
    again = load(tmp_path / "model.lw")
    np.testing.assert_allclose(again.scores(test.images).log_odds, scores, rtol=1e-4, atol=1e-4)
    assert explain(again, test.images[:1]).heat.shape == (8, 8)
    assert len(teach(again, "another", examples=test.images[:5]).labels) == 5
    images = as_float(px(test)[:2]).requires_grad_()
    model_of(again).encode_images(images).sum().backward()
    assert images.grad is not None
    assert images.grad.abs().sum() > 0


def test_an_interrupted_run_continues_to_the_same_weights(weights: str, tmp_path: Path, blob_data: Dataset) -> None:
    data = training_data(blob_data)
    method = Indicator(encoder=frozen(weights), epochs=4, curriculum=(1,))
    whole, _ = train(method, data, CPU)
    with stopped_at(45), pytest.raises(Interrupted):
        train(method, data, Run(device="cpu", folder=tmp_path / "run"))
    resumed, _ = train(method, data, Run(device="cpu", folder=tmp_path / "run", resume=True))
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def clusters(per_label: int, size: int, seed: int) -> Split:
    """Features of 12 labels that overlap."""
    made = torch.Generator().manual_seed(seed)
    centres = torch.randn(12, size, generator=torch.Generator().manual_seed(99))
    targets = torch.arange(12).repeat(per_label)
    noise = torch.randn(len(targets), size, generator=made)
    return Split(images=0.12 * centres[targets] + noise * 0.7 + 3, targets=targets)


@pytest.mark.parametrize("per_label", [5, 40])
def test_defaults_are_as_good_as_logistic_regression(per_label: int) -> None:
    size = 400
    known, test = clusters(per_label, size, 0), clusters(100, size, 1)
    data = Dataset(
        name="clusters",
        labels=Labels(names=tuple("abcdefghijkl")),
        splits={"train": known, "val": clusters(2, size, 2)},
    )
    rival = LogisticRegression(max_iter=1000).fit(px(known).numpy(), torch.as_tensor(known.targets).numpy())
    wanted = rival.score(px(test).numpy(), torch.as_tensor(test.targets).numpy())
    for method in (Softmax(), Multilabel()):
        right = fit(data, method, CPU).scores(px(test)).best == torch.as_tensor(test.targets)
        assert float(right.double().mean()) > wanted - 0.015, method.name  # a standard error of 1,200 answers


def test_encoded_data_are_read_back(weights: str, tmp_path: Path, blob_data: Dataset) -> None:
    settings = Encoder(backbone="convnet", width=8, weights=weights)
    encoded = encode_dataset(blob_data, settings, "cpu")
    assert encoded.shape == (64,)
    direct = ImageEncoder(backbone_of(weights), (3, 8, 8)).eval()
    images = as_float(px(blob_data.split("test")))
    torch.testing.assert_close(px(encoded.split("test")), direct.trunk(images))
    write_features(encoded, tmp_path / "sub" / "blobs.npz")
    again = pack(tmp_path / "sub" / "blobs.npz")
    assert again.labels.names == blob_data.labels.names
    for name, split in encoded.splits.items():
        assert torch.equal(px(again.split(name)), px(split))
        assert torch.equal(torch.as_tensor(again.split(name).targets), torch.as_tensor(split.targets))
    assert [file.name for file in (tmp_path / "sub").iterdir()] == ["blobs.npz"]


def backbone_of(weights: str) -> Backbone:
    made = Encoder(backbone="convnet", width=8, weights=weights).build((3, 8, 8))
    return made.backbone


def test_encoding_requests_that_make_no_sense(weights: str, tmp_path: Path, blob_data: Dataset) -> None:
    encoded = encode_dataset(blob_data, frozen(weights), "cpu")
    with pytest.raises(DataError, match="already has features"):
        encode_dataset(encoded, frozen(weights))
    with pytest.raises(UsageError, match="leave out code_size 4"):
        encode_dataset(blob_data, frozen(weights, 4))
    with pytest.raises(DataError, match="Encode it first"):
        write_features(blob_data, tmp_path / "x.npz")
    with pytest.raises(UsageError, match=r"\.npz"):
        write_features(encoded, tmp_path / "x.csv")
    with pytest.raises(UsageError, match='A frozen "convnet" would keep its random weights'):
        encode_dataset(blob_data, Encoder(backbone="convnet"))


@pytest.mark.parametrize("size", [0, -3])
def test_size_is_a_side(size: int) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        Encoder(size=size).build((3, 8, 8))


def test_precomputed_features_have_nothing_to_freeze() -> None:
    encoder = Encoder(frozen=True).build((6,))
    assert not encoder.frozen
    x: Tensor = torch.rand(3, 6)
    torch.testing.assert_close(encoder(x), x * LENGTH / 6**0.5)
