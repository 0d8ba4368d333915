"""Every classifier can be copied, pickled and sent to another process, and answers the same there."""

import copy
import pickle

import numpy as np
import pytest
import torch
from joblib import Parallel, delayed
from torch import Tensor

from labelwise.api import teach
from labelwise.core.classifier import Classifier
from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset
from labelwise.methods import METHODS, Softmax
from labelwise.methods.shared.linear import Encoder
from labelwise.train.method import Run
from tests.conftest import blobs, colour_weights
from tests.contract.subjects import pictures, roundtrip, trained


def shown(method: str) -> Tensor:
    return pictures(method).split("test").images[:12]  # type: ignore[no-any-return]


@pytest.mark.parametrize("method", METHODS)
def test_copies_give_the_same_scores(method: str) -> None:
    classifier, images = trained(method), shown(method)
    for one in (classifier, roundtrip(classifier)):
        for again in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
            assert np.array_equal(again.scores(images).log_odds, one.scores(images).log_odds)
            assert (again.labels.names, again.origin.method, again.familiarity.rule) == (
                one.labels.names,
                one.origin.method,
                one.familiarity.rule,
            )


@pytest.mark.parametrize("method", ["indicator", "prototype", "clarel"])
def test_a_copy_can_be_taught(method: str) -> None:
    classifier, images = trained(method), shown(method)
    again = pickle.loads(pickle.dumps(classifier))
    taught, copied = (teach(one, "a new one", examples=images[:5]) for one in (classifier, again))
    assert np.array_equal(copied.scores(images).log_odds, taught.scores(images).log_odds)


def log_odds(classifier: Classifier, images: Tensor) -> Tensor:
    return torch.from_numpy(classifier.scores(images).log_odds)


def test_other_processes_give_the_same_scores() -> None:
    """Two processes that are started afresh, so that every classifier reaches them as a pickle."""
    tasks = [(trained(method), shown(method)) for method in METHODS]
    made: list[Tensor] = Parallel(n_jobs=2)(delayed(log_odds)(*task) for task in tasks)
    for (classifier, images), scores in zip(tasks, made, strict=True):
        torch.testing.assert_close(scores, log_odds(classifier, images))


def test_a_pickle_holds_no_features_of_training_images() -> None:
    """A frozen encoder keeps what it made of the training images as long as these live; a copy has no use for it."""
    data: Dataset = blobs(per_label=240)
    encoder = Encoder(backbone="convnet", width=8, weights=colour_weights(), frozen=True)
    classifier = fit(data, Softmax(encoder=encoder, epochs=1), Run(device="cpu"))
    images = data.split("train").images
    before = len(pickle.dumps(classifier))
    classifier.scores(images)
    assert len(pickle.dumps(classifier)) == before
