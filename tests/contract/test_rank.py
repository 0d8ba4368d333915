"""Ranking works with every method, whatever order its labels are given."""

import numpy as np
import pytest

from labelwise.api import rank
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.ordinal import evaluate_ordinal
from labelwise.methods import METHODS
from tests.contract.subjects import pictures, trained
from tests.pixels_of import px


@pytest.mark.parametrize("method", METHODS)
def test_rank(method: str) -> None:
    classifier, data = trained(method), pictures(method)
    test, names = data.split("test"), list(reversed(classifier.labels.names))
    found = rank(classifier, px(test), order=names)
    assert sorted(one.image for one in found) == list(range(len(test)))
    assert [one.rank for one in found] == sorted(one.rank for one in found)
    truth = [names.index(data.labels.names[test.targets[one.image]]) for one in found]
    assert np.mean([names.index(one.median) == level for one, level in zip(found, truth, strict=True)]) > 0.9
    assert np.corrcoef([one.rank for one in found], truth)[0, 1] > 0.85
    assert all(sum(one.probabilities.values()) == pytest.approx(1) for one in found)
    figures = evaluate_ordinal(Evaluation.of(classifier, test, data.labels), order=names)
    assert figures.median.mean_absolute_error < 0.3
    assert figures.covered > 0.8
