from dataclasses import replace

import pytest
import torch
from torch import Tensor

from labelwise.methods.zero_label.sinkhorn import SinkhornSettings, sinkhorn
from labelwise.methods.zero_label.transport import (
    HEAD_SCALE,
    ClusteringSettings,
    LabelPrior,
    Matching,
    Restarts,
    clip_each,
    clustering_losses,
    guided_cost,
    matching_losses,
    transport_stages,
)
from labelwise.train.batches import Batch
from labelwise.train.tensors import BatchRng
from labelwise.train.train_data import TensorSplit

PRIOR = LabelPrior.of(torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).numpy())


def embeddings(n: int = 30) -> Tensor:
    return torch.nn.functional.normalize(torch.randn(n, 6, generator=torch.Generator().manual_seed(1)), dim=1)


def restarts(r: int = 3) -> Restarts:
    torch.manual_seed(5)
    made = Restarts(r, 4, 6)
    made.best_centres.copy_(embeddings(4 * r).view(r, 4, 6))
    return made


def batch_of(images: Tensor) -> Batch:
    rows = torch.arange(len(images))
    return Batch(images=images, targets=rows * 0 - 1, rows=rows, rng=BatchRng.from_seed(3, len(images)))


def test_clustering_loss_is_the_cost_of_transport_to_each_centre() -> None:
    model, x = restarts(), embeddings()
    settings = ClusteringSettings(epsilon=0.1, tolerance=1e-6)
    found = clustering_losses(model, x, settings)
    for r in range(3):
        cost = torch.cdist(model.centres[r], x).square()
        alone = sinkhorn(cost, settings=SinkhornSettings(epsilon=0.1, tolerance=1e-6))
        assert found[r].item() == pytest.approx(alone.cost.item(), rel=1e-3)


@pytest.mark.parametrize("guided", [True, False])
def test_matching_loss_is_that_of_all_samples_written_out(guided: bool) -> None:
    model, x = restarts(), embeddings()
    settings = Matching(epsilon=0.1, tolerance=1e-7, guided=guided)
    found = matching_losses(model, batch_of(x), PRIOR, settings)
    drawn = PRIOR.draw(30, 3, BatchRng.from_seed(3, 30).generator)
    for r in range(3):
        samples = torch.repeat_interleave(torch.arange(len(PRIOR.atoms)), (drawn[r] * 30).round().long())
        assert len(samples) == 30
        scores = (x @ model.heads[r].T).double()
        costs = (PRIOR.weights[samples] * (scores[:, None] - PRIOR.atoms[samples]).square()).sum(-1)
        plan = sinkhorn(costs, settings=SinkhornSettings(epsilon=0.1, tolerance=1e-9)).plan
        nearest = torch.cdist(x, model.best_centres[r]).argmin(1)
        same = (nearest[:, None] == nearest).double() if guided else torch.eye(30).double()
        assert found[r].item() == pytest.approx(((same @ plan) * costs).sum().item(), rel=1e-3)


def test_gradient_flows_through_the_plan() -> None:
    grads = []
    for gradient in ("unrolled", "implicit", "detached"):
        model = restarts(1)
        settings = Matching(epsilon=0.1, tolerance=1e-9, gradient=gradient)
        matching_losses(model, batch_of(embeddings()), PRIOR, settings).sum().backward()  # type: ignore[no-untyped-call]
        assert model.heads.grad is not None
        grads.append(model.heads.grad)
    torch.testing.assert_close(grads[0], grads[1], atol=1e-3, rtol=1e-2)
    assert float((grads[0] - grads[2]).norm() / grads[0].norm()) > 0.01


def test_restarts_do_not_touch_each_other() -> None:
    together, x = restarts(), embeddings()
    clustering_losses(together, x, ClusteringSettings(epsilon=0.1)).sum().backward()  # type: ignore[no-untyped-call]
    alone = Restarts(1, 4, 6)
    with torch.no_grad():
        alone.centres.copy_(together.centres[1:2])
    clustering_losses(alone, x, ClusteringSettings(epsilon=0.1)).sum().backward()  # type: ignore[no-untyped-call]
    assert together.centres.grad is not None
    assert alone.centres.grad is not None
    torch.testing.assert_close(together.centres.grad[1], alone.centres.grad[0], atol=1e-3, rtol=1e-2)


def test_each_restart_keeps_its_own_best() -> None:
    model = restarts(2)
    first = model.heads.detach().clone()
    model.keep("head", torch.tensor([3.0, 5.0]))
    with torch.no_grad():
        model.heads.add_(1)
    model.keep("head", torch.tensor([4.0, 1.0]))
    torch.testing.assert_close(model.best_heads[0], first[0])
    torch.testing.assert_close(model.best_heads[1], first[1] + 1)
    assert model.head_losses.tolist() == [3.0, 1.0]


def test_guided_cost_as_written() -> None:
    plan, costs = torch.rand(2, 6, 5), torch.rand(2, 6, 5)
    inside = torch.nn.functional.one_hot(torch.tensor([[0, 1, 1, 2, 0, 0], [2, 2, 2, 1, 1, 0]]), 3).float()
    slow = ((inside @ inside.mT @ plan) * costs).sum((1, 2))
    torch.testing.assert_close(guided_cost(plan, costs, inside), slow)


def test_clip_each() -> None:
    heads, short = torch.nn.Parameter(torch.zeros(2, 2, 2)), torch.full((2, 2), 0.1)
    heads.grad = torch.stack([torch.full((2, 2), 10.0), short])
    clip_each([heads], 1.0)
    assert float(heads.grad[0].norm()) == pytest.approx(1.0, rel=1e-4)
    torch.testing.assert_close(heads.grad[1], short)


@pytest.mark.parametrize("initial", ["clusters", "random"])
def test_stages(initial: str) -> None:
    model = restarts(2)
    split = TensorSplit(images=embeddings(), targets=torch.full((30,), -1))
    matching = replace(Matching(steps=7, batch=10), initial=initial)  # type: ignore[arg-type]
    before = model.heads.detach().clone()
    stages = transport_stages(model, PRIOR, split, ClusteringSettings(steps=5, batch=10), matching)
    second = next(stages)
    assert (second.epochs, len(second.batches), second.parameters[0] is model.centres) == (2, 3, True)
    third = next(stages)
    assert (third.epochs, third.optimizer.lr, third.optimizer.nesterov) == (3, 1e-5, False)
    start = model.best_centres / HEAD_SCALE if initial == "clusters" else before
    torch.testing.assert_close(third.parameters[0].detach(), start)


def test_a_bias_is_the_weight_of_a_number_that_is_always_one() -> None:
    settings = Matching(epsilon=0.1, guided=False, bias=True)
    torch.manual_seed(5)
    model, wide, x = Restarts(3, 4, 6, matching=settings), Restarts(3, 4, 7), embeddings()
    with torch.no_grad():
        wide.heads.copy_(model.heads)
    ones = torch.cat([x, torch.ones(len(x), 1)], 1)
    found, wanted = (matching_losses(each, batch_of(y), PRIOR, settings) for each, y in ((model, x), (wide, ones)))
    torch.testing.assert_close(found, wanted)
    assert model.rows().shape == wide.best_heads.shape


def test_shared_centres_are_those_of_every_restart() -> None:
    one = Restarts(3, 4, 6, clustering=ClusteringSettings(shared=True))
    one.best_centres.copy_(embeddings(4)[None])
    same = restarts()
    with torch.no_grad():
        same.heads.copy_(one.heads)
    same.best_centres.copy_(one.best_centres.expand(3, -1, -1))
    settings = Matching(epsilon=0.1)
    found, wanted = (matching_losses(each, batch_of(embeddings()), PRIOR, settings) for each in (one, same))
    torch.testing.assert_close(found, wanted)
