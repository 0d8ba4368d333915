"""The small handwritten digits: values, labels and splits."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from labelwise.images.sets.digits import digits
from tests.pixels_of import px


def test_shapes_types_and_labels() -> None:
    data = digits()
    assert data.shape == (1, 8, 8)
    assert data.labels.names[0] == "zero"
    assert data.labels.names[9] == "nine"
    assert data.labels.order == tuple(range(10))
    for split in data.splits.values():
        assert px(split).dtype == torch.uint8
        assert split.targets.dtype == np.int64


@pytest.mark.parametrize("seed", [0, 3])
def test_splits_together_are_the_original_digits_each_once(seed: int) -> None:
    bunch = load_digits()
    wanted = sorted((image.tobytes(), int(y)) for image, y in zip(bunch.images.astype(int), bunch.target, strict=True))
    found = [
        (np.round(image.numpy().astype(float) * 16 / 255).astype(int).tobytes(), int(target))
        for split in digits(seed=seed).splits.values()
        for image, target in zip(px(split), split.targets, strict=True)
    ]
    assert sorted(found) == wanted


def test_bytes_reach_from_0_to_255() -> None:
    images = px(digits().split("train"))
    assert int(images.min()) == 0
    assert int(images.max()) == 255
    assert len(set(images.flatten().tolist())) == 17


def test_splits_are_stratified() -> None:
    data = digits()
    counts = torch.from_numpy(
        np.stack([np.bincount(split.targets, minlength=10) for split in data.splits.values()])
    ).double()
    shares = counts / counts.sum(0)
    assert torch.allclose(shares, torch.tensor([0.6, 0.15, 0.25]).double()[:, None].expand(3, 10), atol=0.01)


def test_the_seed_decides_the_split_and_nothing_else() -> None:
    first, again, other = (px(digits(seed=seed).split("test")) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert first.shape[1:] == other.shape[1:]
    assert not np.array_equal(first[: len(other)], other[: len(first)])
