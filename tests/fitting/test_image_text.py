"""Names alone with an image-text encoder: a saved classifier reads sentences, is asked, taught and searched, and needs no folder."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import labelwise as lw
from labelwise.support.errors import UnsupportedError, UsageError
from tests.conftest import blobs
from tests.encoders.hub_reader import HUB, brought, read_in_python
from tests.encoders.test_hub import expected, unit

NAMES = ["red", "green", "blue"]


@pytest.fixture(params=["clip", "siglip"])
def network(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    read_in_python(monkeypatch)
    return brought(request.param, tmp_path)


def pixels(n: int = 6) -> Any:
    return np.random.default_rng(0).integers(0, 256, (n, 3, 16, 16), np.uint8)


def test_scores_are_the_scaled_cosines_of_the_networks(network: Path) -> None:
    images, hub = pixels(), lw.encoders.registry.hub_of(str(network))
    assert hub is not None
    classifier = lw.fit(images, names=NAMES, encoder=str(network), sharpen=False)
    cosines = unit(hub.images(images)) @ hub.texts.encode([f"a photo of a {name}" for name in NAMES]).T
    logits = hub.logits.scale * cosines + hub.logits.bias
    raw = classifier.scores(images).raw
    assert np.allclose(raw - raw[:, :1], logits - logits[:, :1], atol=1e-3)
    if hub.logits.sigmoid:
        assert np.allclose(classifier.scores(images).log_odds, logits, atol=1e-4)


def test_a_saved_classifier_needs_no_folder(network: Path, tmp_path: Path) -> None:
    images = pixels()
    classifier = lw.fit(images, names=NAMES, encoder=str(network))
    classifier.save(tmp_path / "words.lw")
    asked = classifier.ask(images, text="green at night")
    shutil.rmtree(network)
    again = lw.load(tmp_path / "words.lw")
    assert np.array_equal(again.predict_proba(images), classifier.predict_proba(images))
    assert again.ask(images, text="green at night") == asked


def test_new_labels_are_sentences_and_change_no_other_score(network: Path) -> None:
    images = pixels()
    classifier = lw.fit(images, names=NAMES, encoder=str(network))
    more = classifier.teach("at night", texts=["a photo of the blue in the dark", "blue at night"])
    assert np.array_equal(more.scores(images).raw[:, :3], classifier.scores(images).raw)
    assert more.labels.names[-1] == "at night"


def test_several_templates_are_one_label_of_unit_length(network: Path) -> None:
    hub = lw.encoders.registry.hub_of(str(network))
    assert hub is not None
    classifier = lw.fit(pixels(), names=NAMES, encoder=str(network), templates="the {} at night", sharpen=False)
    embeddings = classifier.label_embeddings
    assert np.allclose(np.linalg.norm(embeddings[:, :-1], axis=1), hub.logits.scale, rtol=1e-5)


def test_examples_and_words_join_with_an_image_text_encoder(network: Path) -> None:
    data = blobs(3, per_label=6)
    classifier = lw.fit(data, "discriminant", encoder=str(network), words=True)
    assert classifier.head.kind == "words_and_images"
    assert classifier.ask(data.splits["train"].images, text="green at night")


def test_an_encoder_without_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="reads no texts"):
        lw.fit(pixels(), names=NAMES, encoder=str(HUB / "dinov2"))
    with pytest.raises(UsageError, match="no words of its own"):
        lw.fit(pixels(), names=NAMES, encoder="efficientnet_lite0+x")


def test_logits_of_torch_are_reproduced(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_python(monkeypatch)
    stored, hub = expected("siglip"), lw.encoders.registry.hub_of(str(HUB / "siglip"))
    assert hub is not None
    texts = hub.texts.encode(stored["sentences"].tolist())
    assert np.allclose(
        hub.logits.scale * unit(stored["images"]) @ texts.T + hub.logits.bias, stored["logits"], atol=1e-3
    )


def test_a_gallery_is_searched_for_a_sentence(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = pixels()
    classifier = lw.fit(images, names=NAMES, encoder=str(network))
    yes = [each.probability for each in classifier.ask(images, text="green at night")]
    matches = classifier.retrieve_by_text("green at night", images, k=3)
    assert [each.score for each in matches] == pytest.approx(sorted(yes, reverse=True)[:3])
    assert len(classifier.retrieve_by_text("green", images, k=99)) == len(images)


def test_a_gallery_is_not_searched_for_a_sentence_that_nobody_reads() -> None:
    images = pixels()
    classifier = lw.fit((images, ["a", "b"] * 3), "discriminant", encoder=str(HUB / "clip"))
    with pytest.raises(UnsupportedError, match="cannot be asked about a sentence"):
        classifier.retrieve_by_text("green", images)
