"""The drawn birds with species that have images in test only."""

from functools import cache

import pytest
import torch

from labelwise.data import load
from labelwise.images.dataset import Dataset
from labelwise.images.sets.finches import SPECIES, UNSEEN, finch_labels, finches, finches_unseen
from tests.pixels_of import px


@cache
def _data(seed: int = 0) -> Dataset:
    return finches_unseen(seed=seed, per_species=20)


def _names(data: Dataset, split: str) -> set[str]:
    return {data.labels.names[i] for i in data.split(split).targets.tolist()}


def test_unseen_species_have_images_in_test_only() -> None:
    data = _data()
    seen = set(SPECIES) - set(UNSEEN)
    assert len(seen) == 24
    assert _names(data, "train") | _names(data, "val") == seen
    assert _names(data, "train") & _names(data, "val") == set()
    assert (len(_names(data, "val")), _names(data, "test")) == (8, set(SPECIES))
    assert [len(data.split(name)) for name in ("train", "val", "test")] == [16 * 15, 8 * 15, 24 * 5 + 6 * 20]


def test_images_are_those_of_the_finches_and_none_is_in_two_splits() -> None:
    data, whole = _data(), finches(per_species=20)
    known = {
        file: (image.numpy().tobytes(), texts)
        for split in whole.splits.values()
        for file, image, texts in zip(split.files, px(split), split.texts, strict=True)
    }
    files = [file for split in data.splits.values() for file in split.files]
    assert sorted(files) == sorted(known)
    for split in data.splits.values():
        assert all(
            known[file][0] == image.numpy().tobytes() for file, image in zip(split.files, px(split), strict=True)
        )
    for name in ("train", "val"):
        assert data.split(name).texts == tuple(known[file][1] for file in data.split(name).files)
        assert set(data.split(name).files).isdisjoint(whole.split("test").files)


def test_sentences_of_labels_come_from_attributes_and_those_of_tested_images_are_not_there() -> None:
    data = _data()
    assert data.split("test").texts == ()
    assert data.labels.texts == finch_labels().texts  # made without any image; seed and number of images play no part


def test_every_attribute_of_an_unseen_species_is_known_from_a_seen_one() -> None:
    labels = _data().labels
    assert labels.vectors is not None
    unseen = torch.tensor([name in UNSEEN for name in labels.names])
    seen = labels.vectors[~unseen]
    for vector in labels.vectors[unseen]:
        assert all(bool((seen[:, column] == value).any()) for column, value in enumerate(vector.tolist()) if value)
        assert not (seen == vector).all(1).any()
    assert len({name.split()[-1] for name in UNSEEN}) == len(UNSEEN)  # of six families


def test_the_seed_draws_the_species_of_val_alone() -> None:
    several = [_data(seed) for seed in range(3)]
    assert len({tuple(sorted(_names(data, "val"))) for data in several}) > 1
    assert len({data.split("test").files for data in several}) == 1


def test_it_loads_by_one_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "labelwise.images.catalogue.finches_unseen", lambda seed: finches_unseen(seed=seed, per_species=4)
    )
    data, other = load("finches/unseen"), load("finches/unseen", seed=1)
    assert data.name == "finches/unseen"
    assert _names(data, "val") != _names(other, "val")
