"""Joined encoders: features side by side, each at unit length; the cache has those of each part."""

from pathlib import Path

import numpy as np
import pytest

from labelwise.encoders.encode import encode
from labelwise.encoders.encoder import Array, Features
from labelwise.encoders.joined import JoinedEncoder
from labelwise.encoders.onnx import OnnxEncoder
from labelwise.encoders.registry import open_encoder
from labelwise.images.images import ArrayImages
from labelwise.support.errors import UsageError
from tests.encoders.samples import pixels, save_tiny, tiny_graph


def files(folder: Path) -> list[str]:
    paths = []
    for seed in range(2):
        place = folder / f"a folder {seed}"
        place.mkdir()
        paths.append(str(save_tiny(place, tiny_graph(seed=seed), name=f"tiny {seed}")))
    return paths


def test_features_are_those_of_the_parts_at_unit_length(tmp_path: Path) -> None:
    one, other = files(tmp_path)
    joined = open_encoder(f"{one}+{other}")
    assert isinstance(joined, JoinedEncoder)
    assert (joined.name, joined.width) == ("tiny 0+tiny 1", 10)
    images = pixels(4)
    rows = joined(images)
    for part, path in ((rows[:, :5], one), (rows[:, 5:], other)):
        alone = open_encoder(path)(images)
        assert np.allclose(np.linalg.norm(part, axis=1), 1, atol=1e-6)
        assert np.allclose(part, alone / np.linalg.norm(alone, axis=1, keepdims=True), atol=1e-6)
    assert np.array_equal(joined(images[2:3])[0], rows[2])
    assert open_encoder(f"{other}+{one}").id != joined.id


def test_what_is_never_negative_is_taken_at_its_root() -> None:
    rows = JoinedEncoder.join(None, [np.array([[4.0, 0, 12]], np.float32)])  # type: ignore[arg-type]
    assert np.allclose(rows, [[0.5, 0, 0.75**0.5]])


def test_parts_are_encoded_once_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path / "cache"))
    one, other = files(tmp_path)
    images = ArrayImages(pixels(6))
    first = encode(open_encoder(one), images).values
    seen: list[str] = []
    real = OnnxEncoder.__call__

    def counted(encoder: OnnxEncoder, x: Array) -> Features:
        seen.append(encoder.name)
        return real(encoder, x)

    monkeypatch.setattr(OnnxEncoder, "__call__", counted)
    values = encode(open_encoder(f"{one}+{other}"), images).values
    assert set(seen) == {"tiny 1"}
    assert np.allclose(values[:, :5], first / np.linalg.norm(first, axis=1, keepdims=True), atol=1e-6)


def test_encoders_of_other_images_are_not_joined(tmp_path: Path) -> None:
    one, other = files(tmp_path)
    with pytest.raises(UsageError, match="joins an encoder with itself"):
        open_encoder(f"{one}+{one}")
    (tmp_path / "large").mkdir()
    large = save_tiny(tmp_path / "large", tiny_graph((3, 9, 9)), shape=[3, 9, 9])
    with pytest.raises(UsageError, match=r"takes images of shape|see the same images"):
        open_encoder(f"{one}+{large}")
    assert open_encoder(f"{other}+{one}").shape == (3, 8, 8)
