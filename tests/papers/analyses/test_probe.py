"""The probe of image embeddings: what it is trained on, and what it is compared with."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import SGDClassifier

from labelwise.evaluation.evaluation import Evaluation
from labelwise.images.dataset import Split
from labelwise.images.describe.labels import Labels
from labelwise.methods import METHODS
from labelwise.support.errors import DataError
from labelwise_papers.analyses.probe import probe_embeddings
from tests.changed import bind_model, changed, made_from
from tests.described import Table
from tests.papers.analyses.test_answers import DATA, untrained
from tests.pixels_of import px

LABELS = Labels(names=("a", "b", "c"))


def rows(n: int, seed: int) -> Split:
    """Embeddings in three clouds; the true label is one further than the largest score, so the classifier is wrong."""
    made = torch.Generator().manual_seed(seed)
    cloud = torch.arange(n) % 3
    return Split(images=4 * torch.eye(3)[cloud] + torch.randn(n, 3, generator=made), targets=(cloud + 1) % 3)


def test_the_probe_reads_embeddings_and_not_the_labels_of_the_classifier() -> None:
    classifier, train, test = bind_model(Table(LABELS), LABELS), rows(120, 0), rows(90, 1)
    found = probe_embeddings(Evaluation.of(classifier, train, LABELS), Evaluation.of(classifier, test, LABELS))
    own = [int(max(range(3), key=row.__getitem__)) for row in px(test).tolist()]
    assert found["classifier"] == pytest.approx(
        np.mean([a == t for a, t in zip(own, test.targets.tolist(), strict=True)])
    )
    assert found["classifier"] < 0.1
    centres = [px(train)[torch.as_tensor(train.targets) == i].mean(0) for i in range(3)]
    near = [min(range(3), key=lambda i: float((row - centres[i]).norm())) for row in px(test)]
    nearest = np.mean([a == t for a, t in zip(near, test.targets.tolist(), strict=True)])
    assert found["probe"] == pytest.approx(nearest, abs=0.05)
    assert (found["train_images"], found["test_images"], found["leaked"]) == (120, 90, 0.0)
    assert found["converged"]
    assert found["rounds"] > 1


def test_the_seed_decides_and_the_calibration_does_not_matter() -> None:
    classifier, train, test = bind_model(Table(LABELS), LABELS), rows(60, 0), rows(90, 1)
    noisy = replace(train, images=px(train) + 3 * torch.randn(60, 3, generator=torch.Generator().manual_seed(9)))
    found = [
        probe_embeddings(Evaluation.of(classifier, noisy, LABELS), Evaluation.of(classifier, test, LABELS), seed=seed)[
            "probe"
        ]
        for seed in (0, 0, 1, 2, 3)
    ]
    assert found[0] == found[1]
    assert len(set(found)) > 1
    scaled = changed(classifier, scale=classifier.calibration.scale * np.array([1.0, 50.0, 1.0], np.float32))
    assert (
        probe_embeddings(Evaluation.of(scaled, noisy, LABELS), Evaluation.of(scaled, test, LABELS))["probe"] == found[0]
    )
    assert (
        probe_embeddings(Evaluation.of(scaled, noisy, LABELS), Evaluation.of(scaled, test, LABELS))["classifier"]
        != probe_embeddings(Evaluation.of(classifier, noisy, LABELS), Evaluation.of(classifier, test, LABELS))[
            "classifier"
        ]
    )


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_embeddings(method: str) -> None:
    classifier, train, test = untrained(method), DATA.split("train"), DATA.split("test")
    found = probe_embeddings(
        Evaluation.of(classifier, train, DATA.labels), Evaluation.of(classifier, test, DATA.labels), seed=4
    )
    plain = SGDClassifier(loss="log_loss", tol=1e-5, random_state=4)
    plain.fit(classifier.encode(train.images), np.asarray(train.targets))
    assert found["probe"] == pytest.approx(plain.score(classifier.encode(test.images), np.asarray(test.targets)))
    right = classifier.scores(test.images).best == np.asarray(test.targets)
    assert found["classifier"] == pytest.approx(float(right.mean()))
    if method != "izf":  # its closed form is not there before training: all scores are the same
        assert found["classifier"] != found["probe"]


def test_leaks_and_too_few_labels_are_told() -> None:
    train, test = rows(30, 0), rows(12, 1)
    classifier = made_from(bind_model(Table(LABELS), LABELS), torch.cat([px(train), px(test)[:3]]))
    assert probe_embeddings(Evaluation.of(classifier, train, LABELS), Evaluation.of(classifier, test, LABELS))[
        "leaked"
    ] == pytest.approx(3 / 12)
    alone = train.select((torch.as_tensor(train.targets) == 0).nonzero()[:, 0])
    with pytest.raises(DataError, match="at least two labels"):
        probe_embeddings(Evaluation.of(classifier, alone, LABELS), Evaluation.of(classifier, test, LABELS))
