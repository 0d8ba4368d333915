"""Entropic optimal transport by Sinkhorn's algorithm: batched, safe at small epsilon, with four kinds of gradient."""

from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from labelwise.errors import UsageError, listing, suggest
from labelwise.ops.scaling import Problem, Trail, columns_of, iterate, pull_back, rows_of, update, zeroed

Gradient = Literal["unrolled", "implicit", "envelope", "detached"]
RIDGE = 1e-12  # added to a matrix whose eigenvalues lie between 0 and 1, in double precision


@dataclass(frozen=True, kw_only=True)
class SinkhornSettings:
    """How to solve a transport problem.

    Args:
        epsilon: weight of the entropy, in units of the cost.
        iterations: at most this many updates of rows and columns, warm starts included.
        tolerance: stop when no marginal is farther than this from where it should be; looked at every ten iterations.
        row_slack: None: rows of the plan sum to the given marginal. A number: they may differ, at this price times the
            Kullback-Leibler divergence (unbalanced transport).
        column_slack: the same for columns.
        gradient: ``unrolled`` is the derivative of the iterations that were run, ``implicit`` that of the exact
            solution (needs a plan that has converged), both of everything returned. ``envelope`` is the cheapest: only
            the objective has a gradient, which is the plan. ``detached``: none.
        warm_starts: solve with epsilon times 4^w, ..., 16, 4 first, each starting from the one before.
    """

    epsilon: float = 0.01
    iterations: int = 1000
    tolerance: float = 1e-6
    row_slack: float | None = None
    column_slack: float | None = None
    gradient: Gradient = "implicit"
    warm_starts: int = 0

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        if self.gradient not in get_args(Gradient):
            known = get_args(Gradient)
            raise UsageError(f'No gradient "{self.gradient}".{suggest(self.gradient, known)} Known: {listing(known)}.')
        for name in ("epsilon", "row_slack", "column_slack"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and isfinite(value)):
                raise UsageError(f"{name} must be a finite number above 0; given {value}.")
        if not 0 <= self.warm_starts < self.iterations:
            raise UsageError(
                "A solution takes at least 1 iteration, and as many more as there are warm starts; "
                f"given {self.iterations} iterations and {self.warm_starts} warm starts."
            )
        if not 0 <= self.tolerance < 1:
            raise UsageError(f"tolerance must lie between 0 and 1; given {self.tolerance}.")


@dataclass(frozen=True)
class Transport:
    """A transport plan.

    Args:
        log_plan: ``[..., n, m]``, -inf where nothing is sent.
        plan: ``[..., n, m]``, its exponential.
        cost: ``[...]``, the sum of plan times cost.
        objective: ``[...]``, what the plan minimises: cost + epsilon * sum(plan * (log_plan - 1)) + the price of slack.
            It is another quantity than the cost; its gradient is the plan itself, in every mode but ``detached``.
        iterations: how many were run.
        converged: ``[...]``, True where all marginals of this plan are within the tolerance.
    """

    log_plan: Tensor
    plan: Tensor
    cost: Tensor
    objective: Tensor
    iterations: int
    converged: Tensor


def sinkhorn(
    cost: Tensor, rows: Tensor | None = None, columns: Tensor | None = None, *, settings: SinkhornSettings | None = None
) -> Transport:
    """Return the plan ``[..., n, m]`` that moves ``rows`` to ``columns`` at the least cost, blurred by ``epsilon``.

    It is computed in float64 where the cost is, else in float32. Float32 resolves epsilon down to about 1e-5 of the
    spread of the costs; below that the answer is still a plan, but ``converged`` may stay False. Where epsilon is below a
    hundredth of the mean cost, warm starts come nearer in as many iterations. With a slack, costs should be 0 or more: the
    mass of the plan grows exponentially with what they are below 0. Gradients can be taken once, not twice.

    Args:
        cost: ``[..., n, m]``, any number of problems at once; inf forbids a pair.
        rows: ``[..., n]``, 0 or more, broadcast over the problems; None is uniform with sum 1.
        columns: ``[..., m]``, likewise.
        settings: None is the defaults.
    """
    settings = settings or SinkhornSettings()
    with torch.autocast(cost.device.type, enabled=False):
        cost, rows, columns = _inputs(cost, rows, columns, settings)
        needed = torch.is_grad_enabled() and settings.gradient != "detached"
        needed = needed and any(x.requires_grad for x in (cost, rows, columns))
        mode = settings.gradient if needed else "detached"
        with torch.no_grad():
            solution = _solve(cost, rows, columns, settings, mode == "unrolled")
            value = _objective(cost, rows, columns, solution)
        paid, log_plan, objective = cost.detach(), solution.log_plan, value
        if mode in ("unrolled", "implicit"):
            marginals = _log(rows), _log(columns)
            paid, log_plan = cost, _Plan.apply(solution, cost, *marginals)  # type: ignore[no-untyped-call]
        if needed:
            objective = _Objective.apply(solution, value, cost, rows, columns)  # type: ignore[no-untyped-call]
        plan = log_plan.exp()
        total = (plan * torch.where(plan > 0, paid, 0)).sum((-2, -1))
    return Transport(log_plan, plan, total, objective, solution.iterations, solution.converged)


def _inputs(
    cost: Tensor, rows: Tensor | None, columns: Tensor | None, settings: SinkhornSettings
) -> tuple[Tensor, Tensor, Tensor]:
    """Return cost ``[..., n, m]`` and marginals ``[..., n]``, ``[..., m]`` of one kind and one batch, once checked."""
    if cost.ndim < 2 or not cost.numel():
        raise UsageError(f"Costs have the shape [..., n, m], nothing of it empty; given {list(cost.shape)}.")
    cost = cost if cost.dtype == torch.float64 else cost.float()
    n, m = cost.shape[-2:]
    rows = cost.new_full((n,), 1 / n) if rows is None else rows.to(cost)
    columns = cost.new_full((m,), 1 / m) if columns is None else columns.to(cost)
    try:
        shapes = cost.shape[:-2], rows.shape[:-1], columns.shape[:-1]
        batch = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
        rows, columns = rows.expand(*batch, n), columns.expand(*batch, m)
    except (RuntimeError, ValueError) as error:
        raise UsageError(
            f"Costs {list(cost.shape)} need marginals [..., {n}] and [..., {m}]; "
            f"given {list(rows.shape)} and {list(columns.shape)}."
        ) from error
    a, b = rows.detach(), columns.detach()
    sums = torch.stack([a.sum(-1), b.sum(-1)])
    apart = ((sums[0] - sums[1]).abs() > 1e-3 * sums.amax(0)).any()
    wrong = [
        (cost.isnan() | (cost == -torch.inf)).any(),
        ~((a >= 0) & (a < torch.inf)).all() | ~((b >= 0) & (b < torch.inf)).all() | (sums <= 0).any(),
        apart if settings.row_slack is None and settings.column_slack is None else apart & False,
    ]
    bad_cost, bad_marginal, bad_sum = torch.stack(wrong).tolist()
    if bad_cost:
        raise UsageError("A cost is not a number or -inf. Costs are finite, or inf where a pair is forbidden.")
    if bad_marginal:
        raise UsageError(
            "A marginal is negative, infinite or not a number, or all of it is 0. Give shares of 0 or more."
        )
    if bad_sum:
        raise UsageError("Rows and columns have different sums, so no plan has both. Make them equal, or give a slack.")
    return cost.expand(*batch, n, m), rows, columns


def _log(masses: Tensor) -> Tensor:
    """Return logarithms, -inf at 0 and without a gradient there."""
    return torch.where(masses > 0, torch.where(masses > 0, masses, 1).log(), -torch.inf)


@dataclass(frozen=True)
class _Solution:
    """A plan, the potentials in units of the cost, and what the gradients need."""

    problem: Problem
    settings: SinkhornSettings
    log_plan: Tensor
    potentials: tuple[Tensor, Tensor]
    iterations: int
    converged: Tensor
    trail: Trail


def _solve(cost: Tensor, rows: Tensor, columns: Tensor, settings: SinkhornSettings, record: bool) -> _Solution:
    """Return the solution; the least cost of each row and column is taken off first, so that the rest keeps its digits."""
    low_rows = zeroed(cost.amin(-1))
    cost = cost - low_rows[..., None]
    low_columns = zeroed(cost.amin(-2))
    cost = cost - low_columns[..., None, :]
    slacks, most = (settings.row_slack, settings.column_slack), torch.finfo(cost.dtype).max / 8
    a = _log(rows) - (low_rows / slacks[0] if slacks[0] else 0)
    b = _log(columns) - (low_columns / slacks[1] if slacks[1] else 0)
    v, used, trail = torch.zeros_like(b).masked_fill(b == -torch.inf, -torch.inf), 0, Trail()
    for stage in range(settings.warm_starts, -1, -1):
        epsilon = settings.epsilon * 4**stage
        logits = torch.where(cost == torch.inf, -torch.inf, (cost / -epsilon).clamp_min(-most))
        row_power, column_power = (slack / (slack + epsilon) if slack else 1.0 for slack in slacks)
        problem = Problem(logits, a, b, (row_power, column_power))
        limit = (settings.iterations - used) // (stage + 1)
        u, v, ran = iterate(problem, v * 4, limit, settings.tolerance, trail if record and not stage else None)
        used += ran
    # Once more, from the same u: now no entry can exceed the mass of its column, whatever was rounded.
    terms = logits + u[..., None]
    v, sums = update(terms, b, column_power, -2)
    mass = b if column_power == 1 else column_power * b + (1 - column_power) * sums
    log_plan = terms - zeroed(sums)[..., None, :] + mass[..., None, :]
    gap = torch.maximum(_gap(log_plan, -1, a, u, row_power), _gap(log_plan, -2, b, v, column_power))
    potentials = epsilon * u + low_rows, epsilon * v + low_columns
    return _Solution(problem, settings, log_plan, potentials, used, gap <= settings.tolerance, trail)


def _gap(log_plan: Tensor, axis: int, masses: Tensor, potentials: Tensor, power: float) -> Tensor:
    """Return how far the farthest marginal ``[...]`` is from where the optimum with these potentials has it."""
    if power < 1:
        masses = (masses - potentials * (1 / power - 1)).masked_fill(potentials == -torch.inf, -torch.inf)
    return (log_plan.logsumexp(axis).exp() - masses.exp()).abs().amax(-1)


def _objective(cost: Tensor, rows: Tensor, columns: Tensor, solution: _Solution) -> Tensor:
    """Return what the plan minimises, ``[...]``."""
    plan, settings = solution.log_plan.exp(), solution.settings
    logs = torch.where(plan > 0, solution.log_plan, 0)
    value = (plan * (torch.where(plan > 0, cost, 0) + settings.epsilon * (logs - 1))).sum((-2, -1))
    for axis, masses, slack in ((-1, rows, settings.row_slack), (-2, columns, settings.column_slack)):
        if slack:
            sent = plan.sum(axis)
            value = value + slack * (torch.xlogy(sent, sent) - torch.xlogy(sent, masses) - sent + masses).sum(-1)
    return value


class _Plan(Function):
    """The log plan, given a solution, the cost and the logarithms of the marginals, with the gradient the settings ask for."""

    @staticmethod
    def forward(ctx: Any, solution: _Solution, *_: Tensor) -> Tensor:
        ctx.solution = solution
        return solution.log_plan.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        solution, settings = ctx.solution, ctx.solution.settings
        with torch.autocast(grad.device.type, enabled=False):
            grad = grad.masked_fill(solution.log_plan == -torch.inf, 0)
            if settings.gradient == "unrolled":
                logits, rows, columns = pull_back(solution.problem, solution.trail, grad)
            else:
                logits, rows, columns = _implicit(solution.log_plan, solution.problem.powers, grad)
        return None, logits / -settings.epsilon, rows, columns


def _implicit(log_plan: Tensor, powers: tuple[float, float], grad: Tensor) -> tuple[Tensor, ...]:
    """Return gradients of logits and log masses of the plan that solves the marginal conditions, given that of the log plan.

    The linear system of the conditions is symmetric; it is reduced to the smaller side, ``[..., k, k]`` with k = min(n, m),
    and solved in double precision. Potentials of a balanced plan are known up to a constant only: a small ridge picks one,
    and what the plan gets from it cancels.
    """
    if log_plan.shape[-1] > log_plan.shape[-2]:
        logits, columns, rows = _implicit(log_plan.mT, powers[::-1], grad.mT)
        return logits.mT, rows, columns
    grad, plan = grad.double(), log_plan.double().exp()
    sent, got = plan.sum(-1), plan.sum(-2)
    row_roots, column_roots = zeroed(sent.rsqrt()), zeroed(got.rsqrt())
    q = plan * row_roots[..., None] * column_roots[..., None, :]  # its singular values lie between 0 and 1
    system = -powers[0] * (q.mT @ q)
    system.diagonal(dim1=-2, dim2=-1).add_(1 / powers[1] + RIDGE)
    right = row_roots * grad.sum(-1)
    below = column_roots * grad.sum(-2) - powers[0] * columns_of(q, right)
    y = torch.cholesky_solve(below[..., None], torch.linalg.cholesky_ex(system)[0])[..., 0]
    x = powers[0] * row_roots * (right - rows_of(q, y))
    y = column_roots * y
    logits = grad - plan * (x[..., None] + y[..., None, :])
    return logits.to(log_plan), (sent * x).to(log_plan), (got * y).to(log_plan)


class _Objective(Function):
    """The objective, given a solution, its value, the cost and the marginals, with the gradient it has at the optimum."""

    @staticmethod
    def forward(ctx: Any, solution: _Solution, value: Tensor, *_: Tensor) -> Tensor:
        ctx.solution = solution
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        solution, settings = ctx.solution, ctx.solution.settings
        found = [grad[..., None, None] * solution.log_plan.exp()]
        for f, slack in zip(solution.potentials, (settings.row_slack, settings.column_slack), strict=True):
            found.append(grad[..., None] * zeroed(slack * -torch.expm1(-f / slack) if slack else f))
        return None, None, *found
