"""Which images are measured: one rule, whatever the data and whoever asks."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from labelwise.core.classifier import Classifier
from labelwise.evaluation.evaluation import leaked_rows
from labelwise.evaluation.test_set import select_test_set, select_test_sets
from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.images import FeatureRows
from labelwise.images.sets.digits import digits
from labelwise.images.sharding import write_shards
from labelwise.images.sources.array_data import arrays
from labelwise.images.sources.shards import ShardImages, shards
from labelwise.methods import METHODS
from labelwise.support.errors import DataError, UsageError
from labelwise.train.method import Run
from tests.changed import changed
from tests.conftest import blobs, quick, squares
from tests.contract.subjects import pictures, trained
from tests.described import by_vector
from tests.images.decodes import count_decodes
from tests.pixels_of import px
from tests.tasks.levels import told


def plain(seed: int = 0, per_label: int = 20) -> Dataset:
    """Pictures without a split of their own, divided by shares."""
    data = blobs(per_label=per_label, seed=seed)
    images = torch.cat([px(part) for part in data.splits.values()])
    targets = torch.cat([torch.as_tensor(part.targets) for part in data.splits.values()])
    return arrays(images, targets, names=data.labels.names)


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return fit(plain(), quick("softmax", 2), Run(device="cpu"))


@pytest.mark.parametrize("method", METHODS)
def test_hashes_cover_training_and_validation_images_and_no_others(method: str) -> None:
    data = pictures(method)
    for name, used in (("train", True), ("val", True), ("test", False)):
        assert leaked_rows(trained(method), px(data.split(name))).tolist() == [used] * len(data.split(name))


def test_what_fit_divided_is_measured_on_what_it_held_out(classifier: Classifier) -> None:
    data = plain()
    part, test = select_test_set(classifier, data), data.split("test")
    assert torch.equal(px(part.split), px(test))
    assert torch.equal(torch.as_tensor(part.split.targets), torch.as_tensor(test.targets))
    assert part.words == "16 images of arrays, without splits; left out: 64 used to train or calibrate."
    assert (part.name, part.trained_on, part.own_splits) == ("all", 64, False)


def test_data_without_a_split_are_measured_whole(classifier: Classifier) -> None:
    part = select_test_set(classifier, plain(seed=1))
    assert len(part.split) == 80
    assert part.words.startswith("80 images of arrays, without splits; left out: none.")


def test_a_split_that_the_data_name_is_kept(classifier: Classifier) -> None:
    data = blobs(per_label=30, seed=1)
    part = select_test_set(classifier, data)
    assert px(part.split) is px(data.split("test")) or torch.equal(px(part.split), px(data.split("test")))
    assert part.words == "40 images of blobs, test split; left out: none."
    assert digits().own_splits
    alone = replace(data, splits={"test": data.split("test")})
    assert len(select_test_set(classifier, alone).split) == 40


def test_a_split_that_is_asked_for_counts_images_of_training(classifier: Classifier) -> None:
    data = plain()
    counts = {name: len(select_test_set(classifier, data, name).split) for name in ("train", "val", "test", "all")}
    assert counts == {**{name: len(part) for name, part in data.splits.items()}, "all": 80}
    part = select_test_set(classifier, data, "all")
    assert int(part.leaked.sum()) == 64
    assert part.words == (
        "80 images of arrays, without splits; left out: none. 64 of the measured images were also used to train or "
        "calibrate."
    )
    assert part.figures()["leaked"] == 64


def test_what_cannot_be_measured_says_what_to_do(classifier: Classifier) -> None:
    data = blobs()
    with pytest.raises(UsageError, match=r'Splits are train, val, test, all; given "tset". Did you mean "test"'):
        select_test_set(classifier, data, "tset")
    with pytest.raises(DataError, match=r'"blobs" has no test split; it has: train. .* with --split: train, all'):
        select_test_set(classifier, replace(data, splits={"train": data.split("train")}))
    leaky = replace(data, splits={"test": plain().split("train")})
    with pytest.raises(DataError, match=r"test split: no image is left to measure: 56 were used .* --split all"):
        select_test_set(classifier, leaky)
    with pytest.raises(DataError, match=r"no labelled image to measure"):
        select_test_set(classifier, replace(data, splits={"test": data.split("test").select([])}))
    with pytest.raises(DataError, match=r'takes images \[3, 8, 8\], but "by vector" has features of 20 numbers'):
        select_test_set(classifier, by_vector())


def test_images_without_a_label_are_left_out_but_where_none_is_needed(classifier: Classifier) -> None:
    data = plain(seed=1)
    train = data.split("train")
    half = replace(train, targets=torch.where(torch.arange(len(train)) % 2 == 0, torch.as_tensor(train.targets), -1))
    data = replace(data, splits={**data.splits, "train": half})
    part = select_test_set(classifier, data)
    assert (len(part.split), part.unlabelled) == (52, 28)
    assert part.rows.tolist()[:3] == [0, 2, 4]
    assert "left out: 28 without a label." in part.words
    assert len(select_test_set(classifier, data, unknown=True).split) == 80


def test_images_to_be_unknown_may_lie_in_any_split(classifier: Classifier) -> None:
    data = blobs(seed=1)
    only = replace(data, splits={name: data.split(name) for name in ("train", "val")})
    assert len(select_test_set(classifier, only, unknown=True).split) == 160
    assert len(select_test_set(classifier, data, unknown=True).split) == 80, "test, where there is one"


def test_images_of_which_no_label_is_true_are_measured() -> None:
    data = squares(60)
    assert not bool(data.split("test").labelled.all())
    many = told(data.labels, multilabel=True)
    split = Split(images=torch.randn(20, 3), targets=torch.as_tensor(data.split("test").targets))
    assert len(select_test_set(many, Dataset(name="told", labels=data.labels, splits={"test": split})).split) == 20


def test_features_and_labels_without_images() -> None:
    data = by_vector()
    part = select_test_set(fit(data, METHODS["eszsl"](), Run(device="cpu")), data)
    assert torch.equal(px(part.split), px(data.split("test")))
    assert part.trained_on == 0


def test_a_draw_is_told(classifier: Classifier) -> None:
    part = select_test_set(classifier, plain(seed=1)).draw(30, 0)
    assert len(part.split) == len(part.rows) == len(part.leaked) == 30
    assert part.words.startswith("30 images of arrays, without splits; left out: 50 not drawn.")
    assert part.draw(None, 0) is part.draw(30, 0) is part


def test_what_another_classifier_was_trained_on_is_left_out_for_both(classifier: Classifier) -> None:
    other = fit(plain(seed=1), quick("softmax", 1), Run(device="cpu"))
    whole = plain()
    mixed = arrays(
        torch.cat([px(whole.split("test")), px(plain(seed=1).split("train")), px(plain(seed=2).split("val"))]),
        torch.cat(
            [
                torch.as_tensor(whole.split("test").targets),
                torch.as_tensor(plain(seed=1).split("train").targets),
                torch.as_tensor(plain(seed=2).split("val").targets),
            ]
        ),
        names=whole.labels.names,
    )
    alone = [select_test_set(one, mixed) for one in (classifier, other)]
    assert [part.trained_on for part in alone] == [0, 56]
    first, second = select_test_sets([(classifier, mixed), (other, mixed)])
    assert torch.equal(px(first.split), px(second.split))
    assert first.trained_on == second.trained_on == 56
    assert first.rows.tolist() == alone[1].rows.tolist()


def test_other_readings_must_hold_the_same_images(classifier: Classifier) -> None:
    data = blobs(seed=1)
    fewer = replace(data, splits={**data.splits, "test": data.split("test").select(range(10))})
    with pytest.raises(DataError, match=r"\"blobs\" read at different sizes differs in test"):
        select_test_sets([(classifier, data), (classifier, fewer)])


def test_a_classifier_that_cannot_tell_its_images_is_measured_on_what_fit_holds_out(classifier: Classifier) -> None:
    part = select_test_set(changed(classifier, train_digests=None), plain())
    assert (part.name, len(part.split)) == ("test", 16)
    assert "has no hashes of its training images, so the images that fit holds out are measured" in part.words
    decoded_otherwise = select_test_set(changed(classifier, train_digests=torch.zeros(3, dtype=torch.int64)), plain())
    assert len(decoded_otherwise.split) == 80
    assert "but none of these: if they are the same, --folds 5 of evaluate" in decoded_otherwise.words
    stranger = select_test_set(changed(classifier, train_digests=None), plain(seed=1, per_label=30))
    assert (stranger.name, len(stranger.split)) == ("all", 120)
    assert "so overlap cannot be detected" in stranger.words


def test_whole_data_are_not_copied() -> None:
    images = np.random.default_rng(0).random((40, 3), np.float32)
    labels = Labels(names=("a", "b", "c"))
    whole = FeatureRows(images)
    parts = {"train": range(20), "val": range(20, 25), "test": range(25, 40)}
    splits = {name: Split(images=whole.select(at), targets=np.zeros(len(at), np.int64)) for name, at in parts.items()}
    part = select_test_set(told(labels), Dataset(name="d", labels=labels, splits=splits, own_splits=False))
    assert np.array_equal(part.split.images.values, images)
    assert np.shares_memory(part.split.images.values, images)


def test_images_of_shards_are_read_and_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By ``evaluate`` and by ``fit``: for digests, faults and pixels together; other splits are left alone."""
    data = blobs(per_label=10, seed=7)
    write_shards(replace(data, own_splits=True), tmp_path / "shards")
    classifier, read, contents = trained("softmax"), list[int](), ShardImages.contents

    def counted(self: ShardImages, rows: Sequence[int]) -> Any:
        read.extend(rows)
        return contents(self, rows)

    streamed = shards(tmp_path / "shards", size=classifier.shape[1])
    monkeypatch.setattr(ShardImages, "contents", counted)
    decoded = count_decodes(monkeypatch)
    evaluation = select_test_set(classifier, streamed, "test").evaluate(classifier)
    assert len(read) == len(set(read)) == len(decoded) == len(streamed.splits["test"])
    plain = select_test_set(classifier, data, "test").evaluate(classifier)
    near, far = (np.sort(each.scores.embeddings, 0) for each in (plain, evaluation))
    torch.testing.assert_close(far, near, atol=1e-5, rtol=1e-5)
    read.clear()
    decoded.clear()
    fit(streamed, quick("softmax", 1), Run(device="cpu"))
    assert len(read) == len(set(read)) == len(decoded) == len(streamed.splits["train"]) + len(streamed.splits["val"])
