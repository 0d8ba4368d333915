"""Accuracy under attack against what is known of linear classifiers, and checks that see masked gradients."""

from dataclasses import replace

import pytest
import torch

from labelwise.core.classifier import Classifier
from labelwise.evaluation.evaluation import Evaluation
from labelwise.fitting.rebuild import model_of
from labelwise.images.dataset import Split
from labelwise.support.errors import DataError, UsageError
from labelwise_papers.attacks.apgd import Apgd
from labelwise_papers.attacks.pgd import Attack, Fgsm, Pgd
from labelwise_papers.attacks.robust import RobustResult, RobustSettings, evaluate_robust
from labelwise_papers.attacks.square import Square
from labelwise_papers.attacks.weak import under_weak_attacks
from tests.conftest import squares
from tests.papers.attacks.pixels import pictures, pixels
from tests.papers.attacks.test_attack import smallest_radii
from tests.pretend_gpu import pretend_gpu

WAYS: tuple[Attack, ...] = (Fgsm(), Pgd(steps=10), Apgd(steps=20), Apgd(loss="ratio", steps=20), Square(queries=200))


def measured(classifier: Classifier, n: int = 60, settings: RobustSettings | None = None) -> RobustResult:
    """Robustness at 0.04 on pictures of which every sixth has a wrong label."""
    images = pictures(n)
    targets = torch.from_numpy(classifier.scores(images).best)
    targets = torch.where(torch.arange(n) % 6 == 0, (targets + 1) % 3, targets)
    split = Split(images=images, targets=targets)
    return evaluate_robust(
        Evaluation.of(classifier, split, classifier.labels), settings or RobustSettings(epsilon=0.04, attacks=WAYS)
    )


def test_the_worst_is_what_is_known_of_a_linear_classifier() -> None:
    classifier = pixels()
    found = measured(classifier)
    stand = [least > 0.04 for least in smallest_radii(classifier, pictures(60))]
    assert found.clean == pytest.approx(50 / 60)
    assert found.worst == pytest.approx(sum(s for row, s in enumerate(stand) if row % 6) / 60)
    assert 0 < found.worst < found.clean
    assert list(found.attacks) == ["fgsm", "pgd-10", "apgd-ce", "apgd-dlr", "square-200"]
    assert all(found.worst <= share <= found.clean for share in found.attacks.values())
    assert found.error == pytest.approx(1.96 * (found.worst * (1 - found.worst) / 60) ** 0.5)
    assert (found.images, found.leaked, found.warnings) == (60, 0.0, ())
    assert [check.name for check in found.checks] == ["huge radius", "gradients", "one step", "black box"]


def test_masked_gradients_are_seen() -> None:
    masked, plain = measured(pixels(masked=True)), measured(pixels())
    assert masked.attacks["apgd-ce"] > plain.attacks["apgd-ce"] + 0.2
    failed = {check.name for check in masked.checks if not check.passed}
    assert failed == {"huge radius", "gradients", "black box"}
    assert len(masked.warnings) == 3
    assert "100.0 % of the images have no gradient" in masked.warnings[1]
    assert masked.worst == pytest.approx(plain.worst, abs=0.1)  # the attack by scores alone is not misled


def test_a_surrogate_with_useful_gradients_exposes_a_masked_one() -> None:
    settings = RobustSettings(epsilon=0.04, attacks=(Apgd(steps=5),), surrogate=pixels())
    found = measured(pixels(masked=True), settings=settings)
    assert found.attacks["transfer"] < found.attacks["apgd-ce"]
    assert any("transfer breaks" in words for words in found.warnings)
    honest = measured(pixels(), settings=replace(settings, surrogate=pixels(seed=5)))
    assert not any("transfer breaks" in words for words in honest.warnings)
    assert honest.attacks["transfer"] > honest.worst


def test_the_surrogate_may_have_its_labels_in_another_order() -> None:
    settings = RobustSettings(epsilon=0.04, attacks=(Pgd(steps=5),), surrogate=pixels())
    turned = replace(settings, surrogate=pixels().select(["label 2", "label 0", "label 1"]))
    assert measured(pixels(), settings=settings) == measured(pixels(), settings=turned)


def test_longer_attacks_are_compared() -> None:
    found = measured(pixels(), settings=RobustSettings(epsilon=0.04, attacks=(Pgd(steps=3),), longer=30))
    assert list(found.attacks) == ["pgd-3", "pgd-30"]
    assert "more steps" in [check.name for check in found.checks]


def test_nothing_is_attacked_where_nothing_is_right() -> None:
    classifier, images = pixels(), pictures(5)
    targets = classifier.scores(images).log_odds.argmin(1)
    found = evaluate_robust(Evaluation.of(classifier, Split(images=images, targets=targets), classifier.labels))
    assert (found.clean, found.worst, found.attacks, found.checks) == (0.0, 0.0, {}, ())


def test_what_cannot_be_measured_says_why() -> None:
    several = squares()
    with pytest.raises(UsageError, match="sees gradients"):
        RobustSettings(attacks=(Square(),))
    with pytest.raises(UsageError, match="above 0"):
        RobustSettings(epsilon=0)
    classifier = pixels()
    split = replace(several.split("test"), images=pictures(len(several.split("test"))))
    with pytest.raises(DataError, match="Several labels"):
        evaluate_robust(Evaluation.of(classifier, split, several.labels))


def test_attacks_run_where_the_model_is() -> None:
    classifier, images = pixels(), pictures(30)
    split = Split(images=images, targets=torch.from_numpy(classifier.scores(images).best))
    evaluation = Evaluation.of(classifier, split, classifier.labels)
    few = (Fgsm(), Pgd(steps=3), Apgd(steps=4), Apgd(loss="ratio", steps=4), Square(queries=20))
    settings = RobustSettings(epsilon=0.04, attacks=few)

    def shares(device: str) -> tuple[object, ...]:
        model = model_of(classifier, device)
        result = evaluate_robust(evaluation, settings, model)
        return result.clean, result.attacks, result.worst, under_weak_attacks(evaluation, settings, model, (2,), 0.1)

    expected = shares("cpu")
    with pretend_gpu():
        assert shares("cuda") == expected
