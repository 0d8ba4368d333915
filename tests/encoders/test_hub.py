"""Folders of model hubs: the same embeddings as torch's, the preprocessing of the folder, and nothing that contradicts itself."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelwise.encoders.hub import Hub, is_hub, open_hub
from labelwise.encoders.registry import open_encoder
from labelwise.support.errors import StoreError, UsageError
from tests.encoders.hub_reader import HUB, read_in_python

DUAL = ("clip", "siglip")


def expected(name: str) -> Any:
    return np.load(HUB / name / "expected.npz")


def opened(name: str, folder: Path | None = None) -> Hub:
    return open_hub(folder or HUB / name)


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def copied(name: str, folder: Path, file: str, **settings: Any) -> Path:
    target = folder / name
    shutil.copytree(HUB / name, target)
    plain = json.loads((target / file).read_text())
    (target / file).write_text(json.dumps(plain | settings))
    return target


@pytest.mark.parametrize("name", [*DUAL, "dinov2"])
def test_images_get_the_embeddings_of_torch(name: str) -> None:
    stored, encoder = expected(name), opened(name).images
    made = np.concatenate(
        [encoder._run(pixels[None], [encoder.card.output])[0] for pixels in _denormalised(stored, encoder)]
    )
    wanted = unit(stored["images"]) if name == "siglip" else stored["images"]  # the whole network gives unit length
    assert np.allclose(made, wanted, atol=1e-4)


def _denormalised(stored: Any, encoder: Any) -> Any:
    """Pixels that the card normalises to those that torch was given."""
    mean, std = (np.array(each, np.float32)[:, None, None] for each in (encoder.card.mean, encoder.card.std))
    return (stored["pixels"] * std + mean) * 255


@pytest.mark.parametrize("name", DUAL)
def test_sentences_get_the_embeddings_of_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_python(monkeypatch)
    stored, texts = expected(name), opened(name).texts
    assert np.allclose(texts.encode(stored["sentences"].tolist()), unit(stored["texts"]), atol=1e-4)


@pytest.mark.parametrize("name", DUAL)
def test_the_tokenizer_of_the_folder_is_read(name: str) -> None:
    pytest.importorskip("tokenizers", reason="the extra text is not installed")
    texts, stored = opened(name).texts, expected(name)
    for sentence, tokens in zip(stored["sentences"].tolist(), stored["tokens"].tolist(), strict=True):
        assert texts.tokens(sentence)["input_ids"][0].tolist() == [each for each in tokens if each >= 0]


def test_scale_and_bias_are_those_of_the_whole_network(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_python(monkeypatch)
    stored = expected("siglip")
    logits = opened("siglip").logits
    assert logits.sigmoid
    cosines = unit(stored["images"]) @ unit(stored["texts"]).T
    assert np.allclose(logits.scale * cosines + logits.bias, stored["logits"], atol=1e-3)
    assert logits.bias == pytest.approx(-2, abs=1e-3)


def test_a_folder_may_state_the_scale(tmp_path: Path) -> None:
    logits = opened("clip", copied("clip", tmp_path, "config.json", logit_scale=1.5)).logits
    assert logits.scale == pytest.approx(np.exp(1.5))
    assert logits.bias == 0
    usual = opened("clip").logits
    assert (round(usual.scale), usual.sigmoid) == (100, False)
    assert "usual" in usual.source


def test_a_configuration_that_names_the_kind_alone_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As published ONNX folders of MobileCLIP have it: no sizes, no logit_scale."""
    read_in_python(monkeypatch)
    folder = copied("clip", tmp_path, "config.json")
    (folder / "config.json").write_text('{"model_type": "clip"}')
    plain, full = opened("clip", folder), opened("clip")
    assert plain.images.shape == full.images.shape
    texts = ["red", "a photo of blue"]
    assert np.array_equal(plain.texts.encode(texts), full.texts.encode(texts))
    assert plain.logits.scale == pytest.approx(100)


def test_the_preprocessing_of_the_folder_is_in_the_card_and_the_digest(tmp_path: Path) -> None:
    dinov2 = opened("dinov2").images
    assert (dinov2.shape, dinov2.card.crop, dinov2.fit) == ((3, 20, 20), 16, "crop bicubic")
    assert dinov2.card.mean == pytest.approx((0.485, 0.456, 0.406))
    clip = opened("clip").images
    assert (clip.shape, clip.card.crop, clip.fit) == ((3, 16, 16), None, "crop bicubic")
    other = opened("clip", copied("clip", tmp_path, "preprocessor_config.json", image_mean=[0.4] * 3)).images
    assert other.id != clip.id


def test_bytes_that_are_not_normalised_or_not_divided_are_so(tmp_path: Path) -> None:
    plain = opened("clip", copied("clip", tmp_path, "preprocessor_config.json", do_normalize=False)).images
    assert not any(plain.card.mean or [1])
    assert plain.normalised(np.full((1, 3, 2, 2), 255, np.uint8)).max() == pytest.approx(1)
    tmp = tmp_path / "raw"
    tmp.mkdir()
    raw = opened("clip", copied("clip", tmp, "preprocessor_config.json", do_normalize=False, do_rescale=False)).images
    assert raw.normalised(np.full((1, 3, 2, 2), 255, np.uint8)).max() == pytest.approx(255)


@pytest.mark.parametrize(
    ("file", "settings", "words"),
    [
        ("preprocessor_config.json", {"size": {"shortest_edge": 32}, "crop_size": 32}, "contradicts itself"),
        ("preprocessor_config.json", {"resample": 1}, "Bilinear and bicubic"),
        ("preprocessor_config.json", {"do_center_crop": False}, "any shape"),
        ("preprocessor_config.json", {"crop_size": 17}, "smaller square"),
        ("config.json", {"vision_config": {"image_size": 32}}, "contradicts itself"),
    ],
)
def test_a_folder_that_contradicts_itself_is_refused(
    tmp_path: Path, file: str, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(StoreError, match=words):
        opened("clip", copied("clip", tmp_path, file, **settings))


def test_embeddings_that_are_not_in_the_space_of_texts_are_refused(tmp_path: Path) -> None:
    folder = copied("clip", tmp_path, "config.json")
    shutil.copy(HUB / "dinov2/onnx/model.onnx", folder / "onnx/vision_model.onnx")
    with pytest.raises(StoreError, match="image_embeds is expected"):
        open_hub(folder)


def test_a_folder_that_lacks_a_part_says_which(tmp_path: Path) -> None:
    folder = copied("clip", tmp_path, "config.json")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(StoreError, match=r"lacks tokenizer\.json"):
        _ = open_hub(folder).texts
    with pytest.raises(UsageError, match="reads no texts"):
        _ = opened("dinov2").texts
    (folder / "config.json").write_text("[1]")
    with pytest.raises(StoreError, match="a table"):
        open_hub(folder)
    shutil.rmtree(folder / "onnx")
    assert not is_hub(folder)


def test_a_folder_is_an_encoder(tmp_path: Path) -> None:
    encoder = open_encoder(str(HUB / "dinov2"))
    assert encoder.name == "dinov2"
    assert encoder(np.zeros((1, 3, 20, 20), np.uint8)).shape == (1, 8)
    with pytest.raises(UsageError, match="No encoder"):
        open_encoder(str(tmp_path))


def test_a_configuration_of_open_clip_is_read(tmp_path: Path) -> None:
    folder = copied("clip", tmp_path, "config.json")
    for name in ("config.json", "preprocessor_config.json"):
        (folder / name).unlink()
    preprocess = {"mean": [0.5] * 3, "std": [0.25] * 3, "interpolation": "bicubic", "resize_mode": "shortest"}
    model = {"embed_dim": 8, "vision_cfg": {"image_size": 16}, "text_cfg": {"context_length": 12}}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": model, "preprocess_cfg": preprocess}))
    assert opened("clip", folder).images.id == opened("clip").images.id
