"""Fit to names alone: labels are words that an encoder knows, new ones are sentences, and it opens without what made it."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import labelwise as lw
from labelwise.cli.fit import _by_words
from labelwise.encoders.registry import is_installed
from labelwise.fitting.by_words import WordsOptions, calibrated, occurring_line
from labelwise.images.describe.labels import Labels
from labelwise.methods.words.sharpening import Sharpened
from labelwise.methods.words.vocabulary import default_vocabulary, general_words, sentence
from labelwise.support.errors import UnsupportedError, UsageError
from tests.encoders.hub_reader import HUB
from tests.methods.words.samples import colours, pictures, read_colours

NAMES = ["scarlet", "emerald", "azure"]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    read_colours(monkeypatch)
    return colours(tmp_path)


def test_names_that_no_image_had_are_answered(words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, targets = pictures()
    classifier = lw.fit(images, names=NAMES, vocabulary=str(words))
    assert np.mean(classifier.scores(images).best == targets) > 0.9
    assert classifier.unseen == frozenset(NAMES)
    classifier.save(tmp_path / "words.lw")
    wanted = classifier.predict_proba(images)
    shutil.rmtree(words)
    monkeypatch.setattr("labelwise.images.describe.sentences.minilm", None)  # nothing that is known is read again
    assert np.array_equal(lw.load(tmp_path / "words.lw").predict_proba(images), wanted)


def test_a_label_does_not_change_the_scores_of_others(words: Path) -> None:
    images, _ = pictures()
    classifier = lw.fit(images, names=NAMES, vocabulary=str(words))
    more = classifier.teach("a colour", texts=["something yellow", "something blue"])
    assert np.array_equal(more.scores(images).raw[:, :3], classifier.scores(images).raw)
    assert more.labels.names[-1] == "a colour"


def test_any_sentence_can_be_asked(words: Path) -> None:
    images, targets = pictures()
    classifier = lw.fit(images, names=NAMES, vocabulary=str(words), sharpen=False)
    yes = np.array([each.probability for each in classifier.ask(images, text="something red in the dark")])
    assert yes[targets == 0].min() > yes[targets != 0].max()
    by_label = [each.probability for each in classifier.ask(images, "scarlet")]
    assert np.allclose(
        by_label, [each.probability for each in classifier.ask(images, text="a photo of a scarlet")], atol=1e-6
    )


def test_a_yes_compares_an_image_with_the_others(words: Path, tmp_path: Path) -> None:
    images, targets = pictures()
    classifier = lw.fit(images, names=NAMES, vocabulary=str(words), sharpen=False)
    scores = classifier.scores(images)
    plain = replace(classifier, calibration=replace(classifier.calibration, background=None)).scores(images)
    assert np.array_equal(plain.probabilities, scores.probabilities)
    truth = np.eye(3, dtype=bool)[targets]
    assert scores.yes[truth].mean() > 0.9
    assert scores.yes[~truth].mean() < 0.05
    classifier.save(tmp_path / "words.lw")
    assert np.array_equal(lw.load(tmp_path / "words.lw").scores(images).yes, scores.yes)
    assert lw.calibrate(classifier, images, targets).calibration.background is None


def test_examples_are_no_way_to_teach_words(words: Path) -> None:
    images, _ = pictures()
    with pytest.raises(UnsupportedError, match="cannot learn"):
        lw.fit(images, names=NAMES, vocabulary=str(words)).teach("new", images[:2])


def test_images_say_which_names_occur(words: Path) -> None:
    images, targets = pictures()
    some = images.select(np.flatnonzero(targets == 0))
    lines: list[str] = []
    classifier = lw.fit(some, "words", lw.Run(tell=lines.append), names=NAMES, vocabulary=str(words))
    expected = classifier.origin.summary["expected_images"]
    assert max(expected, key=expected.get) == "scarlet"
    assert np.mean(classifier.scores(some).best == 0) == 1
    plain = lw.fit(some, names=NAMES, vocabulary=str(words), sharpen=False)
    assert "expected_images" not in plain.origin.summary


def test_of_many_names_those_of_most_images_are_said() -> None:
    labels = Labels(names=tuple(f"bird {i}" for i in range(30)))
    counts = np.where(np.arange(30) == 7, 12.0, np.where(np.arange(30) == 3, 4.4, 0.1))
    line = occurring_line(labels, Sharpened(rows=np.zeros((30, 2)), counts=counts, belief=0.0))
    assert line == "Names of most images: bird 7 (12 images), bird 3 (4 images)."
    believed = occurring_line(labels, Sharpened(rows=np.zeros((30, 2)), counts=counts, belief=1.0))
    assert believed.startswith("About 2 of 30 names occur: bird 7, bird 3,")


def test_what_no_word_is_near_is_said(words: Path) -> None:
    images, _ = pictures()
    lines: list[str] = []
    classifier = lw.fit(images, "words", lw.Run(tell=lines.append), names=["scarlet", "zz"], vocabulary=str(words))
    assert "scarlet (nearest: Red, " in lines[0]
    assert "no similar word for 1 of 2 labels" in lines[1]
    assert lines[1].endswith("zz. Give images of these.")
    assert classifier.origin.summary["words"]["scarlet"] > 0.99


def test_the_farther_words_are_the_less_sure_answers_are(words: Path) -> None:
    images, _ = pictures()
    classifier = lw.fit(images, names=NAMES, vocabulary=str(words))
    sure = [calibrated(classifier, near).scores(images).probabilities.max(1).mean() for near in (0.96, 0.8, 0.6)]
    assert sure == sorted(sure, reverse=True)
    assert len(set(sure)) == 3


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"templates": "a photo"}, "one {} where the name goes"),
        ({"epochs": "3"}, "given epochs"),
        ({"templates": "{} and {}"}, "given {} and {}"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        WordsOptions.of(settings)


def test_templates_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "birds.txt").write_text("a photo of a {}, a bird\n\nthe song of a {}\n")
    assert WordsOptions.of({"templates": str(tmp_path / "birds.txt")}).templates == (
        "a photo of a {}, a bird",
        "the song of a {}",
    )


def test_without_a_sentence_encoder_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelwise.fitting.by_words.find_spec", lambda name: None)
    images, _ = pictures()
    with pytest.raises(UsageError, match="pip install"):
        lw.fit(images, names=NAMES)


def test_a_vocabulary_is_a_closed_form(words: Path, tmp_path: Path) -> None:
    images, _ = pictures()
    lw.fit(images, names=NAMES, vocabulary=str(words)).save(tmp_path / "words.lw")
    with pytest.raises(UsageError, match="given one of words"):
        lw.fit(images, names=NAMES, vocabulary=str(tmp_path / "words.lw"))


@pytest.mark.parametrize(
    ("name", "said"), [("004.Barn_Owl", "Barn Owl"), ("BMW X5", "BMW X5"), ("black-footed", "black-footed")]
)
def test_names_become_sentences(name: str, said: str) -> None:
    assert sentence(name) == f"a photo of a {said}"
    assert sentence(name, "{}!") == f"{said}!"


@pytest.mark.skipif(not is_installed(), reason="needs the package of weights")
def test_the_default_encoder_has_a_thousand_words() -> None:
    known = default_vocabulary()
    assert known.vectors.shape == (1000, 384)
    assert known.names == general_words()
    assert known.rows.shape == (1000, 1281)
    assert known.names[0] == "tench"
    assert np.allclose(np.linalg.norm(known.vectors, axis=1), 1, atol=1e-3)
    assert np.abs(known.rows.mean(0)).max() < 1e-5


def test_the_shell_takes_words_where_they_are_at_hand(words: Path) -> None:
    assert _by_words("words", "auto", ["epochs=3"])
    assert not _by_words("zero_label", "auto", [])
    assert not _by_words("auto", "auto", ["epochs=3"])
    assert _by_words("auto", "auto", ["templates=a {}"]) == is_installed()
    assert _by_words("auto", str(HUB / "clip"), [])
    assert not _by_words("auto", str(HUB / "dinov2"), [])
