"""zero_label as its authors' code runs it: early iterations, their gradient, and where names start."""

from dataclasses import replace
from itertools import count
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from labelwise.images.dataset import Dataset
from labelwise.images.images import FeatureRows
from labelwise.methods.zero_label import transport
from labelwise.methods.zero_label.sinkhorn import SinkhornSettings, sinkhorn
from labelwise.methods.zero_label.transport import ClusteringSettings, Matching, Restarts
from labelwise.train.method import Run
from labelwise_papers.analyses.named import evaluate_with_labels
from labelwise_papers.baselines.authors_naming import AuthorsZeroLabel, early_sinkhorn
from tests.conftest import blobs

EARLY = SinkhornSettings(epsilon=0.01, iterations=60)
Side = Literal["rows", "columns"]
SEEDS = count(100, 2)  # a process keeps the clusters of a seed, so that each test has its own


def by_logarithms(cost: Tensor, columns: Tensor, settings: SinkhornSettings, last: Side) -> tuple[Tensor, int]:
    """Return the plan of one problem and its iterations, as the authors' code has them, by autograd."""
    epsilon, (n, m) = settings.epsilon, cost.shape
    logs = {"rows": torch.full((n,), 1 / n + 1e-8).double().log(), "columns": (columns + 1e-8).log()}
    potentials = {"rows": cost.new_zeros(n), "columns": cost.new_zeros(m)}
    times = {"rows": torch.ones(n), "columns": columns * n}
    sides: tuple[Side, Side] = ("rows", "columns") if last == "columns" else ("columns", "rows")
    done, moved = 0, 1.0
    while moved >= 0.1 and done < settings.iterations:
        done, before = done + 1, potentials[sides[0]]
        for side in sides:
            terms = cost / -epsilon + (potentials["columns"] if side == "rows" else potentials["rows"][:, None])
            potentials[side] = logs[side] - terms.logsumexp(1 if side == "rows" else 0)
        moved = float(((potentials[sides[0]] - before).detach().abs() * times[sides[0]]).sum()) * epsilon
    return (cost / -epsilon + potentials["rows"][:, None] + potentials["columns"]).exp(), done


@pytest.mark.parametrize("last", ["rows", "columns"])
@pytest.mark.parametrize("spread", [1, 30])  # of costs: 30 is beyond what products can hold
def test_plans_and_gradients_are_those_of_the_authors_code_one_by_one(last: Side, spread: float) -> None:
    rng = torch.Generator().manual_seed(3)
    base = (
        torch.rand(3, 40, 7, generator=rng, dtype=torch.float64)
        * torch.tensor([spread, spread / 3, 0.1])[:, None, None]
    )
    wanted = torch.rand(3, 40, 7, generator=rng, dtype=torch.float64)
    columns = torch.rand(3, 7, generator=rng, dtype=torch.float64).softmax(1)
    cost = base.clone().requires_grad_()
    together = early_sinkhorn(cost, columns, settings=EARLY, last=last)
    (together.plan * wanted).sum().backward()  # type: ignore[no-untyped-call]
    counts = []
    for row in range(3):
        own = base[row].clone().requires_grad_()
        plan, count = by_logarithms(own, columns[row], EARLY, last)
        (plan * wanted[row]).sum().backward()  # type: ignore[no-untyped-call]
        counts.append(count)
        assert torch.allclose(together.plan[row], plan, rtol=1e-6, atol=1e-12)
        assert own.grad is not None
        assert cost.grad is not None
        assert torch.allclose(cost.grad[row], own.grad, rtol=1e-5, atol=1e-9)
    assert together.iterations == max(counts) > min(counts), "each problem ends for itself"


def test_a_bound_ends_iterations_and_says_so() -> None:
    cost = torch.rand(2, 60, 12, generator=torch.Generator().manual_seed(0)) * torch.tensor([3, 0.01])[:, None, None]
    few = early_sinkhorn(cost, settings=replace(EARLY, iterations=2))
    assert (few.iterations, few.converged.tolist()) == (2, [False, True])
    assert early_sinkhorn(cost, settings=EARLY).converged.all()


def test_early_iterations_meet_the_marginal_that_comes_last() -> None:
    generator = torch.Generator().manual_seed(0)
    cost = torch.rand(3, 40, 12, generator=generator)
    columns = torch.rand(3, 12, generator=generator)
    columns = columns / columns.sum(1, keepdim=True)
    for last, axis, wanted in (("columns", -2, columns), ("rows", -1, torch.full((3, 40), 1 / 40))):
        plan = early_sinkhorn(cost, columns, settings=EARLY, last=last).plan  # type: ignore[arg-type]
        other = plan.sum(-1 if axis == -2 else -2)
        assert torch.allclose(plan.sum(axis), wanted, atol=1e-5)
        assert float((other - (columns if axis == -1 else 1 / 40)).abs().max()) > 1e-4, "stopped early"


def test_iterations_without_an_early_end_come_to_the_exact_plan_and_gradient() -> None:
    rng = torch.Generator().manual_seed(1)
    base, wanted = (torch.rand(2, 30, 5, generator=rng, dtype=torch.float64) for _ in range(2))
    settings = SinkhornSettings(epsilon=0.1, iterations=500, tolerance=1e-10)
    cost = base.requires_grad_()
    exact, long = sinkhorn(cost, settings=settings).plan, early_sinkhorn(cost, settings=settings, moved=1e-9).plan
    slopes = [torch.autograd.grad((plan * wanted).sum(), cost)[0] for plan in (exact, long)]
    assert torch.allclose(long, exact, atol=1e-8)
    assert torch.allclose(slopes[1], slopes[0], atol=1e-6)
    early = early_sinkhorn(cost, settings=settings)
    assert early.iterations < 10, "the rule ends them long before"
    assert float((early.plan - exact).detach().abs().max()) < 0.01


def test_copies_of_a_sample_count_as_often_as_they_are() -> None:
    cost = torch.rand(20, 4, generator=torch.Generator().manual_seed(2))
    times = torch.tensor([3, 1, 10, 6])
    together = early_sinkhorn(cost, times / 20, settings=EARLY, last="rows")
    apart = early_sinkhorn(cost.repeat_interleave(times, 1), torch.full((20,), 1 / 20), settings=EARLY, last="rows")
    assert together.iterations == apart.iterations
    assert torch.allclose(together.cost, apart.cost, rtol=1e-3)


def made(width: int = 12) -> Dataset:
    """Return features of four labels that lie apart, 20 of each."""
    data, rng = blobs(4, per_label=20), np.random.default_rng(0)
    centres = rng.normal(size=(4, width))
    splits = {
        name: replace(
            split,
            images=FeatureRows((centres[split.targets] + 0.1 * rng.normal(size=(len(split), width))).astype("f4")),
        )
        for name, split in data.splits.items()
    }
    return replace(data, splits=splits)


def authors(steps: int, **settings: Any) -> AuthorsZeroLabel:
    """Return the method, brief."""
    clustering = {"steps": steps, "batch": 20, "shared": True, "gradient": "unrolled", "lr": 0.1}
    matching = {"steps": steps, "batch": 20, "gradient": "unrolled", **settings.pop("matching", {})}
    return AuthorsZeroLabel(
        naming="transport",
        centre=False,
        restarts=3,
        clustering=ClusteringSettings(**{**clustering, **settings.pop("clustering", {})}),
        matching=Matching(**matching),
        **settings,
    )


def test_the_true_order_names_true_classes_rightly_before_training() -> None:
    found = {
        order: evaluate_with_labels(made(), authors(1, order=order, clusters="labels"), Run(device="cpu"))
        for order in ("true", "many")
    }
    assert found["true"]["mean"] == 1
    assert found["many"]["mean"] < 1


def test_clusters_of_k_means_that_lie_apart_are_named_like_the_true_ones() -> None:
    found = {
        order: evaluate_with_labels(made(), authors(1, order=order, clusters="kmeans"), Run(device="cpu"))
        for order in ("true", "many")
    }
    assert found["true"]["mean"] == 1
    assert found["many"]["mean"] < 1
    assert found["many"]["clusters"] == 1, "whatever their order, the clusters are good"
    assert found["true"]["work"]["iterations_clusters"] == 0, "stage II is left out"


def test_a_bound_of_sixty_changes_no_name_of_clusters_that_lie_apart() -> None:
    run = Run(device="cpu")
    bounded, free = (
        evaluate_with_labels(made(), authors(30, order="many", clustering=each, matching=each), run)["restarts"]
        for each in ({"iterations": 60}, {"iterations": 2000})
    )
    assert bounded == free
    assert len(set(free)) > 1, "names follow the order of centres"


def test_clusters_of_the_same_images_and_start_are_trained_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data, calls, run = made(width=11), list[Tensor](), Run(device="cpu", seed=next(SEEDS))
    losses = transport.clustering_losses

    def counted(restarts: Restarts, embeddings: Tensor, settings: ClusteringSettings) -> Tensor:
        calls.append(embeddings)
        return losses(restarts, embeddings, settings)

    monkeypatch.setattr(transport, "clustering_losses", counted)
    first, again = (evaluate_with_labels(data, authors(8), run) for _ in range(2))
    trained = len(calls)
    assert first == again
    assert trained == 8
    assert first["work"]["iterations_clusters"] > 0
    evaluate_with_labels(data, authors(8, last="rows", order="many"), run)
    without = evaluate_with_labels(data, authors(8, matching={"guided": False, "initial": "random"}), run)
    evaluate_with_labels(data, authors(8, clusters="labels"), run)
    assert len(calls) == trained, "another order, reading or need of clusters trains none"
    assert without["work"]["iterations_clusters"] == 0
    evaluate_with_labels(data, authors(8), replace(run, seed=run.seed + 1))
    assert len(calls) == 2 * trained
