from dataclasses import replace

import pytest
import torch

from labelwise.core.model import Compares, Whitens
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.pairs import evaluate_pairs
from labelwise.evaluation.retrieval import evaluate_retrieval, query_figures
from labelwise.evaluation.verification import evaluate_verification
from labelwise.support.errors import DataError
from labelwise.tasks.similarity import By
from tests.conftest import blobs, squares
from tests.contract.subjects import trained
from tests.evaluation.test_verification import noisy

TEST = noisy(blobs().split("test"))


def test_every_score_is_measured_as_it_is_alone() -> None:
    classifier = trained("prototype")
    split = replace(TEST, targets=torch.where(torch.arange(len(TEST)) < 5, -1, torch.as_tensor(TEST.targets)))
    found = evaluate_pairs(Evaluation.of(classifier, split))
    assert (found.images, found.labels, found.leaked) == (len(TEST) - 5, 4, 0)
    assert list(found.verification) == list(found.retrieval) == ["similarity", "cosine", "sum", "whitened"]
    for score, result in found.verification.items():
        assert result == evaluate_verification(Evaluation.of(classifier, split), by=score)
    assert found.retrieval["similarity"] == evaluate_retrieval(Evaluation.of(classifier, split))
    embeddings, model = classifier.encode(split.images[5:]), classifier.model
    assert isinstance(model, Compares)
    assert isinstance(model, Whitens)
    ways = torch.nn.functional.normalize(torch.from_numpy(embeddings), dim=1)
    table: dict[By, torch.Tensor] = {
        "cosine": ways @ ways.T,
        "sum": ways @ ways.T + model.similarity(torch.from_numpy(embeddings), torch.from_numpy(embeddings)),
        "whitened": (white := torch.nn.functional.normalize(model.whitened(torch.from_numpy(embeddings)), dim=1))
        @ white.T,
    }
    for by, scores in table.items():
        scores = scores.detach().fill_diagonal_(-torch.inf)
        best = torch.as_tensor(split.targets)[5:][scores.argmax(1)] == torch.as_tensor(split.targets)[5:]
        assert found.retrieval[by].recall[1] == pytest.approx(float(best.double().mean()))
    assert found.retrieval["cosine"] != found.retrieval["similarity"]


def test_a_model_without_a_similarity_of_its_own_is_measured_by_cosines() -> None:
    classifier = trained("softmax")
    found = evaluate_pairs(Evaluation.of(classifier, TEST))
    assert list(found.verification) == list(found.retrieval) == ["cosine", "whitened"]
    embeddings = classifier.encode(TEST.images)
    first, _ = query_figures(classifier.model, torch.from_numpy(embeddings), torch.from_numpy(TEST.targets))
    assert found.retrieval["cosine"].recall[1] == pytest.approx(float((first == 0).double().mean()))


def test_few_of_many_images_are_drawn() -> None:
    classifier = trained("softmax")
    found = evaluate_pairs(Evaluation.of(classifier, TEST), most=30, seed=1)
    assert found.images == 30
    assert found == evaluate_pairs(Evaluation.of(classifier, TEST), most=30, seed=1)
    assert found != evaluate_pairs(Evaluation.of(classifier, TEST), most=30, seed=2)


def test_several_labels_are_refused() -> None:
    with pytest.raises(DataError, match="Several labels may be true"):
        evaluate_pairs(Evaluation.of(trained("softmax"), squares(30).split("test")))
