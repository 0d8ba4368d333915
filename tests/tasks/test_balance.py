"""A gap inside a classifier: who is held back, by how much, and what stays as it is."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

import labelwise as lw
from labelwise.core import Classifier, Labels
from labelwise.methods import Clarel, Eszsl, ImageMethod
from labelwise.ops.balance import balance_curve
from labelwise.tasks.balance import raw_scores, seen_labels, with_gap
from labelwise.tasks.calibrate import calibrate_codes
from labelwise.zero_shot import fit_zero_shot
from tests.described import UNSEEN, Distances, Table, by_vector
from tests.ops.test_balance import applied, harmonic, slow_accuracies, slow_curve

LABELS = Labels(names=("a", "b", "c", "d", "e"))
KINDS = {"offset": Table, "scale": Distances}
every_kind = pytest.mark.parametrize("kind", KINDS)
FITTED: dict[str, ImageMethod] = {"eszsl": Eszsl(), "clarel": Clarel(epochs=15, code_size=16)}
every_method = pytest.mark.parametrize("method", FITTED)


def rows(n: int = 30) -> tuple[Tensor, Tensor]:
    """Rows of scores below zero, and targets that each row favours."""
    made = torch.Generator().manual_seed(2)
    targets = torch.arange(n) % 5
    return -(torch.randn(n, 5, generator=made) - torch.eye(5)[targets]).exp() - 0.1, targets


def classifier(kind: str, gap: float = 0.0) -> Classifier:
    """Labels a, b and d were seen; calibrated as if by hand."""
    bound = replace(KINDS[kind](LABELS).bind(LABELS), described=frozenset({"c", "e"}))
    return with_gap(replace(bound, scale=bound.scale * 3, offset=bound.offset + 2), gap)


@cache
def fitted(method: str) -> Classifier:
    return fit_zero_shot(by_vector(), FITTED[method], lw.Run(device="cpu"))


@every_kind
def test_a_gap_holds_back_the_labels_with_images_alone(kind: str) -> None:
    images, _ = rows()
    plain, held = classifier(kind), classifier(kind, 0.4)
    seen = seen_labels(held)
    assert seen.tolist() == [True, True, False, True, False]
    assert torch.equal(raw_scores(held, images), images)
    wanted = applied(images, seen, 0.4, held.model.balance) * 3 + 2
    torch.testing.assert_close(held.scores(images), wanted.float())
    assert torch.equal(held.scores(images)[:, ~seen], plain.scores(images)[:, ~seen])
    assert bool((held.scores(images)[:, seen] < plain.scores(images)[:, seen]).all())
    assert held.gap == 0.4


@every_kind
def test_the_best_gap_attains_the_best_harmonic_mean_in_the_classifier(kind: str) -> None:
    images, targets = rows()
    plain = classifier(kind)
    seen, how = seen_labels(plain), plain.model.balance
    best = max(harmonic(u, s) for _, u, s in slow_curve(images, targets, seen, how))
    curve = balance_curve(raw_scores(plain, images), targets, seen, how)
    found = with_gap(plain, curve.best()).scores(images)
    assert harmonic(*slow_accuracies(found, targets, seen)) == pytest.approx(best)
    assert best > harmonic(*slow_accuracies(with_gap(plain, 5.0).scores(images), targets, seen))


@every_kind
def test_a_gap_can_be_taken_back_and_replaced(kind: str) -> None:
    images, _ = rows()
    plain = classifier(kind)
    held = with_gap(plain, 0.7)
    torch.testing.assert_close(with_gap(held, 0.0).scores(images), plain.scores(images))
    torch.testing.assert_close(with_gap(held, 0.2).scores(images), with_gap(plain, 0.2).scores(images))
    assert with_gap(held, 0.0).gap == 0
    assert (plain.gap, held.gap) == (0, 0.7), "the classifier given must not change"


@every_kind
def test_neutral_is_the_calibration_without_the_gap(kind: str) -> None:
    for gap in (0.0, 0.5, -0.3):
        scale, offset = classifier(kind, gap).neutral()
        assert (float(scale), float(offset)) == pytest.approx((3, 2))


@every_kind
@pytest.mark.parametrize("described", [True, False])
def test_an_added_label_is_held_back_unless_it_is_described(kind: str, described: bool) -> None:
    images, _ = rows()
    held = classifier(kind, 0.4)
    added = held.add(LABELS.add("f"), torch.eye(5)[1], described=described)  # the code of b: the same raw scores
    assert torch.equal(added.scores(images)[:, :5], held.scores(images))
    assert added.described == held.described | ({"f"} if described else set())
    plain = classifier(kind).scores(images)[:, 1]
    torch.testing.assert_close(added.scores(images)[:, 5], plain if described else held.scores(images)[:, 1])
    torch.testing.assert_close(with_gap(added, 0.0).scores(images)[:, 5], plain)


@every_kind
def test_chosen_labels_keep_their_scores_and_whether_they_are_described(kind: str) -> None:
    images, _ = rows()
    held = classifier(kind, 0.4)
    some = held.select(["e", "a"])
    assert some.described == {"e"}
    assert torch.equal(some.scores(images), held.scores(images)[:, [4, 0]])
    less = held.remove("c")
    assert less.described == {"e"}
    assert less.gap == 0.4
    assert torch.equal(less.scores(images), held.scores(images)[:, [0, 1, 3, 4]])
    again = less.add(less.labels.add("c"), torch.eye(5)[2])  # now from examples
    assert again.described == {"e"}
    torch.testing.assert_close(with_gap(less, 0.0).scores(images), classifier(kind).scores(images)[:, [0, 1, 3, 4]])


@every_kind
def test_calibration_keeps_the_gap(kind: str) -> None:
    images, targets = rows()
    held = replace(classifier(kind, 0.4), memory=torch.eye(5))
    again = calibrate_codes(held, images, targets)
    assert (again.gap, again.described) == (0.4, held.described)
    scale, offset = again.neutral()
    wanted = applied(images, seen_labels(held), 0.4, held.model.balance) * scale + offset
    torch.testing.assert_close(again.scores(images), wanted.float(), rtol=1e-4, atol=1e-4)
    assert float(scale) != pytest.approx(3), "an earlier calibration is replaced"


@every_method
def test_a_fitted_classifier_keeps_its_gap_when_saved_and_calibrated(method: str, tmp_path: Path) -> None:
    held, test = fitted(method), by_vector().split("test")
    assert held.gap != 0
    assert held.described == {f"label {i}" for i in UNSEEN}
    lw.save(held, tmp_path / "held.lw")
    loaded = lw.load(tmp_path / "held.lw")
    assert (loaded.gap, loaded.described) == (held.gap, held.described)
    torch.testing.assert_close(loaded.scores(test.images), held.scores(test.images))
    for one in (held, loaded):
        torch.testing.assert_close(with_gap(one, 0.0).scores(test.images), with_gap(held, 0.0).scores(test.images))
    again = lw.calibrate(held, test.images, test.targets)
    assert (again.gap, again.described) == (held.gap, held.described)
    assert again.scores(test.images).argmax(1).tolist() == held.scores(test.images).argmax(1).tolist()
