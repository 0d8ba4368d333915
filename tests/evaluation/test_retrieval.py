import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from labelwise.evaluation import retrieval
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.retrieval import evaluate_retrieval, query_figures
from labelwise.support.errors import DataError, UsageError
from labelwise.tasks.similarity import cosines, similarity_matrix
from tests.conftest import blobs, squares
from tests.contract.subjects import trained
from tests.evaluation.test_verification import noisy
from tests.pixels_of import px


def slow(similarity: Tensor, targets: list[int]) -> tuple[list[int], list[float]]:
    """How many wrong ones come first, and average precision at R, of each query, by sorting its answers."""
    first, precision = [], []
    for i, own in enumerate(targets):
        others = [j for j in range(len(targets)) if j != i]
        ranked = sorted(others, key=lambda j: (-float(similarity[i, j]), targets[j] == own))
        right = [targets[j] == own for j in ranked]
        if any(right):
            r = sum(right)
            first.append(right.index(True))
            precision.append(sum(sum(right[: p + 1]) / (p + 1) for p in range(r) if right[p]) / r)
    return first, precision


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=3, max_size=20), st.sampled_from([1, 30, 2**23])
)
def test_figures_of_queries(items: list[tuple[int, int]], chunk: int) -> None:
    targets = [target for target, _ in items]
    angles = torch.tensor([float(angle) for _, angle in items])
    embeddings = torch.stack([angles.cos(), angles.sin()], 1)  # many are alike, so there are ties
    model = trained("softmax").head
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retrieval, "CHUNK", chunk)
        # The same angles must give the same bits in every chunk, or ties are none: look them up in one table.
        table = cosines(np.asarray(embeddings), np.asarray(embeddings)).round(decimals=4)
        patch.setattr(
            retrieval,
            "similarity_matrix",
            lambda _, a, __, ___: table[[int((np.asarray(embeddings) == x).all(1).argmax()) for x in a]].copy(),
        )
        first, precision = slow(torch.from_numpy(table), targets)
        if not first:
            with pytest.raises(DataError, match="No two images share a label"):
                query_figures(model, embeddings, torch.tensor(targets))
            return
        found = query_figures(model, embeddings, torch.tensor(targets))
    assert found[0].tolist() == first
    assert found[1].tolist() == pytest.approx(precision)


@pytest.mark.parametrize("method", ["softmax", "prototype"])
def test_figures_of_a_split(method: str) -> None:
    classifier, split = trained(method), noisy(blobs().split("test"))
    embeddings = classifier.encode(px(split))
    with torch.no_grad():
        first, precision = slow(
            torch.from_numpy(similarity_matrix(classifier.head, embeddings, embeddings, "similarity")),
            split.targets.tolist(),
        )
    found = evaluate_retrieval(Evaluation.of(classifier, split))
    assert found.queries == found.images == len(split)
    for k, share in found.recall.items():
        assert share == pytest.approx(sum(f < k for f in first) / len(first), abs=0.02)
    assert list(found.recall) == [1, 2, 4, 8, 16]
    assert found.precision_at_r == pytest.approx(sum(precision) / len(precision), abs=0.01)
    assert 0.2 < found.precision_at_r < 0.95
    assert found.leaked == 0


def test_wrong_use() -> None:
    with pytest.raises(DataError, match="Several labels"):
        evaluate_retrieval(Evaluation.of(trained("softmax"), squares().split("test")))
    with pytest.raises(UsageError, match="at least 1"):
        evaluate_retrieval(Evaluation.of(trained("softmax"), blobs().split("test")), ks=(0,))
