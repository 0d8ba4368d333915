import math

import pytest
import torch
from torch import Tensor

from labelwise.methods.clarel.caption_retrieval import distances, retrieval_loss


def embeddings(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def slow_distances(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([torch.stack([(x - y).square().sum().sqrt() for y in b]) for x in a])


def slow_loss(images: Tensor, texts: Tensor, right: Tensor) -> tuple[float, float]:
    """J_TR and J_IR, pair by pair."""
    away = [[math.dist(image, text) for text in texts.tolist()] for image in images.tolist()]
    n = len(away)
    text = image = 0.0
    for i in range(n):
        row = [math.exp(-away[i][j]) for j in range(n)]
        column = [math.exp(-away[j][i]) for j in range(n)]
        text -= math.log(sum(p for j, p in enumerate(row) if right[i, j]) / sum(row)) / n
        image -= math.log(sum(p for j, p in enumerate(column) if right[j, i]) / sum(column)) / n
    return text, image


def test_distances_equal_a_loop() -> None:
    a, b = embeddings(5, 7), embeddings(3, 7, seed=1)
    torch.testing.assert_close(distances(a, b), slow_distances(a, b))


def test_near_embeddings_far_from_the_origin() -> None:
    a = (embeddings(4, 64) + 100).float()
    b = a + 1e-3 * embeddings(4, 64, seed=1).float()
    found = distances(a, b)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, slow_distances(a.double(), b.double()).float(), rtol=1e-5, atol=1e-5)
    assert distances(a.bfloat16(), b.bfloat16()).dtype == torch.float32


def test_gradients_of_distances() -> None:
    a, b = embeddings(4, 3).requires_grad_(), embeddings(2, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(distances, (a, b))


@pytest.mark.parametrize("scale", [0.0, 1e-20, 1.0, 1e4])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_gradients_are_finite_at_a_distance_of_zero(scale: float, kind: torch.dtype) -> None:
    a = (scale * embeddings(6, 16)).to(kind).requires_grad_()
    b = a.detach().clone().requires_grad_()
    found = distances(a, b)
    assert found.diagonal().abs().max() <= 1e-6 * max(scale, 1e-3)
    found.sum().backward()  # type: ignore[no-untyped-call]
    for grad in (a.grad, b.grad):
        assert grad is not None
        assert grad.isfinite().all()
        assert grad.norm(dim=1).max() <= 6, "each of six distances pulls with at most one"
    (own,) = torch.autograd.grad(distances(a, b).diagonal().sum(), a)
    assert own.abs().max() < 1e-4


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_loss_equals_a_loop(share: float) -> None:
    images, texts = embeddings(6, 4), embeddings(6, 4, seed=1)
    text, image = retrieval_loss(images, texts, share)
    slow_text, slow_image = slow_loss(images, texts, torch.eye(6, dtype=torch.bool))
    assert float(text) == pytest.approx(share * slow_text)
    assert float(image) == pytest.approx((1 - share) * slow_image)
    assert slow_text != pytest.approx(slow_image), "else the terms could be swapped"


def test_several_right_answers_share_one_probability() -> None:
    images, texts = embeddings(6, 4), embeddings(6, 4, seed=1)
    same = torch.zeros(6, 6, dtype=torch.bool)
    same[0, 3] = same[4, 1] = True  # not the same both ways
    text, image = retrieval_loss(images, texts, 0.5, same)
    slow_text, slow_image = slow_loss(images, texts, same | torch.eye(6, dtype=torch.bool))
    assert float(text) == pytest.approx(0.5 * slow_text)
    assert float(image) == pytest.approx(0.5 * slow_image)
    everything = retrieval_loss(images, texts, 0.5, torch.ones(6, 6, dtype=torch.bool))
    torch.testing.assert_close(torch.stack(everything), torch.zeros(2, dtype=torch.float64))


def test_gradients_of_the_loss() -> None:
    images, texts = embeddings(4, 3).requires_grad_(), embeddings(4, 3, seed=1).requires_grad_()
    same = torch.zeros(4, 4, dtype=torch.bool)
    same[1, 2] = True
    assert torch.autograd.gradcheck(lambda a, b: retrieval_loss(a, b, 0.3, same), (images, texts))
    far = (1e3 * embeddings(4, 3)).float().requires_grad_()  # probabilities that vanish in single precision
    sum(retrieval_loss(far, far.detach().flip(0), 0.5)).backward()  # type: ignore[union-attr]
    assert far.grad is not None
    assert far.grad.isfinite().all()
    assert far.grad.any()


def test_autocast_leaves_distances_alone() -> None:
    a, b = embeddings(5, 64).float(), embeddings(3, 64, seed=1).float()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.autocast(device, torch.bfloat16):
        found = distances(a.to(device), b.to(device))
    torch.testing.assert_close(found.cpu(), distances(a, b))
