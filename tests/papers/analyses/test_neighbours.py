"""Nearest labels against every pair one by one."""

import numpy as np
import pytest
import torch

from labelwise.core.classifier import Classifier
from labelwise.methods import METHODS
from labelwise.methods.indicator.method import IndicatorModel
from labelwise.support.errors import UsageError
from labelwise_papers.analyses.neighbours import nearest_labels
from tests.changed import bind_model, model_of
from tests.conftest import blobs, quick
from tests.papers.analyses.test_answers import untrained

DATA = blobs(6, 12)


def slow_nearest(names: list[str], points: list[list[float]], k: int) -> dict[str, list[tuple[str, float]]]:
    found = {}
    for name, point in zip(names, points, strict=True):
        far = [sum((a - b) ** 2 for a, b in zip(point, other, strict=True)) ** 0.5 for other in points]
        others = [(distance, other) for distance, other in zip(far, names, strict=True) if other != name]
        found[name] = [(other, distance) for distance, other in sorted(others)[:k]]
    return found


def check(classifier: Classifier, points: torch.Tensor, k: int) -> str:
    result = nearest_labels(classifier, k)
    slow = slow_nearest(list(classifier.labels.names), points.tolist(), k)
    assert [one["label"] for one in result["labels"]] == list(classifier.labels.names)
    for one in result["labels"]:
        assert list(one["nearest"]) == [name for name, _ in slow[one["label"]]]
        assert one["distances"] == pytest.approx([far for _, far in slow[one["label"]]], rel=1e-5)
    return str(result["between"])


@pytest.mark.parametrize("k", [1, 3, 9])
def test_an_indicator_is_measured_between_embeddings(k: int) -> None:
    classifier = untrained("indicator", DATA)
    model = model_of(classifier)
    assert isinstance(model, IndicatorModel)
    with torch.no_grad():
        model.predictor.weight.copy_(torch.linspace(-2, 2, model.encoder.code_size))  # embeddings now differ from psi
        psi = model.label_encoder.of_inputs(torch.eye(6))
    assert check(bind_model(model, DATA.labels, quick("indicator")), psi, k) == "label embeddings"
    some = ["blob 4", "blob 1", "blob 5"]
    rows = [4, 1, 5]
    assert check(bind_model(model, DATA.labels, quick("indicator")).select(some), psi[rows], k) == "label embeddings"


def test_a_taught_label_has_an_embedding_alone() -> None:
    classifier = untrained("indicator", DATA)
    embedding = torch.randn(classifier.label_embeddings.shape[1], generator=torch.Generator().manual_seed(0))
    taught = classifier.add(classifier.labels.add("okapi"), np.asarray(embedding))
    assert check(taught, torch.from_numpy(taught.label_embeddings), 3) == "label codes"
    known = classifier.remove("blob 2")
    again = known.add(known.labels.add("blob 2"), np.asarray(embedding))
    assert check(again, torch.from_numpy(again.label_embeddings), 3) == "label codes", (
        "its embedding is no longer what the label encoder makes"
    )


@pytest.mark.parametrize("method", [name for name in METHODS if name in ("softmax", "multilabel", "clarel")])
def test_other_methods_are_measured_between_embeddings(method: str) -> None:
    classifier = untrained(method, DATA)
    assert check(classifier, torch.from_numpy(classifier.label_embeddings), 2) == "label codes"


def test_one_label_has_no_neighbour() -> None:
    classifier = untrained("indicator", DATA)
    with pytest.raises(UsageError, match="at least two labels"):
        nearest_labels(classifier.select(["blob 1"]))
    with pytest.raises(UsageError, match="k = 0"):
        nearest_labels(classifier, 0)
