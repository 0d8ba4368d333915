import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from labelwise.methods.shared import statistics
from labelwise.methods.shared.statistics import EmbeddingStatistics
from labelwise.train.tensors import linear_scores


def clusters(k: int, per: int, d: int = 5, seed: int = 0, spread: float = 2.0) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(seed)
    means = torch.randn(k, d, generator=made) * spread
    targets = torch.arange(k).repeat_interleave(per)
    return means[targets] + torch.randn(k * per, d, generator=made), targets


def discriminant(embeddings: Tensor, targets: Tensor) -> Tensor:
    """Label embeddings of scikit-learn's linear discriminant analysis."""
    fitted = LinearDiscriminantAnalysis(solver="lsqr", priors=[1 / 4] * 4).fit(embeddings.numpy(), targets.numpy())
    return torch.cat([torch.as_tensor(fitted.coef_), torch.as_tensor(fitted.intercept_)[:, None]], 1).float()


def embedding_statistics(embeddings: Tensor, targets: Tensor, k: int) -> EmbeddingStatistics:
    return statistics.embedding_statistics(embeddings.numpy(), targets.numpy(), k)


def solve_label_embeddings(
    examples: Tensor, groups: Tensor, known: EmbeddingStatistics, embeddings: Tensor, *, ridge: float = 1.0
) -> Tensor:
    given = examples.numpy(), groups.numpy(), known, embeddings.numpy()
    return torch.from_numpy(statistics.solve_label_embeddings(*given, ridge=ridge))


def solve_label_embedding(
    examples: Tensor, known: EmbeddingStatistics, embeddings: Tensor, *, ridge: float = 1.0
) -> Tensor:
    """The embedding of one label."""
    groups = torch.zeros(len(examples), dtype=torch.int64)
    return solve_label_embeddings(examples, groups, known, embeddings, ridge=ridge)[0]


@pytest.mark.parametrize("several", [False, True])
def test_labels_are_solved_each_on_its_own(several: bool) -> None:
    embeddings, targets = clusters(k=3, per=40)
    truths = torch.nn.functional.one_hot(targets, 3).bool()
    known = embedding_statistics(embeddings, truths if several else targets, 3)
    trained, groups = torch.randn(3, 6), torch.arange(12) % 3
    found = solve_label_embeddings(embeddings[:12], groups, known, trained)
    for group in range(3):
        torch.testing.assert_close(
            found[group], solve_label_embedding(embeddings[:12][groups == group], known, trained)
        )


def test_linear_scores_is_weights_and_bias() -> None:
    embeddings, labels = torch.randn(7, 4), torch.randn(3, 5)
    expected = torch.tensor([[float(c @ label[:-1] + label[-1]) for label in labels] for c in embeddings])
    torch.testing.assert_close(linear_scores(embeddings, labels), expected)


def test_statistics_equal_a_loop_over_labels() -> None:
    embeddings, targets = clusters(k=3, per=40)
    embeddings, targets = embeddings[30:], targets[30:]  # unequal labels weigh the same
    found = embedding_statistics(embeddings, targets, 3)
    parts = [embeddings[targets == c].double() for c in range(3)]
    np.testing.assert_allclose(found.means, torch.stack([part.mean(0) for part in parts]))
    covariances = torch.stack([torch.cov(part.T, correction=0) for part in parts])
    np.testing.assert_allclose(found.within, covariances.mean(0))
    assert found.counts.tolist() == [10, 40, 40]


def test_absent_label_does_not_matter() -> None:
    embeddings, targets = clusters(k=3, per=40)
    few, wide = embedding_statistics(embeddings, targets, 3), embedding_statistics(embeddings, targets, 9)
    np.testing.assert_allclose(few.within, wide.within)
    trained = torch.randn(3, 6)
    padded = torch.cat([trained, torch.full((6, 6), 100.0)])
    torch.testing.assert_close(
        solve_label_embedding(embeddings[:5], wide, padded), solve_label_embedding(embeddings[:5], few, trained)
    )


def test_with_many_examples_it_is_discriminant_analysis() -> None:
    """Where trained embeddings are those of LDA, a label taught from many examples gets the embedding LDA would give it."""
    embeddings, targets = clusters(k=4, per=4000)
    every = discriminant(embeddings, targets)
    known = embedding_statistics(embeddings[targets < 3], targets[targets < 3], 3)
    embedding = solve_label_embedding(embeddings[targets == 3], known, every[:3], ridge=1e-6)
    scores = linear_scores(embeddings, torch.cat([every[:3], embedding[None]]))
    agree = scores.argmax(1) == linear_scores(embeddings, every).argmax(1)
    assert float(agree.double().mean()) > 0.99


@pytest.mark.parametrize("examples", [1, 5])
def test_few_examples_are_enough_and_do_not_take_over(examples: int) -> None:
    d, hits, kept = 40, [], []
    for seed in range(8):
        embeddings, targets = clusters(k=4, per=400, d=d, seed=seed, spread=1.2)
        train = torch.arange(len(embeddings)) % 2 == 0
        old, new = train & (targets < 3), targets == 3
        known = embedding_statistics(embeddings[old], targets[old], 3)
        every = discriminant(embeddings[train], targets[train])[:3]
        embedding = solve_label_embedding(embeddings[new & train][:examples], known, every)
        both = torch.cat([every, embedding[None]])
        right = linear_scores(embeddings[~train], both).argmax(1) == targets[~train]
        hits.append(right[targets[~train] == 3].double().mean())
        kept.append(right[targets[~train] < 3].double().mean())
    assert float(torch.stack(hits).mean()) > 0.85
    assert float(torch.stack(kept).mean()) > 0.85


def test_statistics_of_several_labels_equal_a_loop_over_labels() -> None:
    embeddings, targets = clusters(k=3, per=40)
    truths = torch.rand(120, 4, generator=torch.Generator().manual_seed(1)) < 0.4
    truths[:7], truths[:, 3] = False, False  # images without a label, a label without images
    found = embedding_statistics(embeddings, truths, 4)
    parts = [embeddings[truths[:, label]].double() for label in range(3)]
    np.testing.assert_allclose(found.means[:3], torch.stack([part.mean(0) for part in parts]))
    x = embeddings.double()
    centred = x - x.mean(0)
    np.testing.assert_allclose(found.within, centred.T @ centred / len(x))
    assert found.background is not None
    np.testing.assert_allclose(found.background, x.mean(0))
    assert found.counts.tolist() == [*(len(part) for part in parts), 0]
    assert embedding_statistics(embeddings, targets, 3).background is None


def test_a_label_that_others_do_not_exclude_is_told_from_all_images() -> None:
    """Three directions, each switched on or not: the third is taught to a model that knows two."""
    made = torch.Generator().manual_seed(0)
    truths = torch.rand(3000, 3, generator=made) < 0.4
    embeddings = 3 * truths.float() @ torch.eye(3, 6) + torch.randn(3000, 6, generator=made)
    known = embedding_statistics(embeddings, truths[:, :2], 2)
    logits = [[*(6 * torch.eye(6)[label]).tolist(), -9.0] for label in range(2)]
    trained = torch.tensor(logits)
    for examples in (5, 500):
        embedding = solve_label_embedding(embeddings[truths[:, 2]][:examples], known, trained)
        scores = linear_scores(embeddings, embedding[None])[:, 0]
        order = (scores[truths[:, 2]][:, None] > scores[~truths[:, 2]]).double().mean()
        assert float(order) > (0.75 if examples == 5 else 0.95)
        assert (
            float((scores > 0)[truths[:, 2]].double().mean()) > float((scores > 0)[~truths[:, 2]].double().mean()) + 0.3
        )
