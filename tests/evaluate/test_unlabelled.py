"""The vote of the nearest training images: against a slow loop, in parts, and what it refuses."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from labelwise.data.dataset import Dataset, Split
from labelwise.errors import DataError, UnsupportedError
from labelwise.evaluate import unlabelled
from labelwise.evaluate.unlabelled import neighbour_votes, probe_neighbours
from labelwise.nn.encoder import Encoder
from tests.conftest import blobs, squares


def embeddings(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def slow_votes(asked: Tensor, known: Tensor, targets: Tensor, k: int, temperature: float) -> list[list[float]]:
    """Each image on its own: sort all known ones by cosine, and count."""
    found = []
    for row in asked.tolist():
        cosines = [
            sum(a * b for a, b in zip(row, other, strict=True)) / math.hypot(*row) / math.hypot(*other)
            for other in known.tolist()
        ]
        nearest = sorted(range(len(cosines)), key=lambda i: -cosines[i])[:k]
        votes = [0.0] * (int(targets.max()) + 1)
        for i in nearest:
            votes[int(targets[i])] += math.exp((cosines[i] - max(cosines)) / temperature)
        found.append(votes)
    return found


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(1, 6),
    m=st.integers(1, 12),
    k=st.integers(1, 15),
    temperature=st.sampled_from([0.05, 0.1, 1.0]),
    chunk=st.sampled_from([1, 20, 1000]),
    seed=st.integers(0, 99),
)
def test_votes_equal_a_loop(n: int, m: int, k: int, temperature: float, chunk: int, seed: int) -> None:
    asked, known = 3 * embeddings(n, 4, seed=seed), 5 * embeddings(m, 4, seed=seed + 1)
    targets = torch.randint(0, 4, (m,), generator=torch.Generator().manual_seed(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unlabelled, "CHUNK", chunk)
        found = neighbour_votes(asked, known, targets, k=k, temperature=temperature)
    expected = torch.tensor(slow_votes(asked, known, targets, k, temperature))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return blobs(per_label=30)


def test_the_probe_counts_right_votes(data: Dataset) -> None:
    torch.manual_seed(0)
    encoder = Encoder(backbone="convnet", width=8).build(data.shape)
    train, test = data.split("train"), data.split("test")
    encoder.fit_normalisation(train.images)
    encoder.train()
    found = probe_neighbours(encoder, train, test, k=5)
    assert encoder.training
    features = encoder.features(train.images), encoder.features(test.images)
    votes = slow_votes(features[1], features[0], train.targets, 5, 0.1)
    right = [votes[i].index(max(votes[i])) == int(target) for i, target in enumerate(test.targets)]
    assert found["accuracy"] == pytest.approx(sum(right) / len(right))
    assert (found["train_images"], found["test_images"], found["k"]) == (len(train), len(test), 5)
    assert probe_neighbours(encoder, train, test)["k"] == len(train)


def test_images_without_a_label_are_left_out(data: Dataset) -> None:
    torch.manual_seed(0)
    encoder = Encoder(backbone="convnet", width=8).build(data.shape)
    train, test = data.split("train"), data.split("test")

    def hidden(split: Split, rows: slice) -> Split:
        targets = split.targets.clone()
        targets[rows] = -1
        return replace(split, targets=targets)

    some = probe_neighbours(encoder, hidden(train, slice(0, 8)), hidden(test, slice(3, 9)), k=3)
    kept = train.select(range(8, len(train))), test.select([i for i in range(len(test)) if not 3 <= i < 9])
    assert some == probe_neighbours(encoder, *kept, k=3)
    with pytest.raises(DataError, match="0 of train"):
        probe_neighbours(encoder, hidden(train, slice(None)), test)
    several = squares(30)
    with pytest.raises(UnsupportedError, match="several may be true"):
        probe_neighbours(encoder, several.split("train"), several.split("test"))
