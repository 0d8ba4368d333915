"""Files of weights trained without labels: what they hold, who takes them, and what cannot be trained."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset
from labelwise.images.describe.labels import Labels
from labelwise.methods import Softmax
from labelwise.support.errors import DataError, StoreError, UnsupportedError, UsageError
from labelwise.support.files import read_tensors, write_tensors
from labelwise.train.model import as_float
from labelwise.train.networks.encoder import Encoder
from labelwise.train.pretraining import ContrastModel, fresh_encoder, pretrain, read_encoder, write_encoder
from tests.changed import bind_model
from tests.conftest import blobs
from tests.pixels_of import px
from tests.train.test_contrast import CPU, SMALL, built, data_of, small


def weights(tmp_path: Path, kind: str = "simclr") -> tuple[Path, Tensor]:
    """A file of weights, and the features of the test images that they should give."""
    images = px(blobs().split("train"))
    method = small(kind)
    encoder, summary = pretrain(images, method, CPU)
    write_encoder(tmp_path / "encoder.safetensors", encoder, method.encoder, summary)
    return tmp_path / "encoder.safetensors", encoder.features(images)


def test_a_file_of_weights_is_an_encoder_for_any_method(tmp_path: Path, blob_data: Dataset) -> None:
    path, features = weights(tmp_path)
    stored = read_encoder(path)
    assert (stored.backbone, stored.width, stored.size, stored.frozen) == ("convnet", 4, 8, False)
    loaded = stored.build((3, 8, 8))
    images = px(blob_data.split("train"))
    loaded.fit_normalisation(images)
    assert torch.equal(loaded.features(images), features)
    classifier = fit(blob_data, Softmax(encoder=replace(stored, frozen=True), epochs=10), CPU)
    test = blob_data.split("test")
    assert (classifier.scores(px(test)).best == np.asarray(test.targets)).mean() >= 0.8
    about = read_tensors(path)[1]
    assert about["encoder"]["shape"] == [3, 8, 8]
    assert about["encoder"]["mean"] == pytest.approx(as_float(images).mean((0, 2, 3)).tolist(), abs=1e-4)


def test_weights_that_do_not_fit_are_an_error(tmp_path: Path, blob_data: Dataset) -> None:
    path, _ = weights(tmp_path)
    for wrong in (Encoder(backbone="resnet18", weights=str(path)), replace(read_encoder(path), width=8)):
        with pytest.raises(StoreError, match="do not fit this"):
            fit(blob_data, Softmax(encoder=wrong, epochs=1), CPU)
    write_tensors(tmp_path / "plain.safetensors", {"a": torch.zeros(1)}, {})
    with pytest.raises(StoreError, match="does not say which encoder"):
        read_encoder(tmp_path / "plain.safetensors")


@pytest.mark.parametrize("channels", [1, 3])
def test_a_backbone_with_public_weights_is_normalised_as_when_loaded(channels: int, tmp_path: Path) -> None:
    settings, shape = Encoder(backbone="resnet18", width=4), (channels, 16, 16)
    images = torch.randint(0, 256, (6, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    encoder = fresh_encoder(settings, shape)
    encoder.fit_normalisation(images)
    write_encoder(tmp_path / "e.safetensors", encoder, settings, {})
    again = read_encoder(tmp_path / "e.safetensors").build(shape)
    again.fit_normalisation(images)
    assert torch.equal(again.features(images), encoder.features(images))


def test_training_goes_on_from_weights(tmp_path: Path) -> None:
    path, _ = weights(tmp_path)
    model = replace(small("simclr"), encoder=read_encoder(path)).build(data_of(blobs()).spec)
    expected = read_tensors(path)[0]
    assert all(torch.equal(value, expected[name]) for name, value in model.encoder.backbone.state_dict().items())


def test_what_cannot_be_trained_is_an_error(tmp_path: Path, blob_data: Dataset) -> None:
    path, _ = weights(tmp_path)
    images = px(blob_data.split("train"))
    for encoder in (replace(read_encoder(path), frozen=True), replace(SMALL, code_size=5)):
        with pytest.raises(UsageError, match=r"leave out encoder\.frozen"):
            pretrain(images, replace(small("simclr"), encoder=encoder), CPU)
    with pytest.raises(UsageError, match="not features"):
        pretrain(torch.rand(8, 5), small("simclr"), CPU)
    with pytest.raises(DataError, match="at least two images; given 1"):
        pretrain(images[:1], small("simclr"), CPU)
    with pytest.raises(UsageError, match="this one is frozen"):
        ContrastModel(
            data_of(blob_data).spec, replace(read_encoder(path), frozen=True).build((3, 8, 8)), small("simclr")
        )
    with pytest.raises(UnsupportedError, match="knows none"):
        bind_model(built("simclr", data_of(blob_data)), Labels(names=("a", "b")))
