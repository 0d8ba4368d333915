import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from torch import Tensor

from labelwise.methods.zero_label import sinkhorn as solver
from labelwise.methods.zero_label.sinkhorn import Gradient, SinkhornSettings, Transport, sinkhorn
from labelwise.support.errors import UsageError

MODES: tuple[Gradient, ...] = ("unrolled", "implicit", "envelope")
EXACT = SinkhornSettings(epsilon=0.2, iterations=5000, tolerance=1e-14)


def changed(settings: SinkhornSettings, **values: Any) -> SinkhornSettings:
    return SinkhornSettings(**{**vars(settings), **values})


def problem(*shape: int, seed: int = 0, zeros: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Cost and marginals in double precision, both of sum 1."""
    made = torch.Generator().manual_seed(seed)
    cost = torch.rand(*shape, generator=made, dtype=torch.float64)
    rows, columns = (torch.rand(*shape[:-2], k, generator=made, dtype=torch.float64) + 0.1 for k in shape[-2:])
    if zeros:
        rows[..., 0], columns[..., -1] = 0, 0
    return cost, rows / rows.sum(-1, keepdim=True), columns / columns.sum(-1, keepdim=True)


def slow(
    cost: Tensor, rows: Tensor, columns: Tensor, settings: SinkhornSettings, count: int = 3000
) -> list[list[float]]:
    """The textbook's scaling of exp(-cost / epsilon), in doubles, one number at a time."""
    a, b, epsilon = rows.tolist(), columns.tolist(), settings.epsilon
    kernel = [[math.exp(-c / epsilon) for c in line] for line in cost.tolist()]
    x, y = [1.0] * len(a), [float(mass > 0) for mass in b]
    for _ in range(count):
        before = x
        x = [a[i] / sum(k * s for k, s in zip(kernel[i], y, strict=True)) for i in range(len(a))]
        y = [b[j] / sum(kernel[i][j] * x[i] for i in range(len(a))) for j in range(len(b))]
        if max(abs(new - old) / (new + 1e-300) for new, old in zip(x, before, strict=True)) < 1e-14:
            break
    return [[x[i] * kernel[i][j] * y[j] for j in range(len(b))] for i in range(len(a))]


def plain(cost: Tensor, rows: Tensor, columns: Tensor, settings: SinkhornSettings, count: int) -> Tensor:
    """The log plan after so many iterations, for autograd to go through, started where ``sinkhorn`` starts."""
    logits, epsilon = -cost / settings.epsilon, settings.epsilon
    above = cost.detach() - cost.detach().amin(-1, keepdim=True)
    u, v = rows, above.amin(-2) / epsilon
    for _ in range(count):
        u = rows.log() - (logits + v[..., None, :]).logsumexp(-1)
        v = columns.log() - (logits + u[..., None]).logsumexp(-2)
    return logits + u[..., None] + v[..., None, :]


@pytest.fixture(params=["kernel", "logarithms"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to iterate: as it comes, and as if no kernel could ever be trusted."""
    if request.param == "logarithms":
        rounds: Callable[..., tuple[Any, ...]] = solver._rounds

        def distrust(*given: Any) -> tuple[Any, ...]:
            sums, y, report = rounds(*given)
            return sums, y, torch.full_like(report, torch.inf)

        monkeypatch.setattr(solver, "_rounds", distrust)
    return str(request.param)


@given(
    n=st.integers(1, 6),
    m=st.integers(1, 6),
    epsilon=st.sampled_from([0.05, 0.3, 2.0]),
    zeros=st.booleans(),
    seed=st.integers(0, 99),
)
def test_equals_a_loop_over_numbers(n: int, m: int, epsilon: float, zeros: bool, seed: int) -> None:
    cost, rows, columns = problem(n, m, seed=seed, zeros=zeros and n > 1 and m > 1)
    settings = changed(EXACT, epsilon=epsilon, iterations=3000)
    found = sinkhorn(cost, rows, columns, settings=settings)
    expected = torch.tensor(slow(cost, rows, columns, settings), dtype=torch.float64)
    torch.testing.assert_close(found.plan, expected, atol=1e-9, rtol=1e-7)
    assert float(found.cost) == pytest.approx(float((expected * cost).sum()), rel=1e-7)
    assert ((found.plan == 0) == ((rows == 0)[:, None] | (columns == 0))).all()


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3, 8), (20, 5), (30, 30)])
def test_marginals_are_kept(shape: tuple[int, int], dtype: torch.dtype) -> None:
    cost, rows, columns = (x.to(dtype) for x in problem(2, *shape))
    found = sinkhorn(cost, rows, columns, settings=SinkhornSettings(epsilon=0.03, iterations=5000, tolerance=1e-5))
    assert found.plan.dtype == dtype
    assert found.converged.all()
    assert (found.plan.sum(-1) - rows).abs().max() <= 1e-5
    torch.testing.assert_close(found.plan.sum(-2), columns)
    assert found.iterations < 5000
    assert found.iterations % solver.CHECK == 0


def test_marginals_of_zero_need_no_logarithms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(solver, "_logged")
    cost, rows, columns = problem(2, 6, 5, zeros=True)
    assert sinkhorn(cost, rows, columns, settings=EXACT).converged.all()


def test_kernel_and_logarithms_agree_where_the_kernel_must_be_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    absorb = solver._absorb

    def counted(*given: Any) -> Any:
        made.append(1)
        return absorb(*given)

    monkeypatch.setattr(solver, "_absorb", counted)
    cost, rows, columns = problem(12, 15)
    cost = cost.float() * 3
    settings = SinkhornSettings(epsilon=2e-3, iterations=300, tolerance=0)
    found = sinkhorn(cost, rows, columns, settings=settings)
    assert 1 < len(made) < 30
    expected = plain(cost.double(), rows, columns, settings, 300).exp()
    torch.testing.assert_close(found.plan, expected.float(), atol=2e-5, rtol=1e-2)


def test_a_batch_is_its_problems_one_by_one_and_marginals_are_broadcast() -> None:
    cost, rows, columns = problem(2, 3, 6, 4, zeros=True)
    both = sinkhorn(cost, rows[0, 0], columns, settings=EXACT)
    assert both.cost.shape == both.objective.shape == both.converged.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            one = sinkhorn(cost[i, j], rows[0, 0], columns[i, j], settings=EXACT)
            torch.testing.assert_close(both.plan[i, j], one.plan, atol=1e-12, rtol=1e-9)
            torch.testing.assert_close(both.cost[i, j], one.cost)
    wide = sinkhorn(cost[0, 0], rows, settings=EXACT)
    torch.testing.assert_close(wide.plan[1, 2], sinkhorn(cost[0, 0], rows[1, 2], settings=EXACT).plan)
    torch.testing.assert_close(wide.plan.sum(-2), torch.full((2, 3, 4), 0.25, dtype=torch.float64))


def test_a_small_epsilon_gives_the_exact_transport() -> None:
    cost, rows, columns = problem(7, 9, seed=3)
    sums = torch.cat([torch.kron(torch.eye(7), torch.ones(1, 9)), torch.kron(torch.ones(1, 7), torch.eye(9))])
    exact = linprog(cost.flatten().numpy(), A_eq=sums.numpy(), b_eq=torch.cat([rows, columns]).numpy())
    settings = SinkhornSettings(epsilon=1e-3, iterations=50_000, tolerance=1e-9)
    found = sinkhorn(cost, rows, columns, settings=settings)
    assert found.converged
    assert exact.fun - 1e-8 < float(found.cost) < exact.fun + 1e-3
    torch.testing.assert_close(found.plan.flatten(), torch.from_numpy(exact.x), atol=5e-3, rtol=0)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("count", [1, 7, 23])
def test_the_unrolled_gradient_is_that_of_the_iterations(count: int) -> None:
    cost, rows, columns = problem(2, 6, 5)
    cost.requires_grad_()
    settings = SinkhornSettings(epsilon=0.05, iterations=count, tolerance=0, gradient="unrolled")
    weights = torch.randn(6, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found, expected = sinkhorn(cost, rows, columns, settings=settings), plain(cost, rows, columns, settings, count)
    plan = expected.exp()
    torch.testing.assert_close(found.plan, plan, atol=1e-10, rtol=1e-10)
    loss = (found.plan * weights).sum() + found.plan.log().mean() + found.cost.square().sum()
    other = (plan * weights).sum() + expected.mean() + (plan * cost).sum((-2, -1)).square().sum()
    (mine,), (true,) = torch.autograd.grad(loss, cost), torch.autograd.grad(other, cost)
    torch.testing.assert_close(mine, true, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("mode", ["unrolled", "implicit"])
@pytest.mark.parametrize("shape", [(4, 2), (2, 3)])
def test_gradients_are_those_of_small_changes(shape: tuple[int, int], mode: Gradient) -> None:
    cost, rows, columns = problem(*shape)
    settings = changed(EXACT, gradient=mode, tolerance=1e-12)

    def outcome(cost: Tensor) -> tuple[Tensor, Tensor]:
        found = sinkhorn(cost, rows, columns, settings=settings)
        return found.plan, found.cost

    assert torch.autograd.gradcheck(outcome, cost.requires_grad_(), atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_of_the_objective_is_the_plan(mode: Gradient) -> None:
    cost, rows, columns = problem(2, 3, 2)
    settings = changed(EXACT, gradient=mode, tolerance=1e-12)
    assert torch.autograd.gradcheck(
        lambda cost: sinkhorn(cost, rows, columns, settings=settings).objective, cost.requires_grad_(), atol=1e-5
    )
    found = sinkhorn(cost, rows, columns, settings=settings)
    torch.testing.assert_close(torch.autograd.grad(found.objective.sum(), cost)[0], found.plan.detach())
    assert found.plan.requires_grad == found.cost.requires_grad == (mode != "envelope")
    entropy = (found.plan * (found.plan.log() - 1)).sum((-2, -1))
    torch.testing.assert_close(found.objective, found.cost + settings.epsilon * entropy)


@pytest.mark.parametrize("rows", [5, 40])
def test_implicit_and_unrolled_agree_at_small_epsilon_in_float32(rows: int) -> None:
    cost = problem(rows, 12)[0].float().requires_grad_()
    weights = torch.randn(rows, 12, generator=torch.Generator().manual_seed(0))
    grads = []
    for mode in ("unrolled", "implicit"):
        settings = SinkhornSettings(epsilon=0.02, iterations=6000, tolerance=1e-8, gradient=mode)
        grads.append(torch.autograd.grad((sinkhorn(cost, settings=settings).plan * weights).sum(), cost)[0])
    torch.testing.assert_close(*grads, atol=2e-3 * float(grads[0].abs().max()), rtol=0)


def nothing_is_nan(found: Transport) -> bool:
    values = found.plan, found.cost, found.objective
    return all(bool(x.isfinite().all()) for x in values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e4, 1e12, 1e30])
def test_never_nan_at_small_epsilon(size: float, mode: Gradient, dtype: torch.dtype) -> None:
    cost, rows, columns = (x.to(dtype) for x in problem(2, 9, 7, zeros=True))
    cost = (cost * size).requires_grad_()
    settings = SinkhornSettings(epsilon=1e-4, iterations=50, gradient=mode)
    found = sinkhorn(cost, rows, columns, settings=settings)
    assert nothing_is_nan(found)
    assert (found.plan[..., 0, :] == 0).all()
    assert (found.plan[..., -1] == 0).all()
    torch.testing.assert_close(found.plan.sum(-2), columns)
    loss = found.objective.sum() if mode == "envelope" else found.plan.square().sum() + found.objective.sum()
    assert not torch.autograd.grad(loss, cost)[0].isnan().any()


@pytest.mark.parametrize("mode", ["unrolled", "implicit"])
def test_forbidden_pairs_get_nothing(mode: Gradient) -> None:
    cost = problem(5, 5)[0]
    forbidden = torch.eye(5, dtype=torch.bool)
    cost = cost.masked_fill(forbidden, torch.inf).requires_grad_()
    found = sinkhorn(cost, settings=changed(EXACT, gradient=mode))
    assert found.converged
    assert (found.plan[forbidden] == 0).all()
    near = sinkhorn(cost.detach().masked_fill(forbidden, 30.0), settings=EXACT)
    torch.testing.assert_close(found.plan, near.plan, atol=1e-9, rtol=0)
    (grad,) = torch.autograd.grad(found.cost + found.plan.square().sum(), cost)
    assert grad.isfinite().all()
    assert (grad[forbidden] == 0).all()


@pytest.mark.parametrize("mode", ["unrolled", "implicit"])
def test_nothing_flows_back_from_where_nothing_can_be_sent(mode: Gradient) -> None:
    cost, rows, columns = problem(4, 5, zeros=True)
    found = sinkhorn(cost.requires_grad_(), rows, columns, settings=changed(EXACT, gradient=mode))
    sent = found.plan > 0
    assert sent.sum() == 3 * 4
    (grad,) = torch.autograd.grad((found.plan * torch.arange(5)).sum() + found.cost, cost)
    assert grad.isfinite().all()
    assert (grad[~sent] == 0).all()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("mode", ["unrolled", "implicit"])
def test_what_cannot_be_sent_is_not_sent_and_not_called_converged(mode: Gradient, turned: bool) -> None:
    cost = problem(2, 4, 4)[0]
    cost[0, 1] = torch.inf
    cost = (cost.mT if turned else cost).clone().requires_grad_()
    found = sinkhorn(cost, settings=changed(EXACT, iterations=500, tolerance=1e-9, gradient=mode))
    assert found.converged.tolist() == [False, True]
    assert nothing_is_nan(found)
    assert (found.plan[0].detach().sum(0 if turned else 1)[1]) == 0
    assert torch.autograd.grad(found.plan.square().sum(), cost)[0].isfinite().all()


def test_no_graph_is_kept_where_it_is_not_needed() -> None:
    cost = problem(6, 5)[0]
    few = SinkhornSettings(iterations=40, tolerance=0, epsilon=0.1)
    learned = cost.clone().requires_grad_()
    assert not sinkhorn(cost, settings=few).plan.requires_grad
    detached = sinkhorn(learned, settings=changed(few, gradient="detached"))
    assert not any(x.requires_grad for x in (detached.plan, detached.cost, detached.objective))
    with torch.no_grad():
        assert not sinkhorn(learned, settings=few).objective.requires_grad


def test_autocast_and_half_precision_are_computed_in_float32() -> None:
    cost = problem(20, 30)[0].float()
    expected = sinkhorn(cost).plan
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(sinkhorn(cost).plan, expected)
    assert sinkhorn(cost.bfloat16()).plan.dtype == torch.float32


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be a finite number above 0; given 0.0"),
        ({"iterations": 0}, '"iterations" must be at least 1; given 0'),
        ({"tolerance": math.nan}, '"tolerance" must be from 0 to below 1; given nan'),
        ({"gradient": "implict"}, 'No gradient "implict"\\. Did you mean "implicit"'),
    ],
    ids=["epsilon", "iterations", "tolerance", "gradient"],
)
def test_wrong_settings_say_what_is_wrong(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SinkhornSettings(**values)


def test_wrong_inputs_say_what_is_wrong() -> None:
    cost, _, columns = problem(3, 4)
    with pytest.raises(UsageError, match=r"given \[3\]"):
        sinkhorn(cost[:, 0])
    with pytest.raises(UsageError, match=r"need marginals \[\.\.\., 3\] and \[\.\.\., 4\]; given \[4\] and \[4\]"):
        sinkhorn(cost, columns, columns)


def test_equals_pot() -> None:
    ot = pytest.importorskip("ot", reason="compares with POT: pip install POT")
    cost, rows, columns = problem(8, 11)
    cost.requires_grad_()
    weights = torch.randn(8, 11, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = sinkhorn(cost, rows, columns, settings=changed(EXACT, epsilon=0.05))
    plan = ot.sinkhorn(rows, columns, cost, 0.05, method="sinkhorn_log", stopThr=1e-14, numItermax=5000)
    torch.testing.assert_close(found.plan, plan, atol=1e-9, rtol=1e-7)
    mine, true = (torch.autograd.grad((x * weights).sum(), cost)[0] for x in (found.plan, plan))
    torch.testing.assert_close(mine, true, atol=1e-8, rtol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("shape", [(4, 9), (3, 5, 20)])
def test_recorded_iterations_on_a_gpu_are_those_on_a_cpu(shape: tuple[int, ...]) -> None:
    for seed in range(3):  # the second and third replay what the first recorded
        cost = torch.rand(shape, generator=torch.Generator().manual_seed(seed))
        settings = SinkhornSettings(epsilon=0.02, iterations=500)
        here, there = sinkhorn(cost, settings=settings), sinkhorn(cost.cuda(), settings=settings)
        torch.testing.assert_close(there.plan.cpu(), here.plan, rtol=1e-3, atol=1e-6)
