"""The lowest loss of stage III under a naming is that of the slow form, and searches end where no exchange helps."""

from itertools import permutations
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.methods.zero_label.label_prior import label_similarity
from labelwise.methods.zero_label.transport import LabelPrior, guided_cost
from labelwise.support.rows import Draws
from labelwise.train.method import Run
from labelwise_papers.analyses.naming_loss import NamingLoss, compare_namings, lowest_namings
from labelwise_papers.reproduce.new_labels import objective
from labelwise_papers.reproduce.subject import Subject

K, D, EACH = 5, 6, 10  # with four labels all namings cost the same: the three farthest are shuffled


def setting() -> tuple[Tensor, Tensor, LabelPrior]:
    rng = torch.Generator().manual_seed(3)
    members = torch.arange(K).repeat(EACH)
    codes = torch.randn(K, D, generator=rng)[members] + 0.5 * torch.randn(K * EACH, D, generator=rng)
    return codes.double(), members, LabelPrior.of(torch.rand(K, K, generator=rng).double().numpy())


def slow_loss(codes: Tensor, members: Tensor, prior: LabelPrior, naming: Tensor) -> Tensor:
    """The guided loss of stage III where the plan sends each cluster to its label, after many steps of training."""
    plan = (prior.atoms.argmax(1) == naming[members][:, None]).double()
    plan = plan / plan.sum()
    inside = torch.nn.functional.one_hot(members, K).double()
    heads = torch.zeros(K, D, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([heads], max_iter=200, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = guided_cost(plan, prior.costs(codes @ heads.T), inside) / EACH
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(step)  # type: ignore[no-untyped-call]
    return step().detach()


def test_the_closed_form_is_where_training_ends() -> None:
    codes, members, prior = setting()
    namings = torch.tensor([[0, 1, 2, 3, 4], [2, 0, 3, 1, 4]])
    fast = NamingLoss.of(codes, members, prior)(namings)
    for naming, loss in zip(namings, fast, strict=True):
        assert float(loss) == pytest.approx(float(slow_loss(codes, members, prior, naming)), rel=1e-6)


def test_a_search_ends_where_no_exchange_lowers_the_loss() -> None:
    loss = NamingLoss.of(*setting())
    every = torch.tensor(list(permutations(range(K))))
    namings, losses = lowest_namings(loss, 12, Draws(0))
    assert torch.allclose(loss(namings), losses)
    assert float(losses.min()) == pytest.approx(float(loss(every).min()))
    for naming, own in zip(namings, losses, strict=True):
        near = every[(every != naming).sum(1) == 2]
        assert float(loss(near).min()) >= float(own) - 1e-12


def test_what_is_said_of_the_true_naming() -> None:
    loss = NamingLoss.of(*setting())
    every = torch.tensor(list(permutations(range(K))))
    best, worst = every[loss(every).argmin()], every[loss(every).argmax()]
    found = compare_namings(loss, best, 12, Draws(0))
    assert found["true"] == pytest.approx(found["lowest"])
    assert found["below"] == 0.0
    assert len(found["apart"]) == 12
    assert min(found["apart"]) == found["apart"][0] == pytest.approx(0)
    other = compare_namings(loss, worst, 12, Draws(0))
    assert other["true"] > other["random"] > other["lowest"]
    assert other["below"] == other["ends"] >= 1
    assert other["apart"][0] == pytest.approx(other["lowest"] / other["true"] - 1)
    assert other["right"] == float((best == worst).double().mean())


def test_the_layer_may_have_a_bias() -> None:
    """The measure then finds the loss of codes that all have a 1 beside their numbers, which is lower."""
    rng = torch.Generator().manual_seed(5)
    images, targets = torch.randn(60, 3, generator=rng), torch.arange(3).repeat(20)
    labels = Labels(names=("a", "b", "c"), order=(0, 1, 2))
    data = Dataset(name="codes", labels=labels, splits={"train": Split(images=images, targets=targets)})
    subject = cast(Subject, SimpleNamespace(dataset=data, run=Run(seed=0)))
    without, with_bias = (objective(subject, prior="order", bias=bias, searches=3) for bias in (False, True))
    codes = pad(normalize(images, dim=1), (0, 1), value=1.0)
    slow = NamingLoss.of(codes, targets, LabelPrior.of(label_similarity(labels, "order")))(torch.arange(3)[None])
    assert with_bias["true"] == pytest.approx(float(slow))
    assert with_bias["true"] < 0.9 * without["true"]
