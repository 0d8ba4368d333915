"""The closed form on features: what it chooses, what it says of itself, and how it takes new labels."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import labelwise as lw
from labelwise.core import platt as calibration
from labelwise.core.classifier import Classifier, MethodRecord
from labelwise.fitting.choice import decide
from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.methods import Discriminant, Encoder
from labelwise.methods.discriminant.head import DiscriminantHead
from labelwise.support.errors import DataError, UnsupportedError, UsageError
from labelwise.train.method import Run
from labelwise.train.tensors import root_features

CPU = Run(device="cpu")
D = 24


def features(labels: int, each: int, seed: int = 0, hold: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Rectified features of labels, their targets, and vectors from which the means of labels follow."""
    rng = torch.Generator().manual_seed(7)
    vectors = torch.randn(labels, 6, generator=rng)
    centres = 1.5 * vectors @ torch.randn(6, D, generator=rng) / 6**0.5
    targets = torch.arange(labels).repeat_interleave(each)
    noise = torch.randn(len(targets), D, generator=torch.Generator().manual_seed(seed))
    return (centres[targets] + hold * noise + 1.0).clamp_min(0), targets, vectors


def data_of(labels: int, each: int, *, described: bool = False, **splits: Split) -> Dataset:
    images, targets, vectors = features(labels, each)
    names = tuple(f"label {i}" for i in range(labels))
    known = Labels(names=names, vectors=vectors if described else None)
    return Dataset(name="drawn", labels=known, splits={"train": Split(images=images, targets=targets), **splits})


def accuracy(classifier: Classifier, labels: int, rows: slice = slice(None)) -> float:
    images, targets, _ = features(labels, 30, seed=1)
    keep = torch.isin(targets, torch.arange(labels)[rows])
    return float((classifier.scores(images[keep]).best == targets[keep]).double().mean())


def test_what_leaving_out_says_is_true_and_told() -> None:
    classifier = fit(data_of(8, 20), Discriminant(), CPU)
    about = classifier.origin.summary["leave_one_out"]
    assert set(about) == {"accuracy", "low", "high", "images", "baseline", "confused", "suspicious"}
    assert about["images"] == 160
    assert about["low"] < about["accuracy"] < about["high"]
    assert about["low"] - 0.03 < accuracy(classifier, 8) < about["high"] + 0.03
    assert all(set(one) == {"label", "taken_for", "count"} for one in about["confused"])
    images = features(8, 30, seed=1)[0]
    scores = classifier.scores(images)
    assert 0.88 < float((~scores.unknown).mean()) < 1  # 95 of 100 are to be kept
    assert bool(classifier.scores(images[:50].flip(1) * 3).unknown.mean() > 0.5)
    assert classifier.verifier is not None
    assert classifier.verifier.by == "whitened"


@pytest.mark.parametrize(("each", "off"), [(2, 0.06), (3, 0.04)])
def test_few_pictures_a_label_promise_what_new_ones_keep(each: int, off: float) -> None:
    k, new = 40, 20
    about = []
    for seed in range(3):
        rng = torch.Generator().manual_seed(seed)
        centres, targets = 0.6 * torch.randn(k, 64, generator=rng), torch.arange(k).repeat_interleave(each + new)
        images = (centres[targets] + torch.randn(len(targets), 64, generator=rng) + 3).clamp_min(0)
        train = torch.arange(len(targets)) % (each + new) < each
        split = Split(images=images[train], targets=targets[train])
        classifier = fit(replace(data_of(k, 1), splits={"train": split}), Discriminant(), CPU)
        right = float((classifier.scores(images[~train]).best == targets[~train]).double().mean())
        told = classifier.origin.summary["leave_one_out"]
        about.append((told["accuracy"] - right, told["high"] - told["low"]))
    errors, widths = torch.tensor(about).T
    assert abs(float(errors.mean())) < off  # without the correction, with two a label: 8 points too low
    # of the two of a label each is asked about by the other alone: they count as one
    assert float(widths.mean()) == pytest.approx(4 * (0.7 * 0.3 / (k * (each - 1))) ** 0.5, rel=0.2)


def test_a_wrong_label_is_suspicious() -> None:
    images, wrong, _ = features(5, 20, hold=0.5)
    wrong[3] = 4
    files = tuple(f"{i}.jpg" for i in range(len(wrong)))
    data = replace(data_of(5, 1), splits={"train": Split(images=images, targets=wrong, files=files)})
    first = fit(data, Discriminant(), CPU).origin.summary["leave_one_out"]["suspicious"][0]
    assert (first["file"], first["label"], first["looks_like"]) == ("3.jpg", "label 4", "label 0")
    assert first["probability"] >= 0.5


def test_copies_do_not_raise_the_estimate() -> None:
    images, targets, _ = features(8, 20, hold=2.5)
    names = tuple(map(str, range(8)))
    once = Dataset(name="once", labels=Labels(names=names), splits={"train": Split(images=images, targets=targets)})
    both = Split(images=images.repeat(2, 1), targets=targets.repeat(2))
    plain, copied = (
        fit(replace(once, splits={"train": split}), Discriminant(), CPU).origin.summary["leave_one_out"]["accuracy"]
        for split in (once.split("train"), both)
    )
    assert plain < 0.9
    assert abs(copied - plain) < 0.05


def test_a_val_split_is_measured_and_not_trained_on() -> None:
    images, targets, _ = features(6, 5, seed=2)
    data = data_of(6, 10, val=Split(images=images, targets=targets))
    about = fit(data, Discriminant(), CPU).origin.summary
    assert about["training"]["images"] == 60
    assert about["training"]["validation_images"] == 30
    assert about["training"]["validation_accuracy"] > 0.8
    assert about["leave_one_out"]["images"] == 60


def test_one_example_a_label() -> None:
    classifier = fit(data_of(6, 1), run=CPU)
    assert accuracy(classifier, 6) > 0.6
    assert "leave_one_out" not in classifier.origin.summary
    taught = lw.teach(classifier, "more", examples=features(6, 4, seed=3)[0][:4])
    assert torch.isfinite(torch.from_numpy(taught.scores(features(6, 2)[0]).log_odds)).all()


def test_features_with_negative_numbers_have_no_root() -> None:
    images, targets, _ = features(4, 10)
    data = Dataset(
        name="signed", labels=Labels(names=tuple("abcd")), splits={"train": Split(images=images - 2, targets=targets)}
    )
    classifier = fit(data, Discriminant(), CPU)
    assert isinstance(classifier.head, DiscriminantHead)
    assert not classifier.head.rooted
    wanted = torch.nn.functional.normalize(images - 2, dim=1).numpy()
    np.testing.assert_allclose(classifier.scores(2 * images - 4).embeddings, wanted, atol=1e-6)


def test_roots_do_not_depend_on_scale_and_have_a_slope() -> None:
    rows = torch.tensor([[0.0, 1.0, 4.0], [0.0, 0.0, 0.0]], requires_grad=True)
    torch.testing.assert_close(root_features(rows[:1]), root_features(1e-4 * rows[:1]))
    (slope,) = torch.autograd.grad(root_features(rows)[0, 2], rows)
    assert bool(slope.isfinite().all())


def test_taught_one_after_another_is_near_to_fitted_together() -> None:
    images, targets, _ = features(16, 20)
    old = targets < 12
    labels = Labels(names=tuple(f"label {i}" for i in range(12)))
    split = Split(images=images[old], targets=targets[old])
    classifier = fit(Dataset(name="old", labels=labels, splits={"train": split}), Discriminant(), CPU)
    before = classifier.scores(images[:7]).log_odds
    for label in range(12, 16):
        classifier = lw.teach(classifier, f"label {label}", examples=images[targets == label])
    torch.testing.assert_close(classifier.scores(images[:7]).log_odds[:, :12], before)
    whole = fit(data_of(16, 20), Discriminant(), CPU)
    assert accuracy(classifier, 16) > accuracy(whole, 16) - 0.03
    assert lw.forget(classifier, "label 14").labels.names == tuple(f"label {i}" for i in (*range(14), 15))


@pytest.mark.parametrize(("many", "few"), [(20, 1), (20, 2), (100, 1)])
def test_few_pictures_of_some_labels_are_fitted_as_if_taught(many: int, few: int) -> None:
    images, targets, _ = features(13, many, hold=3.0)
    old, place = targets < 10, torch.arange(len(targets)) % many
    keep = old | (place < few)
    names = tuple(f"label {i}" for i in range(13))
    splits = ({"train": Split(images=images[rows], targets=targets[rows])} for rows in (keep, old))
    whole, start = (
        Dataset(name="some", labels=Labels(names=names[:k]), splits=split)
        for k, split in zip((13, 10), splits, strict=True)
    )
    fitted, taught = fit(whole, Discriminant(prior="equal"), CPU), fit(start, Discriminant(), CPU)
    for label in range(10, 13):
        taught = lw.teach(taught, names[label], examples=images[keep & (targets == label)])
    for rows, near in ((slice(0, 10), 0.05), (slice(10, 13), 0.12)):
        assert accuracy(fitted, 13, rows) == pytest.approx(accuracy(taught, 13, rows), abs=near)


def test_a_description_and_an_example_are_better_than_either() -> None:
    images, targets, vectors = features(40, 20)
    old = targets < 30
    labels = Labels(names=tuple(f"label {i}" for i in range(30)), vectors=vectors[:30])
    split = Split(images=images[old], targets=targets[old])
    start = fit(Dataset(name="old", labels=labels, splits={"train": split}), Discriminant(), CPU)
    right = {}
    for way in ("examples", "vector", "both"):
        classifier = start
        for label in range(30, 40):
            example = images[targets == label][:1] if way != "vector" else None
            vector = vectors[label] if way != "examples" else None
            classifier = lw.teach(classifier, f"label {label}", examples=example, vector=vector)
        assert ("label 33" in classifier.unseen) == (way == "vector")
        right[way] = accuracy(classifier, 40, slice(30, 40))
    assert right["both"] >= max(right["examples"], right["vector"]) - 0.01
    assert min(right.values()) > 0.3


def test_labels_without_pictures_are_known_by_their_descriptions() -> None:
    images, targets, vectors = features(40, 10)
    labels = Labels(names=tuple(f"label {i}" for i in range(40)), vectors=vectors)
    split = Split(images=images[targets < 32], targets=targets[targets < 32])
    classifier = fit(Dataset(name="some", labels=labels, splits={"train": split}), Discriminant(), CPU)
    assert classifier.unseen == {f"label {i}" for i in range(32, 40)}
    assert accuracy(classifier, 40, slice(32, 40)) > 0.3
    assert accuracy(classifier, 40, slice(0, 32)) > 0.6


def test_both_together_need_descriptions_of_trained_labels() -> None:
    classifier = fit(data_of(4, 5), Discriminant(), CPU)
    with pytest.raises(UnsupportedError, match=r"labels\.csv"):
        lw.teach(classifier, "new", examples=features(4, 1)[0][:1], vector=[0.0] * 6)


def test_what_it_cannot_do_is_said() -> None:
    with pytest.raises(UsageError, match="leave out encoder"):
        Discriminant(encoder=Encoder(frozen=True, code_size=3))
    with pytest.raises(DataError, match="at least two labels"):
        fit(data_of(1, 5), Discriminant(), CPU)


def test_settings_of_training_choose_a_method_that_trains() -> None:
    from labelwise.fitting.choice import FitOptions

    data = data_of(4, 5)
    assert decide(data).method.name == "discriminant"
    assert decide(data, FitOptions(settings={"epochs": "3"})).method.name == "indicator"


def test_texts_that_cannot_be_read_are_no_hindrance() -> None:
    data = data_of(3, 5)
    labels = replace(data.labels, texts=(("qqzzx",), ("xxqqz",), ("zzqqx",)))
    classifier = fit(replace(data, labels=labels), run=CPU)
    assert classifier.origin.method == MethodRecord.of(Discriminant())
    with pytest.raises(DataError, match="No word vector"):
        fit(replace(data, labels=labels), Discriminant(source="texts"), CPU)


def test_of_very_many_images_some_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    data = data_of(8, 20)
    whole = fit(data, Discriminant(), CPU)
    monkeypatch.setattr(calibration, "MOST_PAIRS", 90 * 8)
    monkeypatch.setattr(calibration, "FEWEST_ROWS", 1)
    some = fit(data, Discriminant(), CPU)
    about = some.origin.summary
    assert 60 < about["leave_one_out"]["images"] == about["calibration"]["images"] <= 90
    assert some.verifier is not None  # of pairs of all images
    assert accuracy(some, 8) == pytest.approx(accuracy(whole, 8), abs=0.03)
    low, high = (about["leave_one_out"][key] for key in ("low", "high"))
    assert low < accuracy(some, 8) < high


def wide_label(count: int, seed: int) -> Tensor:
    """Pictures of a label that varies where the labels of ``features`` do not: in numbers that are about the same for all of them."""
    rng = torch.Generator().manual_seed(seed)
    wide = 6.0 + 2.5 * torch.randn(count, 12, generator=rng)
    return torch.cat([(torch.arange(D) < 6).float().repeat(count, 1) * 4, wide], 1).clamp_min(0)


def narrow_data() -> Dataset:
    images, targets, _ = features(8, 20, hold=0.3)
    plain = 4.0 + 0.05 * torch.randn(len(images), 12, generator=torch.Generator().manual_seed(3))
    split = Split(images=torch.cat([images, plain], 1), targets=targets)
    return replace(data_of(8, 1), splits={"train": split})


def test_new_pictures_of_a_taught_label_are_as_known_as_its_examples_are_to_each_other(tmp_path: Path) -> None:
    classifier, new = fit(narrow_data(), Discriminant(), CPU), wide_label(60, 1)

    def known(taught: Classifier, images: Tensor) -> float:
        return float((~taught.scores(images).unknown).mean())

    taught = lw.teach(classifier, "wide", examples=wide_label(5, 0))
    assert float((taught.scores(new).best == 8).mean()) > 0.95
    assert known(taught, new) > 0.7  # without a width of its own: 0.08
    assert known(taught, new + 9 * torch.eye(D + 12)[9]) < 0.3, "what is far from it stays unknown"
    old = narrow_data().split("train").images
    assert known(taught, old) >= known(classifier, old), "other labels know what they knew"
    lw.save(taught, tmp_path / "t.lw")
    again = lw.load(tmp_path / "t.lw")
    assert np.array_equal(again.scores(new).outlier_score, taught.scores(new).outlier_score)
    more = lw.teach(again, "label 8", examples=features(9, 5)[0][-5:].repeat(1, 2)[:, : D + 12])
    forgot = lw.forget(more, "label 8").scores(new).outlier_score
    assert np.allclose(forgot, taught.scores(new).outlier_score, atol=1e-3), "its examples are forgotten, too"
    assert lw.teach(classifier, "one", examples=new[:1]).familiarity.width is None
