from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from labelwise.api import fit_verification, verify
from labelwise.core.head import Whitens
from labelwise.support.errors import UnsupportedError, UsageError
from labelwise.support.rows import unit_rows
from labelwise.tasks.retrieve import search
from labelwise.tasks.similarity import (
    By,
    best_score,
    check_score,
    comparable,
    cosines,
    known_scores,
    row_similarity,
    similarity_matrix,
)
from labelwise.tasks.verify import pair_scores, score_pairs
from tests.conftest import blobs
from tests.contract.subjects import roundtrip, trained
from tests.evaluation.test_verification import noisy
from tests.tasks.test_several import trained as several

TEST = noisy(blobs().split("test"))
SCORES: tuple[By, ...] = ("similarity", "cosine", "sum", "whitened")


@pytest.mark.parametrize("by", SCORES)
@pytest.mark.parametrize("method", ["softmax", "prototype"])
def test_rows_are_the_diagonal_of_the_table(method: str, by: By) -> None:
    model, embeddings = trained(method).head, trained(method).encode(TEST.images[:20])
    table = similarity_matrix(model, embeddings[:10], embeddings[10:], by)
    rows = row_similarity(model, embeddings[:10], embeddings[10:], by)
    np.testing.assert_allclose(rows, table.diagonal(), atol=1e-5, rtol=1e-5)


def test_whitened_embeddings_are_comparable_by_their_cosine() -> None:
    classifier = trained("prototype")
    model, embeddings = classifier.head, classifier.encode(TEST.images)
    assert isinstance(model, Whitens)
    ways = unit_rows(model.whitened(embeddings))
    np.testing.assert_allclose(
        similarity_matrix(model, embeddings, embeddings, "whitened"), ways @ ways.T, rtol=1e-5, atol=1e-5
    )
    pairs = pair_scores(model, embeddings, embeddings[::-1], "whitened")
    np.testing.assert_allclose(pairs, (ways * ways[::-1]).sum(1), rtol=1e-5, atol=1e-5)
    assert abs(ways @ ways.T - cosines(embeddings, embeddings)).max() > 0.05
    same, different = score_pairs(model, embeddings, TEST.targets, "whitened", (50, 0))
    assert same.mean() > different.mean()


@pytest.mark.parametrize("candidates", [None, 12])
def test_search_by_whitened_embeddings(candidates: int | None) -> None:
    classifier = trained("softmax")
    model, embeddings = classifier.head, classifier.encode(TEST.images)
    scores, places = search(model, embeddings[:5], embeddings, 4, candidates, by="whitened")
    table = similarity_matrix(model, embeddings[:5], embeddings, "whitened")
    np.testing.assert_allclose(np.take_along_axis(table, places, 1), scores, atol=1e-5, rtol=1e-5)
    if candidates is not None:
        near = np.argsort(-similarity_matrix(model, embeddings[:5], embeddings, "cosine"), axis=1)[:, :candidates]
        table = np.take_along_axis(table, near, 1)
    np.testing.assert_allclose(-np.sort(-table, axis=1)[:, :4], scores, atol=1e-5, rtol=1e-5)


def test_a_threshold_for_whitened_embeddings_is_kept_when_saved() -> None:
    classifier = fit_verification(trained("softmax"), TEST, by="whitened")
    answers = verify(classifier, TEST.images[:4], TEST.images[4:8])
    again = verify(roundtrip(classifier), TEST.images[:4], TEST.images[4:8])
    assert [one.score for one in again] == pytest.approx([one.score for one in answers], abs=1e-5)
    assert [one.same for one in again] == [one.same for one in answers]


def test_scores_that_differ_are_listed() -> None:
    assert known_scores(trained("prototype").head) == SCORES
    assert known_scores(trained("softmax").head) == ("cosine", "whitened")


def test_models_without_statistics_say_so() -> None:
    head: Any = trained("softmax").head
    model = replace(head, unit_within=head.unit_within * 0)
    assert known_scores(model) == ("cosine",)
    with pytest.raises(UnsupportedError, match="Compare by cosine, or train again"):
        comparable(model, np.ones((2, 8), np.float32), "whitened")
    with pytest.raises(UsageError, match='similarity, cosine, sum or whitened; given "angle"'):
        comparable(model, np.ones((2, 8), np.float32), "angle")  # type: ignore[arg-type]


def test_no_such_scores_where_several_labels_are_true() -> None:
    with pytest.raises(UnsupportedError, match="several labels may be true"):
        comparable(several("multilabel").head, np.ones((2, 8), np.float32), "whitened")


def test_a_model_that_is_not_linear_cannot() -> None:
    with pytest.raises(UnsupportedError, match=r"clarel\" cannot compare whitened embeddings: it does not know how"):
        comparable(trained("clarel").head, np.ones((2, 8), np.float32), "whitened")


def test_search_is_by_whitened_embeddings_where_the_model_whitens() -> None:
    assert best_score(trained("prototype").head) == "whitened"
    head = several("multilabel").head
    assert best_score(head) == "similarity"
    check_score(head, "similarity")
