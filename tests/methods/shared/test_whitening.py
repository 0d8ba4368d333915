import numpy as np
import pytest
import torch
from sklearn.covariance import empirical_covariance
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.methods.shared import statistics
from tests.methods.shared.test_statistics import clusters


def unit_statistics(embeddings: Tensor, targets: Tensor, k: int) -> tuple[Tensor, Tensor]:
    mean, within = statistics.unit_statistics(embeddings.numpy(), targets.numpy(), k)
    return torch.from_numpy(mean), torch.from_numpy(within)


def whiten(embeddings: Tensor, mean: Tensor, within: Tensor, ridge: float) -> Tensor:
    return torch.tensor(statistics.whiten(embeddings.numpy(), mean.numpy(), within.numpy(), ridge))


def test_statistics_equal_a_loop_over_labels() -> None:
    embeddings, targets = clusters(k=3, per=40)
    embeddings, targets = (
        embeddings[30:] * torch.rand(90, 1),
        targets[30:],
    )  # unequal labels weigh the same, lengths do not matter
    mean, within = unit_statistics(embeddings, targets, 5)
    parts = [normalize(embeddings[targets == c], dim=1).numpy() for c in range(3)]
    np.testing.assert_allclose(mean, np.mean([part.mean(0) for part in parts], 0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(within, np.mean([empirical_covariance(part) for part in parts], 0), rtol=1e-4, atol=1e-6)


def test_whitened_embeddings_vary_alike_inside_a_label() -> None:
    embeddings, targets = clusters(k=4, per=300, d=6)
    embeddings = embeddings * torch.tensor([5.0, 1, 1, 1, 1, 0.2])
    mean, within = unit_statistics(embeddings, targets, 4)
    made = whiten(embeddings, mean, within, ridge=0)
    inside = torch.stack([torch.cov(made[targets == c].T, correction=0) for c in range(4)]).mean(0)
    torch.testing.assert_close(inside, torch.eye(6), atol=2e-3, rtol=0)
    torch.testing.assert_close(made.mean(0), torch.zeros(6), atol=1e-3, rtol=0)


def test_cosines_are_those_of_the_inverse_covariance() -> None:
    embeddings, targets = clusters(k=3, per=50)
    mean, within = unit_statistics(embeddings, targets, 3)
    made = normalize(whiten(embeddings, mean, within, ridge=0.5), dim=1)
    inverse = torch.linalg.inv(within.double() + 0.5 * within.diagonal().mean() * torch.eye(5))
    centred = (normalize(embeddings, dim=1) - mean).double()
    products = centred @ inverse @ centred.T
    expected = products / products.diagonal().sqrt().outer(products.diagonal().sqrt())
    torch.testing.assert_close(made @ made.T, expected.float(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("ridge", [1e6, 1.0])
def test_a_large_ridge_or_no_variance_leaves_centred_embeddings(ridge: float) -> None:
    embeddings, targets = clusters(k=3, per=50)
    mean, within = unit_statistics(embeddings, targets, 3)
    made = whiten(embeddings, mean, within if ridge > 1 else torch.zeros(5, 5), ridge)
    torch.testing.assert_close(
        normalize(made, dim=1), normalize(normalize(embeddings, dim=1) - mean, dim=1), atol=1e-4, rtol=1e-4
    )


def test_directions_that_tell_nothing_no_longer_hide_new_labels() -> None:
    """Images differ most in what has nothing to do with labels: by the cosine new labels are lost, whitened they are found."""
    made = torch.Generator().manual_seed(0)
    noise = torch.randn(600, 8, generator=made) * torch.tensor([6.0] * 4 + [0.3] * 4)
    targets = torch.arange(12).repeat_interleave(50)
    means = torch.cat([torch.zeros(12, 4), torch.randn(12, 4, generator=made)], 1)
    embeddings = means[targets] + noise + 10
    seen = targets < 6
    mean, within = unit_statistics(embeddings[seen], targets[seen], 6)

    def found(x: torch.Tensor) -> float:
        unit = normalize(x, dim=1)
        nearest = (unit @ unit.T).fill_diagonal_(-2).argmax(1)
        return float((targets[~seen][nearest] == targets[~seen]).float().mean())

    plain, better = found(embeddings[~seen]), found(whiten(embeddings[~seen], mean, within, 0.01))
    assert better > 0.7
    assert better > plain + 0.3
