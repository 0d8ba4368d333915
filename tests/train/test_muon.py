"""Muon: kernels turn in all directions alike and keep their length; all else takes a step of SGD."""

import pytest
import torch
from torch import Tensor, nn

from labelwise.support.errors import UsageError
from labelwise.train.muon import Muon, orthogonal
from labelwise.train.optimizers import Optimizer


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(32, 5)
    )


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    images = torch.randn(16, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), torch.arange(16) % 5).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@pytest.mark.parametrize("shape", [(2, 8, 72), (1, 64, 27), (3, 16, 16)])
def test_singular_values_become_alike_and_vectors_stay(shape: tuple[int, int, int]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    turned = u.mT @ orthogonal(matrices) @ v.mT  # diagonal where singular vectors are the same
    values = turned.diagonal(dim1=1, dim2=2)
    assert (turned - torch.diag_embed(values)).abs().max() < 1e-4
    least = torch.linalg.svdvals(matrices)[:, -1] / matrices.norm(dim=(1, 2))
    assert values.max() < 1.25
    assert (values.min(1).values > torch.minimum(torch.tensor(0.6), 20 * least)).all()


def test_kernels_keep_their_length_and_move_by_the_share_asked_for() -> None:
    model = network()
    before = [p.detach().clone() for p in model.parameters()]
    train(model, Optimizer(name="muon", lr=0.1).build(model.parameters()), 1)
    kernels = [(old, new.detach()) for old, new in zip(before, model.parameters(), strict=True) if new.ndim == 4]
    for old, new in kernels:
        assert float(new.norm()) == pytest.approx(float(old.norm()), rel=1e-5)
        assert float((new - old).norm() / old.norm()) == pytest.approx(0.1, rel=0.06)
    assert len(kernels) == 3


def test_other_weights_take_a_step_of_sgd() -> None:
    """As long as kernels stand still, so that gradients of the others are the same."""
    ours, theirs = network(), network()
    for model in (ours, theirs):
        for parameter in (p for p in model.parameters() if p.ndim == 4):
            parameter.requires_grad_(False)
    settings = {"lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 1e-3}
    train(ours, Optimizer(name="muon", **settings).build(ours.parameters()), 4)  # type: ignore[arg-type]
    train(theirs, torch.optim.SGD(theirs.parameters(), **settings), 4)  # type: ignore[arg-type]
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("nesterov", [True, False])
def test_kernels_of_one_shape_do_as_each_would_alone(nesterov: bool) -> None:
    """The slow obvious form: one kernel at a time, its momentum, the nearest orthogonal matrix, its length."""
    model = network()
    optimizer = Muon(model.parameters(), lr=0.2, momentum=0.6, nesterov=nesterov)
    kernels = [p for p in model.parameters() if p.ndim == 4]
    momenta = [torch.zeros_like(p) for p in kernels]
    images = torch.randn(16, 3, 8, 8)
    for _ in range(3):
        optimizer.zero_grad()
        model(images).square().mean().backward()
        expected: list[Tensor] = []
        for kernel, momentum in zip(kernels, momenta, strict=True):
            assert kernel.grad is not None
            momentum.mul_(0.6).add_(kernel.grad)
            step = (kernel.grad + 0.6 * momentum if nesterov else momentum).flatten(1)
            turn = orthogonal(step[None])[0].view_as(kernel)
            moved = kernel.detach() - 0.2 * kernel.detach().norm() / turn.norm() * turn
            expected.append(moved * kernel.detach().norm() / moved.norm())
        optimizer.step()
        for kernel, want in zip(kernels, expected, strict=True):
            assert torch.allclose(kernel, want, atol=1e-5)


def test_a_gradient_of_zero_changes_nothing() -> None:
    kernel = nn.Parameter(torch.randn(4, 2, 3, 3))
    before = kernel.detach().clone()
    kernel.grad = torch.zeros_like(kernel)
    Muon([kernel], lr=0.5, momentum=0.9).step()
    assert torch.allclose(kernel, before)


def test_an_unknown_optimiser_is_named() -> None:
    with pytest.raises(UsageError, match="sgd, adam, adamw or muon"):
        Optimizer(name="lion").build([])  # type: ignore[arg-type]
