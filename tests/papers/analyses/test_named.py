"""How right names are that no label was read for."""

import numpy as np
import pytest
import torch

from labelwise.core.classifier import Classifier
from labelwise.evaluation.closed_set import evaluate_closed
from labelwise.evaluation.evaluation import Evaluation
from labelwise.fitting.fit import fit
from labelwise.methods.zero_label.rename import named_head
from labelwise.support.errors import UnsupportedError
from labelwise.train.method import Run
from labelwise_papers.analyses.named import answer_curve, evaluate_named, true_agreement
from tests.conftest import blobs, quick


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    return fit(blobs(), quick("zero_label"), Run(device="cpu"))


def test_accuracies_of_restarts_and_of_the_best_naming(classifier: Classifier) -> None:
    data = blobs()
    found = evaluate_named(Evaluation.of(classifier, data.split("test"), data.labels))
    assert found["accuracy"] == pytest.approx(
        evaluate_closed(Evaluation.of(classifier, data.split("test"), data.labels)).accuracy
    )
    assert len(found["restarts"]) == 3
    assert found["mean"] == pytest.approx(sum(found["restarts"]) / 3)
    assert found["clusters"] >= found["accuracy"]
    assert found["near and far"] <= min(found["near"], found["far"])
    slow = 0.0
    answers = classifier.scores(data.split("test").images).best
    for order in torch.cartesian_prod(*[torch.arange(4)] * 4):
        if len(set(order.tolist())) == 4:
            slow = max(slow, float((order[answers] == data.split("test").targets).double().mean()))
    assert found["clusters"] == pytest.approx(slow)


def test_agreement_with_the_prior_is_that_of_true_labels(classifier: Classifier) -> None:
    """Scores that put every image beside the names of other labels: by the answers they agree, by the true labels they do not."""
    data = blobs()
    evaluation = Evaluation.of(classifier, data.split("test"), data.labels)
    head = named_head(classifier)
    scores, targets = evaluation.labelled()
    raw = np.asarray(scores.raw)
    slow = []
    for label in range(4):
        mean = raw[np.asarray(targets) == label].mean(0)
        others = [i for i in range(4) if i != label]
        own = sorted(others, key=lambda i: -mean[i])
        prior = sorted(others, key=lambda i: -head.alike[label, i])
        slow.append((bool({*own[:2]} & {*prior[:2]}), bool({*own[-2:]} & {*prior[-2:]})))
    found = true_agreement(evaluation)
    assert found["near"] == np.mean([one[0] for one in slow])
    assert found["far"] == np.mean([one[1] for one in slow])
    assert found["near and far"] == np.mean([all(one) for one in slow])


def test_with_all_answers_the_accuracy_is_that_of_the_clusters(classifier: Classifier) -> None:
    data = blobs()
    train = Evaluation.of(classifier, data.split("train"), data.labels)
    best = evaluate_named(train)
    for curve in (answer_curve(train, train), answer_curve(train, train, "fixed")):
        assert len(curve) == len(data.labels) + 1
        assert curve[0] == pytest.approx(best["accuracy"])
        assert curve[-1] == pytest.approx(best["clusters"])


def test_other_methods_name_no_clusters() -> None:
    data = blobs()
    other = fit(data, quick("softmax", 1), Run(device="cpu"))
    with pytest.raises(UnsupportedError, match="names no clusters"):
        evaluate_named(Evaluation.of(other, data.split("test"), data.labels))
