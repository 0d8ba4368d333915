"""How right names are that no label was read for."""

import pytest
import torch

from labelwise.core import Classifier
from labelwise.errors import UnsupportedError
from labelwise.evaluate.closed import evaluate_closed
from labelwise.evaluate.named import FIXED, answer_curve, evaluate_named
from labelwise.fitting import fit
from labelwise.training import Run
from tests.conftest import blobs, quick


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return fit(blobs(), quick("zero_label"), Run(device="cpu"))


def test_accuracies_of_restarts_and_of_the_best_naming(classifier: Classifier) -> None:
    data = blobs()
    found = evaluate_named(classifier, data.split("test"), data.labels)
    assert found.accuracy == pytest.approx(evaluate_closed(classifier, data.split("test"), data.labels).accuracy)
    assert len(found.restarts) == 3
    assert found.mean == pytest.approx(sum(found.restarts) / 3)
    assert found.clusters >= found.accuracy
    slow = 0.0
    answers = classifier.scores(data.split("test").images).argmax(1)
    for order in torch.cartesian_prod(*[torch.arange(4)] * 4):
        if len(set(order.tolist())) == 4:
            slow = max(slow, float((order[answers] == data.split("test").targets).double().mean()))
    assert found.clusters == pytest.approx(slow)


def test_with_all_answers_the_accuracy_is_that_of_the_clusters(classifier: Classifier) -> None:
    data = blobs()
    best = evaluate_named(classifier, data.split("train"), data.labels)
    for curve in (
        answer_curve(classifier, data.split("train"), data.split("train"), data.labels),
        answer_curve(classifier, data.split("train"), data.split("train"), data.labels, FIXED),
    ):
        assert len(curve) == len(data.labels) + 1
        assert curve[0] == pytest.approx(best.accuracy)
        assert curve[-1] == pytest.approx(best.clusters)


def test_other_methods_name_no_clusters() -> None:
    data = blobs()
    other = fit(data, quick("softmax", 1), Run(device="cpu"))
    with pytest.raises(UnsupportedError, match="names no clusters"):
        evaluate_named(other, data.split("test"), data.labels)
