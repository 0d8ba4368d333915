"""Words and images joined: weights follow what tells training images apart; nothing is held out; labels are taught and saved."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import labelwise as lw
from labelwise.core.arrays import softmax
from labelwise.core.saved_parts import pack, unpack
from labelwise.images.describe.labels import Labels
from labelwise.methods.discriminant.fit import fit_discriminant
from labelwise.methods.words.head import WordsHead
from labelwise.methods.words.vocabulary import Vocabulary
from labelwise.methods.words.words_and_images import WordsAndImagesFit, choose_shares, spread_scores
from labelwise.support.errors import UsageError
from tests.methods.words.samples import Reader, colours, pictures, read_colours

NAMES = ("red", "green", "blue", "yellow")
WIDTH = 12


def sample(examples: int, noise: float, seed: int = 0) -> tuple[Any, Any]:
    """Features of four labels, the first four of which are the labels themselves."""
    rng, targets = np.random.default_rng(seed), np.repeat(np.arange(4), examples)
    features = np.abs(rng.normal(size=(len(targets), WIDTH))) * noise
    features[np.arange(len(targets)), targets] += 1
    return features.astype(np.float32), targets


def words(monkeypatch: pytest.MonkeyPatch, strength: float) -> WordsHead:
    read_colours(monkeypatch)
    rows = np.zeros((4, WIDTH + 1), np.float32)
    rows[np.arange(4), np.arange(4)] = strength
    vectors = Reader().encode(NAMES)
    known = Vocabulary(names=NAMES, vectors=vectors, rows=rows - rows.mean(0), scale="plain")
    texts = tuple((name,) for name in NAMES)
    read = known.read(texts)[0].astype(np.float32)
    return WordsHead(labels=Labels(names=NAMES, texts=texts), rows=read, vocabulary=known)


def joined(monkeypatch: pytest.MonkeyPatch, examples: int, strength: float, noise: float = 1.0) -> WordsAndImagesFit:
    features, targets = sample(examples, noise)
    fitted = fit_discriminant(features, targets, Labels(names=NAMES))
    return WordsAndImagesFit.of(fitted, words(monkeypatch, strength), features, 1.0)


def accuracy(head: Any, noise: float) -> float:
    features, targets = sample(100, noise, seed=9)
    scores = head.score(head.embed(features), head.embed_labels(Labels(names=NAMES)))
    return float((scores.argmax(1) == targets).mean())


def test_both_are_better_than_images_alone_where_names_say_something(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = joined(monkeypatch, 3, 8.0)
    assert accuracy(fit.head, 1.0) > accuracy(fit.head.images, 1.0) + 0.05
    assert fit.head.shares[1] > 0.1


def test_labels_are_read_together_as_they_are_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = words(monkeypatch, 8.0).vocabulary
    texts = [("red",), ("blue", "something yellow"), ("red", "green")]
    rows, near = vocabulary.read(texts)
    alone = [vocabulary.read([each]) for each in texts]
    assert np.allclose(rows, np.concatenate([row for row, _ in alone]), atol=1e-6)
    assert near == pytest.approx(np.concatenate([alike for _, alike in alone]))


def test_words_that_mislead_lose_their_say(monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = joined(monkeypatch, 20, 8.0).head, joined(monkeypatch, 20, -8.0).head
    assert bad.shares[1] < 0.5 * good.shares[1]
    assert accuracy(bad, 1.0) > accuracy(bad.images, 1.0) - 0.03


def weights_by_grid(fit: WordsAndImagesFit, examples: int) -> tuple[float, float]:
    """The likeliest weights with a doubt that counts as one image, by trying many."""
    left, (_, targets) = fit.image_fit.leave_one_out("copies"), sample(examples, 1.0)
    grid, here = np.geomspace(0.05, 20, 90), np.arange(len(targets))

    def loss(a: float, c: float) -> float:
        return float(-np.log(softmax(a * left.scores.astype(float) + c * fit.word_scores)[here, targets]).sum())

    def doubt(weights: Any, start: Any) -> float:
        return float(0.5 * (np.log(np.array(weights) / start) ** 2).sum())

    scale = min(grid, key=lambda c: loss(0, c) + doubt([c], [1.0]))
    explained = 1 - loss(0, scale) / (len(targets) * np.log(len(NAMES)))
    others = examples * (1 - explained)  # one image is left out
    start = np.array([others / left.scores.std().clip(max=1), scale]) / (others + explained)
    alone = min(grid, key=lambda a: loss(a, 0) + doubt([a], start[:1]))
    a, c = min(((a, c) for a in grid for c in grid), key=lambda pair: loss(*pair) + doubt(pair, start))
    return a, c * (1 - 0.5 / (loss(alone, 0) - loss(a, c))) * examples / (examples + 1)


@pytest.mark.parametrize("examples", [2, 6])
def test_the_weights_are_the_likeliest_less_what_chance_explains(
    monkeypatch: pytest.MonkeyPatch, examples: int
) -> None:
    fit = joined(monkeypatch, examples, 3.0)
    assert fit.head.shares == pytest.approx(weights_by_grid(fit, examples), rel=0.1)


def test_words_that_explain_no_more_than_chance_have_no_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = joined(monkeypatch, 12, 8.0)
    rng, left = np.random.default_rng(0), fit.image_fit.leave_one_out("copies")
    said = rng.normal(size=fit.word_scores.shape) * 0.01
    assert choose_shares(left, said, fit.image_fit.sample, 0.5)[1] == 0


def test_flat_scores_of_few_images_are_brought_to_the_usual_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = joined(monkeypatch, 2, 1.0)
    left = fit.image_fit.leave_one_out("copies")
    flat = left.scores / left.scores.std() / 2
    weights = [
        choose_shares(replace(left, scores=scores), fit.word_scores, fit.image_fit.sample, 1.0)
        for scores in (flat, flat / 4)
    ]
    assert weights[1] == pytest.approx(weights[0] * (4, 1), rel=1e-3)


def test_of_one_example_a_label_names_that_say_more_weigh_more(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = [joined(monkeypatch, 1, strength, noise=0.3).head.shares for strength in (0.0, 1.0, 3.0, 9.0)]
    assert shares[0] == pytest.approx([1, 0.5])
    ratios = [c / a for a, c in shares]
    assert ratios == sorted(ratios)
    assert ratios[-1] > 10 * ratios[0]


def test_a_second_image_of_one_label_does_not_silence_names(monkeypatch: pytest.MonkeyPatch) -> None:
    features, targets = sample(2, 1.0)
    rows = [0, 1, 2, 4, 6]
    fitted = fit_discriminant(features[rows], targets[rows], Labels(names=NAMES))
    both = WordsAndImagesFit.of(fitted, words(monkeypatch, 8.0), features[rows], 1.0).head
    alone = joined(monkeypatch, 1, 8.0).head
    assert accuracy(both, 1.0) > accuracy(both.images, 1.0) + 0.1
    assert accuracy(both, 1.0) > accuracy(alone, 1.0) - 0.05


def test_left_out_scores_are_those_of_a_fit_without_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = joined(monkeypatch, 5, 8.0)
    left, (a, c) = fit.leave_one_out(), fit.head.shares
    alone = fit.image_fit.leave_one_out()
    features, _ = sample(5, 1.0)
    said = fit.head.words.score(
        spread_scores(fit.head.embed(features), fit.head.size, rooted=True), fit.head.words.rows
    )
    assert np.allclose(left.scores, a * alone.scores + c * said, atol=1e-4)


@pytest.mark.parametrize("rooted", [True, False])
def test_features_of_the_usual_size_come_back(rooted: bool) -> None:
    features = sample(2, 1.0)[0] if rooted else sample(2, 1.0)[0] - 0.5
    features = features / abs(features).sum(1, keepdims=True) * 7
    embedding = np.sign(features) * np.sqrt(abs(features)) if rooted else features
    embedding = embedding / np.linalg.norm(embedding, axis=1, keepdims=True)
    assert np.allclose(spread_scores(embedding, 7.0, rooted=rooted), features, atol=1e-4)


def test_it_is_saved_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    head = joined(monkeypatch, 3, 8.0).head
    again: Any = unpack(pack(head))
    features, _ = sample(2, 1.0, seed=3)
    labels = Labels(names=NAMES)
    assert np.array_equal(
        again.score(again.embed(features), again.embed_labels(labels)),
        head.score(head.embed(features), head.embed_labels(labels)),
    )


def test_a_label_is_taught_by_words_by_images_and_by_both(monkeypatch: pytest.MonkeyPatch) -> None:
    head = joined(monkeypatch, 5, 8.0).head
    features, targets = sample(4, 0.3, seed=4)
    shown = head.embed(features[targets == 3])
    by_words = head.embed_labels(Labels(names=("new",), texts=(("something yellow",),)))[0]
    by_images = head.labels_from_examples(shown, np.zeros(len(shown), np.int64))[0]
    by_both = head.label_from_both(shown, Labels(names=("new",), texts=(("something yellow",),)))
    known = head.embed_labels(Labels(names=NAMES))
    for row in (by_words, by_images, by_both):
        scores = head.score(head.embed(features), np.concatenate([known[:3], row[None]]))
        assert np.mean((scores.argmax(1) == 3)[targets == 3]) > 0.7
        assert np.array_equal(scores[:, :3], head.score(head.embed(features), known[:3]))


def test_another_encoder_has_no_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_colours(monkeypatch)
    colours(tmp_path)
    images, targets = pictures()
    with pytest.raises(UsageError, match="no words of its own"):
        lw.fit((images, [NAMES[i] for i in targets]), "discriminant", encoder=str(tmp_path / "tiny.onnx"), words=True)
