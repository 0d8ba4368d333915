import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from labelwise.api import fit_verification, verify
from labelwise.core.classifier import Classifier
from labelwise.core.model import LabelModel, Whitens
from labelwise.support.errors import UnsupportedError, UsageError
from labelwise.tasks.retrieve import search
from labelwise.tasks.similarity import By, all_alike, comparable, cosines, known_scores, row_alike
from labelwise.tasks.verify import pair_scores, scored_pairs
from labelwise.train.stages import Method
from tests.conftest import blobs
from tests.contract.subjects import roundtrip, trained
from tests.evaluation.test_verification import noisy
from tests.tasks.test_several import trained as several

TEST = noisy(blobs().split("test"))
SCORES: tuple[By, ...] = ("similarity", "cosine", "sum", "whitened")


def rebuilt(classifier: Classifier) -> LabelModel:
    """The classifier's model as it was before training."""
    method = classifier.origin.method
    assert isinstance(method, Method)
    return method.build(classifier.model.spec)


@pytest.mark.parametrize("by", SCORES)
@pytest.mark.parametrize("method", ["softmax", "prototype"])
def test_rows_are_the_diagonal_of_the_table(method: str, by: By) -> None:
    model, embeddings = trained(method).model, trained(method).encode(TEST.images[:20])
    table = all_alike(model, embeddings[:10], embeddings[10:], by)
    rows = row_alike(model, embeddings[:10], embeddings[10:], by)
    np.testing.assert_allclose(rows, table.diagonal(), atol=1e-5, rtol=1e-5)


def test_whitened_embeddings_are_comparable_by_their_cosine() -> None:
    classifier = trained("prototype")
    model, embeddings = classifier.model, classifier.encode(TEST.images)
    assert isinstance(model, Whitens)
    ways = normalize(model.whitened(torch.from_numpy(embeddings)), dim=1).numpy()
    np.testing.assert_allclose(
        all_alike(model, embeddings, embeddings, "whitened"), ways @ ways.T, rtol=1e-5, atol=1e-5
    )
    pairs = pair_scores(model, embeddings, embeddings[::-1], "whitened")
    np.testing.assert_allclose(pairs, (ways * ways[::-1]).sum(1), rtol=1e-5, atol=1e-5)
    assert abs(ways @ ways.T - cosines(embeddings, embeddings)).max() > 0.05
    same, different = scored_pairs(model, embeddings, TEST.targets, "whitened", (50, 0))
    assert same.mean() > different.mean()


@pytest.mark.parametrize("candidates", [None, 12])
def test_search_by_whitened_embeddings(candidates: int | None) -> None:
    classifier = trained("softmax")
    model, embeddings = classifier.model, classifier.encode(TEST.images)
    scores, places = search(model, embeddings[:5], embeddings, 4, candidates, by="whitened")
    table = all_alike(model, embeddings[:5], embeddings, "whitened")
    np.testing.assert_allclose(np.take_along_axis(table, places, 1), scores, atol=1e-5, rtol=1e-5)
    if candidates is not None:
        near = np.argsort(-all_alike(model, embeddings[:5], embeddings, "cosine"), axis=1)[:, :candidates]
        table = np.take_along_axis(table, near, 1)
    np.testing.assert_allclose(-np.sort(-table, axis=1)[:, :4], scores, atol=1e-5, rtol=1e-5)


def test_a_threshold_for_whitened_embeddings_is_kept_when_saved() -> None:
    classifier = fit_verification(trained("softmax"), TEST, by="whitened")
    answers = verify(classifier, TEST.images[:4], TEST.images[4:8])
    assert verify(roundtrip(classifier), TEST.images[:4], TEST.images[4:8]) == answers


def test_scores_that_differ_are_listed() -> None:
    assert known_scores(trained("prototype").model) == SCORES
    assert known_scores(trained("softmax").model) == ("cosine", "whitened")


def test_models_without_statistics_say_so() -> None:
    model = rebuilt(trained("softmax"))
    assert known_scores(model) == ("cosine",)
    with pytest.raises(UnsupportedError, match="Compare by cosine, or train again"):
        comparable(model, np.ones((2, 8), np.float32), "whitened")
    with pytest.raises(UsageError, match='similarity, cosine, sum or whitened; given "angle"'):
        comparable(model, np.ones((2, 8), np.float32), "angle")  # type: ignore[arg-type]


def test_no_such_scores_where_several_labels_are_true() -> None:
    with pytest.raises(UnsupportedError, match="several labels may be true"):
        comparable(several("multilabel").model, np.ones((2, 8), np.float32), "whitened")


def test_a_model_that_is_not_linear_cannot() -> None:
    class Odd(LabelModel):
        def encode_images(self, images: torch.Tensor) -> torch.Tensor:
            return images

        def encode_labels(self, labels: object) -> torch.Tensor:
            raise NotImplementedError

        def score(self, image_embeddings: torch.Tensor, label_embeddings: torch.Tensor) -> torch.Tensor:
            return image_embeddings @ label_embeddings.T

    with pytest.raises(UnsupportedError, match=r"Odd cannot compare whitened embeddings: it does not know how"):
        comparable(Odd(trained("softmax").model.spec), np.ones((2, 8), np.float32), "whitened")
