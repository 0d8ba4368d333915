"""Seen labels held back inside a classifier: which, by how much, and what stays as it is."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import labelwise as lw
from labelwise.core.balance import balance_curve
from labelwise.core.classifier import Classifier
from labelwise.fitting.zero_shot import fit_zero_shot
from labelwise.images.describe.labels import Labels
from labelwise.methods import Clarel, Eszsl, ImageMethod
from labelwise.tasks.calibrate import calibrate
from tests.changed import bind_model, changed, known_by_description, with_penalty
from tests.close import assert_close
from tests.core.test_balance import applied, harmonic, slow_accuracies, slow_curve
from tests.described import UNSEEN, Distances, Table, by_vector
from tests.once import once
from tests.pixels_of import px

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


def classifier(kind: str, seen_penalty: float = 0.0) -> Classifier:
    """Labels a, b and d were seen; calibrated as if by hand."""
    bound = known_by_description(bind_model(KINDS[kind](LABELS), LABELS), "c", "e")
    return with_penalty(
        changed(bound, scale=bound.calibration.scale * 3, offset=bound.calibration.offset + 2), seen_penalty
    )


@once
def fitted(method: str) -> Classifier:
    return fit_zero_shot(by_vector(), FITTED[method], lw.Run(device="cpu"))


@every_kind
def test_a_penalty_holds_back_the_labels_with_images_alone(kind: str) -> None:
    images, _ = rows()
    plain, held = classifier(kind), classifier(kind, 0.4)
    seen = ~held.calibration.unseen
    assert seen.tolist() == [True, True, False, True, False]
    assert np.array_equal(held.scores(images).raw, images)
    wanted = applied(images, torch.from_numpy(seen), 0.4, held.head.penalty) * 3 + 2
    assert_close(held.scores(images).log_odds, wanted.float())
    assert np.array_equal(held.scores(images).log_odds[:, ~seen], plain.scores(images).log_odds[:, ~seen])
    assert bool((held.scores(images).log_odds[:, seen] < plain.scores(images).log_odds[:, seen]).all())
    assert held.calibration.seen_penalty == 0.4


@every_kind
def test_the_best_penalty_attains_the_best_harmonic_mean_in_the_classifier(kind: str) -> None:
    images, targets = rows()
    plain = classifier(kind)
    seen, how = ~plain.calibration.unseen, plain.head.penalty
    best = max(harmonic(u, s) for _, u, s in slow_curve(images, targets, torch.from_numpy(seen), how))
    curve = balance_curve(plain.scores(images).raw, targets, seen, how)
    found = with_penalty(plain, curve.best()).scores(images).log_odds
    assert harmonic(*slow_accuracies(torch.from_numpy(found), targets, torch.from_numpy(seen))) == pytest.approx(best)
    assert best > harmonic(
        *slow_accuracies(
            torch.from_numpy(with_penalty(plain, 5.0).scores(images).log_odds), targets, torch.from_numpy(seen)
        )
    )


@every_kind
def test_a_penalty_can_be_taken_back_and_replaced(kind: str) -> None:
    images, _ = rows()
    plain = classifier(kind)
    held = with_penalty(plain, 0.7)
    assert_close(with_penalty(held, 0.0).scores(images).log_odds, plain.scores(images).log_odds)
    assert_close(with_penalty(held, 0.2).scores(images).log_odds, with_penalty(plain, 0.2).scores(images).log_odds)
    assert with_penalty(held, 0.0).calibration.seen_penalty == 0
    assert (plain.calibration.seen_penalty, held.calibration.seen_penalty) == (0, 0.7), (
        "the classifier given must not change"
    )


@every_kind
def test_neutral_is_the_calibration_without_the_penalty(kind: str) -> None:
    for seen_penalty in (0.0, 0.5, -0.3):
        scale, offset = classifier(kind, seen_penalty).calibration.neutral()
        assert (float(scale), float(offset)) == pytest.approx((3, 2))


@every_kind
@pytest.mark.parametrize("unseen", [True, False])
def test_an_added_label_is_held_back_unless_it_is_unseen(kind: str, unseen: bool) -> None:
    images, _ = rows()
    held = classifier(kind, 0.4)
    added = held.add(
        LABELS.add("f"), np.asarray(torch.eye(5)[1]), unseen=unseen
    )  # the embedding of b: the same raw scores
    assert np.array_equal(added.scores(images).log_odds[:, :5], held.scores(images).log_odds)
    assert added.unseen == held.unseen | ({"f"} if unseen else set())
    plain = classifier(kind).scores(images).log_odds[:, 1]
    assert_close(added.scores(images).log_odds[:, 5], plain if unseen else held.scores(images).log_odds[:, 1])
    assert_close(with_penalty(added, 0.0).scores(images).log_odds[:, 5], plain)


@every_kind
def test_chosen_labels_keep_their_scores_and_whether_they_are_unseen(kind: str) -> None:
    images, _ = rows()
    held = classifier(kind, 0.4)
    some = held.select(["e", "a"])
    assert some.unseen == {"e"}
    assert np.array_equal(some.scores(images).log_odds, held.scores(images).log_odds[:, [4, 0]])
    less = held.remove("c")
    assert less.unseen == {"e"}
    assert less.calibration.seen_penalty == 0.4
    assert np.array_equal(less.scores(images).log_odds, held.scores(images).log_odds[:, [0, 1, 3, 4]])
    again = less.add(less.labels.add("c"), np.asarray(torch.eye(5)[2]))  # now from examples
    assert again.unseen == {"e"}
    assert_close(
        with_penalty(less, 0.0).scores(images).log_odds, classifier(kind).scores(images).log_odds[:, [0, 1, 3, 4]]
    )


@every_kind
def test_calibration_keeps_the_penalty(kind: str) -> None:
    images, targets = rows()
    held = changed(classifier(kind, 0.4), memory=torch.eye(5))
    again = calibrate(held.scores_of(images), targets)
    assert (again.calibration.seen_penalty, again.unseen) == (0.4, held.unseen)
    scale, offset = again.calibration.neutral()
    wanted = applied(images, torch.from_numpy(~held.calibration.unseen), 0.4, held.head.penalty) * scale + offset
    assert_close(again.scores(images).log_odds, wanted.float(), rtol=1e-4, atol=1e-4)
    assert float(scale) != pytest.approx(3), "an earlier calibration is replaced"


@every_method
def test_a_fitted_classifier_keeps_its_penalty_when_saved_and_calibrated(method: str, tmp_path: Path) -> None:
    held, test = fitted(method), by_vector().split("test")
    assert held.calibration.seen_penalty != 0
    assert held.unseen == {f"label {i}" for i in UNSEEN}
    lw.save(held, tmp_path / "held.lw")
    loaded = lw.load(tmp_path / "held.lw")
    assert (loaded.calibration.seen_penalty, loaded.unseen) == (held.calibration.seen_penalty, held.unseen)
    assert_close(loaded.scores(px(test)).log_odds, held.scores(px(test)).log_odds)
    for one in (held, loaded):
        assert_close(
            with_penalty(one, 0.0).scores(px(test)).log_odds, with_penalty(held, 0.0).scores(px(test)).log_odds
        )
    again = lw.calibrate(held, px(test), torch.as_tensor(test.targets))
    assert (again.calibration.seen_penalty, again.unseen) == (held.calibration.seen_penalty, held.unseen)
    assert again.scores(px(test)).best.tolist() == held.scores(px(test)).best.tolist()
