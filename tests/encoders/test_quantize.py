"""An encoder in 8 bits: nearly the same features, another id, saved with the classifier."""

from pathlib import Path

import numpy as np
import pytest

import labelwise as lw
from labelwise.encoders.encoder import Precomputed
from labelwise.encoders.quantize import quantized
from labelwise.images.images import ArrayImages
from labelwise.support.errors import UsageError
from tests.conftest import blobs
from tests.encoders.samples import pixels, save_tiny, tiny_encoder

pytest.importorskip("onnx")


def test_features_are_nearly_the_same_under_another_id(tmp_path: Path) -> None:
    encoder, images = tiny_encoder(tmp_path), pixels(20)
    small = quantized(encoder, ArrayImages(images))
    wanted, features = encoder(images), small(images)
    assert 0 < np.abs(features - wanted).max() < 0.05 * np.abs(wanted).max()
    assert small.id != encoder.id
    assert small.reference is None
    assert np.array_equal(small(images[3:4])[0], features[3])
    assert quantized(encoder, ArrayImages(images)).id == small.id


def test_only_an_onnx_file_has_8_bits(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="int8 needs an encoder in one ONNX file"):
        quantized(Precomputed(3), ArrayImages(pixels(2)))


def test_without_its_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(name, name="onnx")

    monkeypatch.setattr("labelwise.encoders.quantize.import_module", absent)
    with pytest.raises(UsageError, match=r"needs the package onnx: pip install 'labelwise\[export\]'"):
        quantized(tiny_encoder(tmp_path), ArrayImages(pixels(2)))


def test_a_classifier_holds_its_8_bit_encoder(tmp_path: Path) -> None:
    data = blobs(per_label=30)
    images = data.splits["test"].images
    plain, small = (
        lw.fit(data, "discriminant", encoder=str(save_tiny(tmp_path)), precision=precision)
        for precision in ("float32", "int8")
    )
    assert small.encoder.id != plain.encoder.id
    small.save(tmp_path / "small.lw")
    (tmp_path / "tiny.onnx").unlink()
    again = lw.load(tmp_path / "small.lw")
    assert again.encoder.id == small.encoder.id
    assert np.array_equal(again.predict_proba(images), small.predict_proba(images))
    assert np.mean(again.predict(images) == plain.predict(images)) > 0.9
