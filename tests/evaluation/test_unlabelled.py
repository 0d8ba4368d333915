"""The vote of the nearest training images: against a slow loop, and what it refuses."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from labelwise.evaluation.naming import probe_neighbours
from labelwise.images.dataset import Dataset, Split
from labelwise.support.errors import DataError, UnsupportedError
from labelwise.train.networks.encoder import Encoder
from tests.conftest import blobs, squares
from tests.pixels_of import px


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


@pytest.fixture(scope="module")
def data() -> Dataset:
    return blobs(per_label=30)


@pytest.mark.parametrize("k", [1, 5, 40])
def test_the_probe_counts_right_votes(data: Dataset, k: int) -> None:
    torch.manual_seed(0)
    encoder = Encoder(backbone="convnet", width=8).build(data.shape or ())
    train, test = data.split("train"), data.split("test")
    encoder.fit_normalisation(px(train))
    encoder.train()
    found = probe_neighbours(encoder, train, test, k=k)
    assert encoder.training
    features = encoder.features(px(train)), encoder.features(px(test))
    votes = slow_votes(features[1], features[0], torch.as_tensor(train.targets), k, 0.1)
    right = [votes[i].index(max(votes[i])) == int(target) for i, target in enumerate(torch.as_tensor(test.targets))]
    assert found["accuracy"] == pytest.approx(sum(right) / len(right))
    assert (found["train_images"], found["test_images"], found["k"]) == (len(train), len(test), k)
    assert probe_neighbours(encoder, train, test)["k"] == len(train)


def test_images_without_a_label_are_left_out(data: Dataset) -> None:
    torch.manual_seed(0)
    encoder = Encoder(backbone="convnet", width=8).build(data.shape or ())
    train, test = data.split("train"), data.split("test")

    def hidden(split: Split, rows: slice) -> Split:
        targets = torch.as_tensor(split.targets).clone()
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
