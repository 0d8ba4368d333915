"""The zero-shot protocols against a slow reference, on a model whose scores are known exactly."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from labelwise.core.classifier import Classifier
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.zero_shot import ZeroShotResult, evaluate_zero_shot
from labelwise.images.dataset import Split
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import DataError
from tests.changed import bind_model, changed, known_by_description, made_from, with_penalty
from tests.core.test_balance import applied, harmonic, slow_accuracies, slow_curve
from tests.described import Distances, Table
from tests.pixels_of import px

LABELS = Labels(names=("a", "b", "c", "d", "e", "f"))
KINDS = {"offset": Table, "scale": Distances}
every_kind = pytest.mark.parametrize("kind", KINDS)


def split(n: int = 48) -> Split:
    """Rows of scores below zero; every seventh image has no label, and label f has no image."""
    made = torch.Generator().manual_seed(3)
    targets = torch.arange(n) % 5
    scores = -(torch.randn(n, 6, generator=made) - torch.eye(6)[targets]).exp() - 0.1
    return Split(images=scores, targets=torch.where(torch.arange(n) % 7 == 6, -1, targets))


def classifier(kind: str, seen_penalty: float = 0.3) -> Classifier:
    bound = known_by_description(bind_model(KINDS[kind](LABELS), LABELS), "b", "d", "f")
    return with_penalty(
        changed(bound, scale=bound.calibration.scale * 2, offset=bound.calibration.offset - 1), seen_penalty
    )


def slow_zero_shot(scores: Tensor, targets: Tensor, seen: Tensor) -> float:
    """Accuracy on images of unseen labels among unseen labels alone, averaged over labels."""
    shares: list[float] = []
    for label in (~seen).nonzero()[:, 0].tolist():
        rows = scores[targets == label].tolist()
        best = [max((i for i in range(len(seen)) if not seen[i]), key=row.__getitem__) for row in rows]
        shares += [sum(i == label for i in best) / len(best)] if best else []
    return sum(shares) / len(shares)


@every_kind
def test_figures_equal_a_slow_reference(kind: str) -> None:
    one, test = classifier(kind), split()
    labelled = torch.as_tensor(test.targets) >= 0
    scores, targets, seen, how = (
        px(test)[labelled],
        torch.as_tensor(test.targets)[labelled],
        ~one.calibration.unseen,
        one.head.penalty,
    )
    found = evaluate_zero_shot(Evaluation.of(one, test, LABELS))
    unseen, known = slow_accuracies(applied(scores, torch.from_numpy(seen), 0.3, how), targets, torch.from_numpy(seen))
    plain_unseen, plain_known = slow_accuracies(scores, targets, torch.from_numpy(seen))
    assert (found.unseen, found.seen) == pytest.approx((unseen, known))
    assert (found.unseen_without_gap, found.seen_without_gap) == pytest.approx((plain_unseen, plain_known))
    assert found.harmonic == pytest.approx(harmonic(unseen, known))
    assert found.harmonic_without_gap == pytest.approx(harmonic(plain_unseen, plain_known))
    assert found.zero_shot == pytest.approx(slow_zero_shot(scores, targets, torch.from_numpy(seen)))
    slow = slow_curve(scores, targets, torch.from_numpy(seen), how)
    area = sum((s0 + s1) / 2 * (u1 - u0) for (_, u0, s0), (_, u1, s1) in pairwise(slow))
    assert found.area == pytest.approx(area)
    assert (found.images, found.seen_labels, found.unseen_labels) == (int(labelled.sum()), 3, 2)
    assert found.gap == 0.3
    assert found.unseen != found.unseen_without_gap, "the gap of this test should matter"


@every_kind
def test_figures_are_those_of_the_answers_that_users_get(kind: str) -> None:
    one, test = classifier(kind), split()
    labelled = torch.as_tensor(test.targets) >= 0
    answers = slow_accuracies(
        torch.from_numpy(one.scores(px(test)[labelled]).log_odds),
        test.targets[labelled],
        torch.from_numpy(~one.calibration.unseen),
    )
    found = evaluate_zero_shot(Evaluation.of(one, test, LABELS))
    assert (found.unseen, found.seen) == pytest.approx(answers)


def test_calibration_and_the_order_of_labels_change_nothing() -> None:
    one, test = classifier("offset"), split()
    turned = Labels(names=LABELS.names[::-1])
    swapped = replace(
        test, targets=torch.where(torch.as_tensor(test.targets) >= 0, 5 - torch.as_tensor(test.targets), -1)
    )
    other = with_penalty(
        changed(
            with_penalty(one, 0.0),
            scale=one.calibration.scale * 7,
            offset=one.calibration.offset * 0 + 4,
            temperature=3.0,
        ),
        0.3,
    )
    assert figures(evaluate_zero_shot(Evaluation.of(other, swapped, turned))) == figures(
        evaluate_zero_shot(Evaluation.of(one, test, LABELS))
    )


def test_images_the_classifier_was_made_from_are_counted() -> None:
    one, test = classifier("offset"), split()
    assert evaluate_zero_shot(Evaluation.of(one, test, LABELS)).leaked == 0
    known = made_from(one, px(test)[:7])  # the last of these has no label, so it is not tested
    assert evaluate_zero_shot(Evaluation.of(known, test, LABELS)).leaked == pytest.approx(
        6 / int((torch.as_tensor(test.targets) >= 0).sum())
    )


@pytest.mark.parametrize(("kept", "given"), [((0, 2, 4), r"given 26 and 0\."), ((1, 3), r"given 0 and 16\.")])
def test_both_kinds_of_images_are_needed(kept: tuple[int, ...], given: str) -> None:
    test = split()
    some = test.select(torch.isin(torch.as_tensor(test.targets), torch.tensor(kept)).nonzero()[:, 0])
    with pytest.raises(DataError, match=f"labels with training images and of labels without; {given}"):
        evaluate_zero_shot(Evaluation.of(classifier("offset"), some, LABELS))


def test_foreign_labels_are_refused() -> None:
    with pytest.raises(DataError, match="does not know these labels of the data: okapi"):
        evaluate_zero_shot(Evaluation.of(classifier("offset"), split(), Labels(names=("okapi", *LABELS.names[1:]))))


def figures(result: ZeroShotResult) -> dict[str, float]:
    return {name: value for name, value in vars(result).items() if name != "curve"}
