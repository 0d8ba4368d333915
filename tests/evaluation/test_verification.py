from dataclasses import replace
from itertools import combinations

import pytest
import torch

from labelwise.api import fit_verification
from labelwise.core.head import Compares
from labelwise.core.metrics import det_curve, equal_error
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.verification import evaluate_verification
from labelwise.images.dataset import Split
from labelwise.support.errors import DataError
from tests.changed import changed
from tests.conftest import blobs, squares
from tests.contract.subjects import trained
from tests.pixels_of import px


def noisy(split: Split) -> Split:
    """Pictures under so much noise that no figure is perfect."""
    noise = 80 * torch.randn(px(split).shape, generator=torch.Generator().manual_seed(0))
    return replace(split, images=(px(split) + noise).clamp(0, 255).byte())


TEST = noisy(blobs().split("test"))
FEW = TEST.select(range(40))


def test_figures_are_those_of_all_pairs() -> None:
    classifier = fit_verification(trained("prototype"), blobs().split("val"), 0.1)
    rule = classifier.verifier
    assert rule is not None
    split = replace(FEW, targets=torch.where(torch.arange(40) < 3, -1, torch.as_tensor(FEW.targets)))
    found = evaluate_verification(Evaluation.of(classifier, split))
    embeddings, model = classifier.encode(split.images), classifier.head
    assert isinstance(model, Compares)
    one_way = model.similarity(embeddings, embeddings)
    every = ((one_way + one_way.T) / 2).tolist()
    same, different = list[float](), list[float]()
    for i, j in combinations(range(3, 40), 2):
        (same if torch.as_tensor(split.targets)[i] == torch.as_tensor(split.targets)[j] else different).append(
            every[i][j]
        )
    assert (found.images, found.same, found.different) == (37, len(same), len(different))
    assert found.eer == pytest.approx(equal_error(det_curve(same, different)).rate, abs=1e-3)
    assert found.misses == pytest.approx(sum(s < rule.threshold for s in same) / len(same), abs=2e-3)
    assert found.false_accepts == pytest.approx(sum(s >= rule.threshold for s in different) / len(different), abs=2e-3)
    wins = sum((s > d) + (s == d) / 2 for s in same for d in different)
    assert found.auroc == pytest.approx(wins / len(same) / len(different), abs=1e-3)
    for share, misses in found.det:
        allowed = sorted(different, reverse=True)[int(share * len(different) + 1e-9)]
        assert misses == pytest.approx(sum(s <= allowed for s in same) / len(same), abs=5e-3)
    assert found.eer > 0.05
    assert found.leaked == 0


def test_a_draw_is_near_and_seeded() -> None:
    classifier, test = trained("softmax"), TEST
    whole, some = (
        evaluate_verification(Evaluation.of(classifier, test)),
        evaluate_verification(Evaluation.of(classifier, test), most=400, seed=3),
    )
    assert (some.same, some.different) == (400, 400)
    assert some.auroc == pytest.approx(whole.auroc, abs=0.06)
    assert some == evaluate_verification(Evaluation.of(classifier, test), most=400, seed=3)
    assert some != evaluate_verification(Evaluation.of(classifier, test), most=400, seed=4)


def test_threshold_of_another_score_is_not_used() -> None:
    assert evaluate_verification(Evaluation.of(trained("softmax"), TEST)).misses is not None
    assert evaluate_verification(Evaluation.of(trained("softmax"), TEST), by="sum").misses is None
    bare = changed(trained("softmax"), verifier=None)
    assert evaluate_verification(Evaluation.of(bare, TEST)).false_accepts is None


def test_leak_and_wrong_data() -> None:
    assert evaluate_verification(Evaluation.of(trained("softmax"), blobs().split("train"))).leaked == 1
    with pytest.raises(DataError, match="Several labels"):
        evaluate_verification(Evaluation.of(trained("softmax"), squares().split("test")))
