import numpy as np
import pytest

from labelwise.label.grouping import group_images
from labelwise.label.space import directions_of
from labelwise.support.errors import DataError, UsageError


def blobs(counts: list[int], seed: int = 0, width: int = 64, spread: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Return features ``[n, d]`` around one direction per label, in random order, and their labels."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    centres = random.normal(size=(len(counts), width)) * 3
    order = random.permutation(len(labels))
    return (centres[labels] + spread * random.normal(size=(len(labels), width)))[order], labels[order]


def grouped(features: np.ndarray, count: int | None = None, seed: int = 0) -> np.ndarray:
    """Return the group of each row."""
    groups = np.full(len(features), -1)
    for number, rows in enumerate(group_images(directions_of(features), count, seed)):
        groups[rows] = number
    return groups


def same(groups: np.ndarray, labels: np.ndarray) -> bool:
    """Return whether both divide rows alike, whatever the numbers."""
    return len(set(zip(groups.tolist(), labels.tolist(), strict=True))) == len(set(labels)) == len(set(groups))


@pytest.mark.parametrize("counts", [[20, 20, 20], [60, 30, 15, 8], [12] * 10])
def test_groups_and_their_number_are_found(counts: list[int]) -> None:
    features, labels = blobs(counts)
    groups = grouped(features)
    assert same(groups, labels)
    assert np.bincount(groups).tolist() == sorted(counts, reverse=True)


def test_features_without_a_sign_are_grouped_by_their_roots() -> None:
    features, labels = blobs([25, 15, 10])
    assert same(grouped(np.abs(features)), labels)


def test_the_number_that_is_asked_for_comes_out() -> None:
    features, _ = blobs([20, 20, 20])
    for count in (1, 2, 7, 60):
        assert len(set(grouped(features, count))) == count


def test_the_same_seed_gives_the_same_groups() -> None:
    features, _ = blobs([20, 20, 20], spread=3.0)
    assert (grouped(features, 9, 4) == grouped(features, 9, 4)).all()


def test_many_images_are_grouped_from_a_sample() -> None:
    features, labels = blobs([3000, 2000, 1000], width=8)
    assert same(grouped(features, 3), labels)


@pytest.mark.parametrize("count", [9, 12, 20])
def test_images_that_all_differ_alike_are_grouped(count: int) -> None:
    """No number of groups is better than another, and the silhouette of each is 0 or a little less."""
    assert sorted(np.concatenate(group_images(np.eye(count))).tolist()) == list(range(count))


def test_copies_make_no_more_groups_than_images_differ() -> None:
    features, labels = blobs([6, 3], spread=0)
    assert same(grouped(features), labels)
    assert len(set(grouped(features, 5))) == 2


@pytest.mark.parametrize("n", [2, 3, 4])
def test_few_images_make_groups(n: int) -> None:
    features, _ = blobs([n])
    groups = grouped(features)
    assert groups.shape == (n,)
    assert set(groups) == set(range(groups.max() + 1))


def test_wrong_input_is_named() -> None:
    with pytest.raises(UsageError, match="between 1 and 3, the number of images; given 4"):
        grouped(np.eye(3), 4)
    with pytest.raises(DataError, match="at least two images"):
        grouped(np.zeros((1, 5)))


def test_the_most_typical_image_of_a_group_comes_first() -> None:
    features, labels = blobs([30, 20], spread=0.2)
    odd = int(np.flatnonzero(labels == 0)[0])
    features[odd] += np.random.default_rng(1).normal(size=features.shape[1])
    first = group_images(directions_of(features), 2)[0]
    assert first[-1] == odd
