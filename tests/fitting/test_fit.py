import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import labelwise as lw
from labelwise.core.arrays import Array
from labelwise.evaluation.closed_set import evaluate_closed
from labelwise.evaluation.evaluation import Evaluation
from labelwise.fitting.training import check_enough, training_data
from labelwise.images.dataset import Dataset
from labelwise.images.describe.labels import Labels
from labelwise.methods import Eszsl, ImageMethod, Softmax, ZeroLabel
from labelwise.methods.shared.head import LinearHead
from labelwise.methods.shared.linear import SoftmaxModel, array
from labelwise.support.errors import DataError, UnsupportedError, UsageError
from labelwise.train.adversarial import Adversarial
from labelwise.train.model import LabelModel, Spec
from labelwise.train.stages import Stage
from labelwise.train.train_data import TrainData
from tests.changed import bind_model, model_of
from tests.conftest import blobs, quick
from tests.contract.subjects import trained
from tests.pixels_of import px


def test_test_images_cannot_be_reached(blob_data: Dataset) -> None:
    """Training on a data set whose test split is noise gives the same weights."""
    noise = replace(blob_data.split("test"), images=torch.randint(0, 256, (80, 3, 8, 8), dtype=torch.uint8))
    other = replace(blob_data, splits={**blob_data.splits, "test": noise})
    runs = [lw.fit(data, quick("indicator", 2), lw.Run(device="cpu")) for data in (blob_data, other)]
    first, second = (model_of(run).state_dict() for run in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not hasattr(training_data(blob_data), "test")


def test_validation_is_set_aside_when_missing(blob_data: Dataset) -> None:
    alone = replace(blob_data, splits={"train": blob_data.split("train")})
    data = training_data(alone)
    assert len(data.train) + len(data.val) == len(blob_data.split("train"))
    assert torch.bincount(torch.as_tensor(data.val.targets)).tolist() == [2, 2, 2, 2]


def test_of_many_images_no_more_are_set_aside_than_calibration_needs() -> None:
    many = lw.data.arrays(torch.zeros(30_000, 2), torch.arange(30_000) % 200)
    held = training_data(replace(many, splits={"train": lw.data.pool(many)})).val
    assert torch.bincount(torch.as_tensor(held.targets)).tolist() == [10] * 200


def test_groups_that_hold_whole_labels_do_not_take_them_from_training(blob_data: Dataset) -> None:
    """Each label lies in one group, as the characters of an alphabet do: images are held out one by one."""
    train = blob_data.split("train")
    alphabets = replace(train, groups=tuple(f"alphabet {target // 2}" for target in train.targets.tolist()))
    data = training_data(replace(blob_data, splits={"train": alphabets}))
    assert data.labels.names == blob_data.labels.names
    assert torch.bincount(torch.as_tensor(data.train.targets)).tolist() == [18, 18, 18, 18]
    assert torch.bincount(torch.as_tensor(data.val.targets)).tolist() == [2, 2, 2, 2]


def test_groups_that_divide_a_label_stay_whole(blob_data: Dataset) -> None:
    train = blob_data.split("train")
    bursts = replace(train, groups=tuple(f"burst {row // 10}" for row in range(len(train))))
    data = training_data(replace(blob_data, splits={"train": bursts}))
    assert len(data.val)
    assert not {*data.val.groups} & {*data.train.groups}


def test_labels_without_images_are_unseen(blob_data: Dataset) -> None:
    train, val = blob_data.split("train"), blob_data.split("val")
    some = train.select((torch.as_tensor(train.targets) != 1).nonzero()[:, 0])
    data = training_data(replace(blob_data, splits={"train": some, "val": val}))
    assert data.labels.names == ("blob 0", "blob 2", "blob 3")
    assert data.unseen is not None
    assert data.unseen.names == ("blob 1",)
    assert len(data.val) == 60
    assert torch.equal(torch.as_tensor(data.train.targets).bincount(), torch.tensor([20, 20, 20]))
    assert torch.equal(
        px(data.train)[torch.as_tensor(data.train.targets) == 1], px(train)[torch.as_tensor(train.targets) == 2]
    )


def test_unlabelled_images_are_left_out(blob_data: Dataset) -> None:
    train = blob_data.split("train")
    some = replace(train, targets=torch.where(torch.arange(80) < 10, -1, torch.as_tensor(train.targets)))
    assert len(training_data(replace(blob_data, splits={**blob_data.splits, "train": some})).train) == 70


def test_one_label_is_refused(blob_data: Dataset) -> None:
    train = blob_data.split("train")
    one = train.select((torch.as_tensor(train.targets) == 0).nonzero()[:, 0])
    with pytest.raises(DataError, match='at least two labels; the train split of "blobs" has 1'):
        training_data(replace(blob_data, splits={"train": one}))


@dataclass(frozen=True, kw_only=True)
class LeavesOut(Softmax):
    leaves_out: ClassVar[bool] = True


def of_counts(blob_data: Dataset, *counts: int) -> Dataset:
    whole = blob_data.split("train")
    rows = np.concatenate([np.flatnonzero(whole.targets == i)[:count] for i, count in enumerate(counts)])
    return replace(blob_data, labels=Labels(names=blob_data.labels.names), splits={"train": whole.select(rows)})


def test_too_few_images_are_told_with_what_would_be_enough(blob_data: Dataset) -> None:
    for counts in ((1, 1), (3, 2)):
        few = of_counts(blob_data, *counts)
        with pytest.raises(DataError, match=r"too few images: .* needs 3 of at least two labels"):
            check_enough(few, Softmax())
        for other in (LeavesOut(), Eszsl(), ZeroLabel()):
            check_enough(few, other)
    check_enough(of_counts(blob_data, 3, 3, 1), Softmax())
    check_enough(replace(of_counts(blob_data, 1, 1), labels=blob_data.labels), Softmax())


def test_evaluation_tells_a_leak(blob_data: Dataset) -> None:
    classifier = trained("softmax")
    assert evaluate_closed(Evaluation.of(classifier, blob_data.split("test"), blob_data.labels)).leaked == 0
    assert evaluate_closed(Evaluation.of(classifier, blob_data.split("train"), blob_data.labels)).leaked == 1
    assert evaluate_closed(Evaluation.of(classifier, blob_data.split("val"), blob_data.labels)).leaked == 1


def test_images_that_taught_or_calibrated_are_leaks_too(blob_data: Dataset) -> None:
    classifier, test = trained("softmax"), blob_data.split("test")
    calibrated = lw.calibrate(classifier, px(test)[:20], torch.as_tensor(test.targets)[:20])
    assert evaluate_closed(Evaluation.of(calibrated, test, blob_data.labels)).leaked == 20 / len(test)
    taught = lw.teach(classifier, "a new one", examples=px(test)[:8])
    assert evaluate_closed(Evaluation.of(taught, test, blob_data.labels)).leaked == 8 / len(test)


def test_evaluation_goes_by_names(blob_data: Dataset) -> None:
    """Data that lists its labels in another order gives the same accuracy."""
    test = blob_data.split("test")
    turned = lw.Labels(names=blob_data.labels.names[::-1])
    swapped = replace(test, targets=3 - torch.as_tensor(test.targets))
    classifier = trained("indicator")
    assert evaluate_closed(Evaluation.of(classifier, swapped, turned)) == evaluate_closed(
        Evaluation.of(classifier, test, blob_data.labels)
    )
    with pytest.raises(DataError, match="does not know these labels of the data: cat"):
        evaluate_closed(Evaluation.of(classifier, test, lw.Labels(names=("blob 0", "blob 1", "cat", "blob 3"))))


def test_calibration_lowers_the_error_on_test_images() -> None:
    hard = blobs(seed=3)
    noisy = {
        name: replace(
            s,
            targets=torch.where(
                torch.rand(len(s), generator=torch.Generator().manual_seed(1)) < 0.3, 0, torch.as_tensor(s.targets)
            ),
        )
        for name, s in hard.splits.items()
    }
    data = replace(hard, splits=noisy)
    classifier = lw.fit(data, quick("multilabel"), lw.Run(device="cpu"))
    raw = bind_model(model_of(classifier), classifier.labels)
    after, before = (evaluate_closed(Evaluation.of(c, data.split("test"), data.labels)) for c in (classifier, raw))
    assert after.accuracy == before.accuracy
    assert after.ece < before.ece


@dataclass(frozen=True, kw_only=True)
class ReadsSentences(Softmax):
    """A method that needs sentences of labels."""

    needs: ClassVar[tuple[str, ...]] = ("targets", "texts")


def test_missing_knowledge_names_file_and_column(blob_data: Dataset) -> None:
    with pytest.raises(DataError, match=r'Method softmax reads sentences.*Add a column "text" to labels.csv'):
        lw.fit(replace(blob_data, labels=replace(blob_data.labels, texts=None)), ReadsSentences(epochs=1))


@pytest.mark.parametrize("method", ["softmax", "izf"])
def test_features_cannot_be_attacked_in_training(method: str) -> None:
    data = blobs(per_label=12)
    flat = {name: replace(split, images=px(split).flatten(1).float()) for name, split in data.splits.items()}
    plain = quick(method)
    assert isinstance(plain, ImageMethod)
    attacked = replace(plain, adversarial=Adversarial())
    with pytest.raises(UsageError, match="precomputed features"):
        lw.fit(replace(data, splits=flat), attacked, lw.Run(device="cpu"))


@dataclass(frozen=True, kw_only=True)
class ReadsNothing(Softmax):
    """A method that says it reads no target, of whose models none can give a second opinion."""

    needs: ClassVar[tuple[str, ...]] = ()

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Yield nothing."""
        yield from ()


class TwoMindsHead(LinearHead):
    """A head with two second opinions, both that everything is the first label."""

    def second_opinions(self, embeddings: Array) -> Array:
        """Return label 0 twice for each image."""
        return np.zeros((2, len(embeddings)), np.int64)


class TwoMinds(SoftmaxModel):
    """A model with such a head, and something to tell."""

    def export_head(self) -> TwoMindsHead:
        """Return the head."""
        return TwoMindsHead(**self.head_parts(), rows=array(self.encode_labels(self.spec.labels)), competing=True)

    def about(self) -> dict[str, Any]:
        """Return a word."""
        return {"told": "all"}


@dataclass(frozen=True, kw_only=True)
class OfTwoMinds(ReadsNothing):
    """A method without targets whose model has second opinions."""

    def build(self, spec: Spec) -> SoftmaxModel:
        """Return the model."""
        return TwoMinds(spec, self.encoder)


def test_a_method_without_targets_is_calibrated_on_second_opinions(blob_data: Dataset) -> None:
    """Any model may bring them; fitting knows no model by its type."""
    classifier = lw.fit(blob_data, OfTwoMinds(epochs=1), lw.Run(device="cpu"))
    assert classifier.origin.summary["told"] == "all"
    assert "calibration" in classifier.origin.summary
    with pytest.raises(UnsupportedError, match="no second opinions"):
        lw.fit(blob_data, ReadsNothing(epochs=1), lw.Run(device="cpu"))


def test_a_plain_fit_does_without_scipy() -> None:
    """It takes as long to import as the closed form takes to solve."""
    code = """
import sys, torch
import labelwise as lw
from labelwise.images.as_images import as_images
from labelwise.images.dataset import Dataset, Split
from labelwise.images.split.lookalikes import lookalike_groups
features, targets = torch.randn(60, 8, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
features[:, :3] += 3 * torch.eye(3)[targets]
groups = lookalike_groups(as_images(features))
data = Dataset(name="made", labels=lw.Labels(names=("a", "b", "c")), splits={"train": Split(images=features, targets=targets, groups=groups)})
assert lw.fit(data).origin.method.name == "discriminant"
sys.exit(any(name.startswith("scipy") for name in sys.modules))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
