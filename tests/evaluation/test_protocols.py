"""Every protocol is in one table, and runs where it applies."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from labelwise.core.head import Compares, Whitens
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.protocols import PROTOCOLS, measure_retrieval, measure_verification, run_protocols
from labelwise.evaluation.retrieval import evaluate_retrieval, query_figures
from labelwise.evaluation.verification import evaluate_verification
from labelwise.support.errors import UsageError
from labelwise.support.text import FIGURES
from labelwise.tasks.similarity import By
from tests.conftest import blobs, squares
from tests.contract.subjects import trained
from tests.evaluation.test_verification import noisy

TEST = noisy(blobs().split("test"))


def test_every_score_is_measured_as_it_is_alone() -> None:
    classifier = trained("prototype")
    split = replace(TEST, targets=np.where(np.arange(len(TEST)) < 5, -1, np.asarray(TEST.targets)))
    evaluation = Evaluation.of(classifier, split)
    verification, retrieval = measure_verification(evaluation), measure_retrieval(evaluation)
    assert list(verification) == list(retrieval) == ["similarity", "cosine", "sum", "whitened"]
    assert verification["cosine"].images == len(TEST) - 5
    for score, result in verification.items():
        assert result == evaluate_verification(evaluation, by=score)
    assert retrieval["similarity"] == evaluate_retrieval(evaluation)
    embeddings, model = torch.from_numpy(classifier.encode(split.images[5:])), classifier.head
    assert isinstance(model, Compares)
    assert isinstance(model, Whitens)
    ways = torch.nn.functional.normalize(embeddings, dim=1)
    table: dict[By, torch.Tensor] = {
        "cosine": ways @ ways.T,
        "sum": ways @ ways.T + torch.from_numpy(model.similarity(embeddings.numpy(), embeddings.numpy())),
        "whitened": (
            white := torch.nn.functional.normalize(torch.from_numpy(model.whitened(embeddings.numpy())), dim=1)
        )
        @ white.T,
    }
    for by, scores in table.items():
        scores = scores.detach().fill_diagonal_(-torch.inf)
        truth = np.asarray(split.targets)[5:]
        best = truth[np.asarray(scores.argmax(1))] == truth
        assert retrieval[by].recall[1] == pytest.approx(best.mean())
    assert retrieval["cosine"] != retrieval["similarity"]


def test_a_model_without_a_similarity_of_its_own_is_measured_by_cosines() -> None:
    classifier = trained("softmax")
    evaluation = Evaluation.of(classifier, TEST)
    retrieval = measure_retrieval(evaluation)
    assert list(measure_verification(evaluation)) == list(retrieval) == ["cosine", "whitened"]
    first, _ = query_figures(classifier.head, classifier.encode(TEST.images), TEST.targets)
    assert retrieval["cosine"].recall[1] == pytest.approx(float((first == 0).mean()))


def test_few_of_many_images_are_drawn() -> None:
    evaluation = Evaluation.of(trained("softmax"), TEST)
    found = measure_retrieval(evaluation, most=30, seed=1)
    assert found["cosine"].images == 30
    assert found == measure_retrieval(evaluation, most=30, seed=1)
    assert found != measure_retrieval(evaluation, most=30, seed=2)


def test_protocols_that_do_not_apply_say_why() -> None:
    records, left_out = run_protocols(Evaluation.of(trained("softmax"), TEST), ["verification"])
    assert list(records) == ["closed", "verification"]
    assert left_out["ordinal"] == "The labels have no order."
    assert set(left_out) == {"multilabel", "unknown", "promises", "zero_shot", "ordinal"}
    several = Evaluation.of(trained("softmax"), squares(30).split("test"))
    assert PROTOCOLS["retrieval"].reason(several).startswith("Several labels may be true")
    with pytest.raises(UsageError, match=r'No protocol "verify"\. Did you mean verification\?|No protocol "verify"'):
        run_protocols(several, ["verify"])


def test_of_new_labels_only_comparing_and_learning_them_is_measured() -> None:
    labels = replace(blobs().labels, names=tuple(f"new {i}" for i in range(4)))
    data = blobs(per_label=60).split("test")
    records, _ = run_protocols(Evaluation.of(trained("softmax"), data, labels))
    assert list(records) == ["verification", "retrieval", "episodes"]
    assert [one.settings.shots for one in records["episodes"]] == [1, 5]


def test_every_figure_has_a_word() -> None:
    assert PROTOCOLS["verification"].word("eer") == FIGURES["pair_eer"]
    assert PROTOCOLS["unknown"].word("auroc") == FIGURES["unknown_auroc"]
