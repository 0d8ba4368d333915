"""Unlabelled images sharpen words: more where labels occur, nothing lost where few do, and no image speaks for itself."""

from typing import Any

import numpy as np
import pytest

from labelwise.core.arrays import linear_scores, softmax
from labelwise.methods.words.sharpening import ROUNDS, STRENGTH, estimate_shares, information, sharpen

LABELS, WIDTH = 12, 24


def drawn(present: int, each: int = 20, seed: int = 0) -> tuple[Any, Any, Any]:
    """Images of some labels, their labels, and what doubtful words say of them."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(LABELS, WIDTH))
    targets = np.repeat(rng.permutation(LABELS)[:present], each)
    images = means[targets] + 0.8 * rng.normal(size=(len(targets), WIDTH)) + 5
    words = means + 1.5 * rng.normal(size=means.shape)
    said = 0.25 * (images - 5) @ words.T
    return images, targets, said - 0.1 * np.square(words).sum(1)


def accuracy(scores: Any, targets: Any) -> float:
    return float((scores.argmax(1) == targets).mean())


def gains(present: int) -> Any:
    pairs = []
    for seed in range(6):
        images, targets, said = drawn(present, seed=seed)
        more = sharpen(images, said)
        pairs.append((accuracy(said, targets), accuracy(said + linear_scores(images, more.rows), targets)))
    return np.array(pairs)


def test_images_sharpen_words_where_all_labels_occur() -> None:
    before, after = gains(LABELS).mean(0)
    assert after > before + 0.05


@pytest.mark.parametrize("present", [LABELS // 2, 4, 1])
def test_nothing_is_lost_where_few_labels_occur(present: int) -> None:
    before, after = gains(present).mean(0)
    assert after > before - 0.01


def test_labels_that_do_not_occur_are_told() -> None:
    images, targets, said = drawn(3, each=80)
    more = sharpen(images, 3 * said)
    assert more.belief > 0.5
    assert set(np.flatnonzero(~more.absent())) >= set(targets)
    assert more.absent().sum() >= 3
    images, _, said = drawn(LABELS)
    assert not sharpen(images, said).absent().any()


def test_shares_cost_what_they_have_to_explain() -> None:
    _, _, said = drawn(2, each=3)
    assert estimate_shares(0.1 * said)[1] == 0


def test_no_image_speaks_for_itself() -> None:
    """The first round, image by image: each is scored by means from which it is left out."""
    images, _, said = drawn(4, each=5)
    middle = images.mean(0)
    size = np.sqrt(np.square(images).sum(1).mean())
    x, (n, k) = (images - middle) / size, said.shape
    shares, belief = estimate_shares(said)
    prior = belief * (np.log(shares + 1 / (n + k)) - np.log(shares + 1 / (n + k)).max())
    scores, strength = said, STRENGTH * np.exp(-(shares * np.log(shares + 1e-12)).sum()) / k * information(said)
    for _ in range(ROUNDS):
        likely = softmax(scores + prior)
        counts = likely.sum(0)
        within = (
            sum((likely[:, label, None] * (x - likely[:, label] @ x / counts[label]) ** 2).sum() for label in range(k))
            / n
        )
        scores = said.astype(float).copy()
        for i in range(n):
            rest = np.arange(n) != i
            means = likely[rest].T @ x[rest] / (likely[rest].sum(0) + 1)[:, None]
            scores[i] += strength / within * (means @ x[i] - np.square(means).sum(1) / 2)
    means = likely.T @ x / (counts + 1)[:, None]
    wanted = prior + strength / within * (x @ means.T - np.square(means).sum(1) / 2)
    assert np.allclose(linear_scores(images, sharpen(images, said).rows), wanted)


def test_one_image_or_one_label_changes_nothing() -> None:
    images, _, said = drawn(2, each=1)
    assert not sharpen(images[:1], said[:1]).rows.any()
    assert not sharpen(images, said[:, :1]).rows.any()


def test_words_that_know_nothing_learn_nothing() -> None:
    images, targets, said = drawn(LABELS)
    rng = np.random.default_rng(0)
    ignorant = 0.05 * rng.normal(size=said.shape)
    assert information(ignorant) < 0.01
    assert information(10 * said) > 0.5
    more = linear_scores(images, sharpen(images, ignorant).rows)
    assert abs(more - more.mean(1, keepdims=True)).mean() < 0.1
    assert accuracy(ignorant + more, targets) < 0.3


def test_of_very_many_labels_each_image_counts_for_its_best() -> None:
    rng, answers = np.random.default_rng(0), np.repeat([3, 700, 1100], [8, 6, 4])
    log_odds = rng.normal(size=(18, 1200)) * 0.3
    log_odds[np.arange(18), answers] += 4
    counts = sharpen(rng.normal(size=(18, 5)), log_odds).counts
    assert counts[[3, 700, 1100]].tolist() == [8, 6, 4]
    assert counts.sum() == 18
