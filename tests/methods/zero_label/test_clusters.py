import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.methods.zero_label.clusters import discriminant, neighbour_means
from labelwise.support.errors import UsageError
from labelwise.train.tensors import kmeans, linear_scores, nearest_centres


def groups(k: int = 4, each: int = 30, seed: int = 0) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(seed)
    truth = torch.arange(k).repeat(each)
    return normalize(torch.eye(8)[truth] + 0.15 * torch.randn(k * each, 8, generator=made), dim=1), truth


def test_nearest_centres_of_several_restarts() -> None:
    embeddings = torch.randn(20, 3)
    centres = torch.randn(5, 4, 3)
    where, far = nearest_centres(embeddings, centres)
    slow = torch.stack([torch.cdist(embeddings, one) for one in centres])
    assert torch.equal(where, slow.argmin(-1))
    torch.testing.assert_close(far, slow.amin(-1).square(), atol=1e-4, rtol=1e-4)


def test_kmeans_finds_separate_groups_and_its_own_fixed_point() -> None:
    embeddings, truth = groups()
    found = kmeans(embeddings, 4, torch.Generator().manual_seed(0))
    for label in range(4):
        assert len(set(found.members[truth == label].tolist())) == 1
    assert len(set(found.members.tolist())) == 4
    means = torch.stack([embeddings[found.members == i].mean(0) for i in range(4)])
    torch.testing.assert_close(found.centres, means)
    assert found.inertia == pytest.approx(float((embeddings - means[found.members]).square().sum(1).mean()), rel=1e-4)


def test_more_starts_never_cost_more() -> None:
    embeddings = torch.randn(200, 5, generator=torch.Generator().manual_seed(3))
    one, many = (kmeans(embeddings, 8, torch.Generator().manual_seed(1), starts=n).inertia for n in (1, 8))
    assert many <= one


def test_repeated_embeddings_leave_no_cluster_undefined() -> None:
    embeddings = torch.tensor([[0.0, 0.0]] * 10 + [[1.0, 0.0]])
    found = kmeans(embeddings, 3, torch.Generator().manual_seed(0))
    assert bool(found.centres.isfinite().all())


def test_too_few_embeddings() -> None:
    with pytest.raises(UsageError, match="2 images cannot make 3 clusters"):
        kmeans(torch.zeros(2, 2), 3, torch.Generator())


def test_neighbour_means_are_those_of_a_loop() -> None:
    embeddings, _ = groups(3, 12, seed=4)
    found = neighbour_means(embeddings, 5)
    for i in range(len(embeddings)):
        order = sorted(range(len(embeddings)), key=lambda j: -float(embeddings[i] @ embeddings[j]))
        torch.testing.assert_close(found[i], normalize(embeddings[order[:5]].mean(0), dim=0))
    assert neighbour_means(embeddings, 1) is embeddings


def test_discriminant_is_that_of_scikit_learn() -> None:
    embeddings, truth = groups(3, 40, seed=5)
    found = discriminant(embeddings, truth, 3)
    known = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.2, priors=[1 / 3] * 3)
    known.fit(embeddings.double().numpy(), truth.numpy())
    scores = linear_scores(embeddings, found)
    wanted = torch.from_numpy(known.decision_function(embeddings.double().numpy())).float()
    torch.testing.assert_close(scores - scores[:, :1], wanted - wanted[:, :1], atol=1e-2, rtol=1e-2)
