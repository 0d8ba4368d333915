"""Pictures graded by quality: what is drawn, how strongly pictures change, and the names that lead there."""

import io
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter

from labelwise.images import catalogue
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.sets.degraded import KINDS, UNTOUCHED, degraded, quality_labels
from labelwise.images.sets.finches import finches
from labelwise.support.errors import UsageError
from tests.pixels_of import px

RNG = np.random.default_rng


@pytest.fixture(scope="module")
def birds() -> Dataset:
    return finches(per_species=8)


@pytest.fixture(scope="module")
def graded(birds: Dataset) -> Dataset:
    return degraded(birds)


def test_labels_are_ordered_from_worst_to_best(graded: Dataset) -> None:
    best = ("quality 2", "quality 3", "quality 4", "quality 5 (best)")
    assert graded.labels.names == ("quality 1 (worst)", *best)
    assert graded.labels.order == (0, 1, 2, 3, 4)
    assert quality_labels(2).names == ("quality 1 (worst)", "quality 2 (best)")
    assert graded.name == "finches/quality"


def test_levels_and_kinds_are_shared_out_evenly(birds: Dataset, graded: Dataset) -> None:
    for name, split in graded.splits.items():
        counts = np.bincount(split.targets, minlength=5)
        assert int(counts.max() - counts.min()) <= 1
        assert split.files == birds.split(name).files
        assert split.texts == ()
        assert [kind == UNTOUCHED for kind in split.domains] == (split.targets == 4).tolist()
        worse = [split.domains.count(kind) for kind in KINDS]
        assert max(worse) - min(worse) <= 4
    species = torch.from_numpy(birds.split("train").targets).double()
    assert abs(np.corrcoef(species, graded.split("train").targets)[0, 1]) < 0.2


def test_the_best_stay_as_they_are_and_others_change_the_more_the_lower(birds: Dataset, graded: Dataset) -> None:
    change: dict[tuple[str, int], list[float]] = {}
    for name, split in graded.splits.items():
        far = (px(split).double() - px(birds.split(name)).double()).square().flatten(1).mean(1).sqrt()
        for kind, level, value in zip(split.domains, split.targets.tolist(), far.tolist(), strict=True):
            change.setdefault((kind, level), []).append(value)
    assert max(change[UNTOUCHED, 4]) == 0
    for kind in KINDS:
        means = [np.mean(change[kind, level]) for level in (3, 2, 1, 0)]
        assert means == sorted(means)
        assert means[0] > 3
        assert means[3] > 1.5 * means[0]


def test_each_picture_changes_more_with_each_step(birds: Dataset) -> None:
    images = px(birds.split("val"))[:12]
    for name, kind in KINDS.items():
        far = [
            (torch.from_numpy(kind.change(images.numpy(), kind.amount(step, 4), RNG(0))).double() - images)
            .square()
            .flatten(1)
            .mean(1)
            for step in (1, 2, 3, 4)
        ]
        share = torch.stack([a < b for a, b in pairwise(far)]).double().mean()
        assert share > (0.9 if name == "jpeg" else 0.99), name


def test_amounts_grow_by_a_constant_factor() -> None:
    for kind in KINDS.values():
        assert kind.amount(1, 4) == pytest.approx(kind.mildest)
        assert kind.amount(4, 4) == pytest.approx(kind.harshest)
        assert kind.amount(3, 4) ** 2 == pytest.approx(kind.amount(2, 4) * kind.amount(4, 4))
        assert kind.amount(1, 1) == pytest.approx(kind.harshest)


def test_blur_agrees_with_scipy(birds: Dataset) -> None:
    images = px(birds.split("val"))[:3]
    found = torch.from_numpy(KINDS["blur"].change(images.numpy(), 0.04, RNG(0)))
    sigma = 0.04 * 48
    slow = gaussian_filter(images.double().numpy(), sigma, axes=(2, 3), mode="nearest", radius=math.ceil(3 * sigma))
    assert np.abs(found.numpy() - slow).max() < 0.51


def test_jpeg_is_that_of_pillow_in_colour_and_in_grey(birds: Dataset) -> None:
    for images in (px(birds.split("val"))[:2], px(birds.split("val"))[:2, :1]):
        found = torch.from_numpy(KINDS["jpeg"].change(images.numpy(), 12.2, RNG(0)))
        assert found.shape == images.shape
        for one, image in zip(found, images, strict=True):
            file = io.BytesIO()
            pixels = image[0] if len(image) == 1 else image.permute(1, 2, 0)
            Image.fromarray(pixels.contiguous().numpy()).save(file, "JPEG", quality=12)
            read = torch.from_numpy(np.array(Image.open(file)))
            assert np.array_equal(one[0] if len(image) == 1 else one.permute(1, 2, 0), read)


def test_noise_has_the_spread_asked_for() -> None:
    grey = torch.full((20, 3, 32, 32), 128, dtype=torch.uint8)
    noise = torch.from_numpy(KINDS["noise"].change(grey.numpy(), 20.0, RNG(0))).double() - 128
    assert float(noise.std()) == pytest.approx(20, rel=0.02)
    assert abs(float(noise.mean())) < 0.5
    assert abs(float((noise[:, 0] * noise[:, 1]).mean())) < 10  # channels are drawn apart


def test_a_seed_gives_the_same_pictures_and_another_seed_others(birds: Dataset, graded: Dataset) -> None:
    again, other = degraded(birds), degraded(birds, seed=1)
    for name, split in graded.splits.items():
        assert np.array_equal(px(again.split(name)), px(split))
        assert np.array_equal(again.split(name).targets, split.targets)
        assert not np.array_equal(other.split(name).targets, split.targets)
    alone = Dataset(name="test", labels=birds.labels, splits={"test": birds.split("test")})
    assert np.array_equal(px(degraded(alone).split("test")), px(graded.split("test")))


def test_settings_and_what_they_refuse(birds: Dataset) -> None:
    two = degraded(birds, levels=2, kinds=["noise"])
    assert len(two.labels) == 2
    assert set(two.split("train").domains) == {"noise", UNTOUCHED}
    grey = {"train": replace(birds.split("train"), images=px(birds.split("train"))[:, :1])}
    assert degraded(replace(birds, splits=grey)).shape == (1, 48, 48)
    with pytest.raises(UsageError, match=r'No kind "blurr".*Did you mean "blur"'):
        degraded(birds, kinds=["blurr"])
    for wrong in ({"levels": 1}, {"seed": -1}, {"kinds": ()}):
        with pytest.raises(UsageError, match="2 levels"):
            degraded(birds, **wrong)
    features = Split(images=torch.rand(4, 5), targets=torch.tensor([0, 1, 0, 1]))
    with pytest.raises(UsageError, match="precomputed features"):
        degraded(Dataset(name="x", labels=Labels(names=("a", "b")), splits={"train": features}))


def test_names_of_benchmarks_lead_to_graded_pictures(monkeypatch: pytest.MonkeyPatch, birds: Dataset) -> None:
    asked = []

    def benchmark(name: str, **settings: Any) -> Dataset:
        asked.append((name, settings["protocol"], settings["seed"]))
        return birds

    monkeypatch.setattr("labelwise_papers.plugin.load", benchmark)
    monkeypatch.setattr(catalogue, "finches", lambda: birds)
    for word in ("pets/quality", "cifar10/quality", "pacs/sketch/quality"):
        assert len(catalogue.load(word, seed=7).labels) == 5
    assert asked == [("pets", None, 7), ("cifar10", None, 7), ("pacs", "sketch", 7)]
    assert catalogue.load("pets").labels is birds.labels
    assert catalogue.load("finches/quality").labels.order == (0, 1, 2, 3, 4)
