"""Training images are measured by leave-one-out where the classifier follows from exactly these."""

from dataclasses import replace

import numpy as np
import pytest

import labelwise as lw
from labelwise.evaluation.training_images import left_out_answers
from labelwise.images.dataset import Dataset
from labelwise.images.sources.array_data import arrays
from labelwise.images.split.divide import pool
from labelwise.support.errors import DataError


@pytest.fixture(scope="module")
def data() -> Dataset:
    rng, targets = np.random.default_rng(0), np.arange(60) % 3
    return arrays(rng.random((60, 6), np.float32) + 0.7 * np.eye(3, 6, dtype=np.float32)[targets], targets)


@pytest.fixture(scope="module")
def classifier(data: Dataset) -> lw.Classifier:
    return lw.fit(data)


def test_figures_of_training_images_are_those_of_leave_one_out(data: Dataset, classifier: lw.Classifier) -> None:
    figures = lw.evaluate(classifier, data)
    estimate = classifier.origin.summary["leave_one_out"]
    assert (figures.images, figures.leaked) == (60, 0.0)
    assert figures.accuracy == pytest.approx(estimate["accuracy"], abs=0.05)
    seen = lw.evaluate(classifier, data, split="all")
    assert seen.leaked == 1
    assert figures.calibration_error is not None
    assert figures.accuracy is not None
    assert seen.accuracy is not None
    assert figures.accuracy < seen.accuracy, "images that were seen are answered better"
    assert figures.as_json()["measured"]["leave_one_out"] is True
    assert "used in training" in figures.test_set.words


def test_images_given_twice_and_images_of_no_weight_are_measured_too(data: Dataset) -> None:
    whole = pool(data)
    twice = whole.select([*range(60), *range(7)])
    weights = (0.0, 2.5, *[1.0] * 65)
    weighted = replace(data, splits={"train": replace(twice, weights=weights)})
    figures = lw.evaluate(lw.fit(weighted), weighted)
    assert figures.images == 66, "one was left out of training, though its copy was not"
    assert figures.leaked == 0


def test_answers_of_another_classifier_are_not_made_up(data: Dataset, classifier: lw.Classifier) -> None:
    whole = pool(data)
    assert left_out_answers(classifier, whole, data.labels) is not None
    assert left_out_answers(classifier, whole.select(range(50)), data.labels) is None, "of other images"
    wrong = replace(whole, targets=(whole.targets + (np.arange(60) < 9)) % 3)
    assert left_out_answers(classifier, wrong, data.labels) is None, "of other labels"
    summary = {**classifier.origin.summary, "labels_by": "groups"}
    circular = replace(classifier, origin=replace(classifier.origin, summary=summary))
    assert left_out_answers(circular, whole, data.labels) is None, "no person chose the labels"
    taught = classifier.teach("new", whole.images.read(np.arange(3), (6,)))
    assert left_out_answers(taught, whole, data.labels) is None
    with pytest.raises(DataError, match="no image is left to measure"):
        lw.evaluate(taught, data)
