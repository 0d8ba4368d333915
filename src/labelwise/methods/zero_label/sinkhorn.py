"""Entropic optimal transport by Sinkhorn's algorithm: batched, safe at small epsilon, with four kinds of gradient.

By hand, because it is several times faster than libraries (docs/results/speed.md): iterations multiply by a kernel, are
solved together for any number of problems, and are recorded as a CUDA graph on a GPU.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import threshold

from labelwise.support.errors import UsageError, listing, suggest
from labelwise.support.settings import check_range
from labelwise.train.recording import record

Gradient = Literal["unrolled", "implicit", "envelope", "detached"]
CHECK = 10  # iterations between two looks at the marginals
RIDGE = 1e-12  # added to a matrix with eigenvalues from 0 to 1, in double precision


@dataclass(frozen=True, kw_only=True)
class SinkhornSettings:
    """How to solve a transport problem."""

    epsilon: float = 0.01  # weight of the entropy, in units of the cost
    iterations: int = 1000  # at most this many updates of rows and columns
    # stop when all marginals are within this of their targets; checked every ten iterations
    tolerance: float = 1e-6
    # `unrolled` is the derivative of the iterations that were run, `implicit` that of the exact solution (needs a
    # plan that has converged), both of everything returned. `envelope` is the cheapest: only the objective has a
    # gradient, which is the plan. `detached`: none.
    gradient: Gradient = "implicit"

    def __post_init__(self) -> None:
        allowed = get_args(Gradient)
        if self.gradient not in allowed:
            raise UsageError(
                f'No gradient "{self.gradient}".{suggest(self.gradient, allowed)} Known: {listing(allowed)}.'
            )
        if not (self.epsilon > 0 and isfinite(self.epsilon)):
            raise UsageError(f"epsilon must be a finite number above 0; given {self.epsilon}.")
        check_range(self, "at least 1", "iterations")
        check_range(self, "from 0 to below 1", "tolerance")


class Transport(NamedTuple):
    """A transport plan."""

    plan: Tensor  # [..., n, m]
    cost: Tensor  # [...], the sum of plan times cost
    # [...], what the plan minimises: cost + epsilon * sum(plan * (log plan - 1)). It is another quantity than the
    # cost; its gradient is the plan itself, in every mode but `detached`.
    objective: Tensor
    iterations: int  # how many were run
    converged: Tensor  # [...], True where all marginals of this plan are within the tolerance


def sinkhorn(
    cost: Tensor, rows: Tensor | None = None, columns: Tensor | None = None, *, settings: SinkhornSettings | None = None
) -> Transport:
    """Return the plan ``[..., n, m]`` that moves ``rows`` to ``columns`` at the least cost, blurred by ``epsilon``.

    It is computed in float64 if the cost is, else in float32. Float32 resolves epsilon down to about 1e-5 of the
    spread of the costs; below that the answer is still a plan, but ``converged`` may stay False. Gradients reach the cost.

    Args:
        cost: ``[..., n, m]``, any number of problems at once; inf forbids a pair.
        rows: ``[..., n]``, 0 or more, broadcast over the problems; None is uniform with sum 1.
        columns: ``[..., m]``, likewise, with the same sum.
    """
    settings = settings or SinkhornSettings()
    with torch.autocast(cost.device.type, enabled=False):
        cost, a, b = _inputs(cost, rows, columns)
        needs_gradient = torch.is_grad_enabled() and cost.requires_grad and settings.gradient != "detached"
        mode = settings.gradient if needs_gradient else "detached"
        with torch.set_grad_enabled(mode == "unrolled"):
            log_plan, iterations = _solve(cost, a, b, settings)
        if mode == "implicit":
            log_plan = _Implicit.apply(log_plan, cost, settings.epsilon)  # type: ignore[no-untyped-call]
        plan = log_plan.exp()
        plan_values = plan.detach()
        marginal_error = torch.maximum(
            (plan_values.sum(-1) - a).abs().amax(-1), (plan_values.sum(-2) - b).abs().amax(-1)
        )
        costs = torch.where(plan_values > 0, cost if needs_gradient else cost.detach(), 0)
        entropy = (torch.xlogy(plan_values, plan_values) - plan_values).sum((-2, -1))
        objective = (plan_values * costs).sum((-2, -1)) + settings.epsilon * entropy
        total = (plan * (costs.detach() if mode == "envelope" else costs)).sum((-2, -1))
    return Transport(plan, total, objective, iterations, marginal_error <= settings.tolerance)


def _inputs(cost: Tensor, rows: Tensor | None, columns: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return cost ``[..., n, m]`` and marginals ``[..., n]``, ``[..., m]`` of one kind and one batch."""
    if cost.ndim < 2 or not cost.numel():
        raise UsageError(f"Costs have the shape [..., n, m], nothing of it empty; given {list(cost.shape)}.")
    cost = cost if cost.dtype == torch.float64 else cost.float()
    n, m = cost.shape[-2:]
    a = cost.new_full((n,), 1 / n) if rows is None else rows.detach().to(cost)
    b = cost.new_full((m,), 1 / m) if columns is None else columns.detach().to(cost)
    if a.shape[-1] != n or b.shape[-1] != m:
        raise UsageError(
            f"Costs {list(cost.shape)} need marginals [..., {n}] and [..., {m}]; "
            f"given {list(a.shape)} and {list(b.shape)}."
        )
    batch = torch.broadcast_shapes(cost.shape[:-2], a.shape[:-1], b.shape[:-1])  # type: ignore[no-untyped-call]
    return cost.expand(*batch, n, m), a.expand(*batch, n), b.expand(*batch, m)


def _solve(cost: Tensor, a: Tensor, b: Tensor, settings: SinkhornSettings) -> tuple[Tensor, int]:
    """Return the log plan and the number of iterations.

    Iterations multiply by a kernel, which is many times faster than logarithms. A kernel is made again when its scalings
    have grown too far, and iterations that even a new one cannot hold are run on logarithms.
    """
    with torch.no_grad():  # the least cost of each row and column is taken off, so that the rest keeps its digits
        low = _zeroed(cost.amin(-1))[..., None]
        low = low + _zeroed((cost - low).amin(-2))[..., None, :]
    most = torch.finfo(cost.dtype).max / 8
    log_kernel = ((cost - low) / -settings.epsilon).clamp_min(-most)
    logits = log_kernel.masked_fill(cost == torch.inf, -torch.inf)
    kernel: _Kernel | None = None
    v, steps, gap = torch.zeros_like(b).masked_fill(b == 0, -torch.inf), 0, torch.inf
    while steps < settings.iterations and gap > settings.tolerance:
        count, new = min(CHECK, settings.iterations - steps), kernel is None
        if kernel is None:
            kernel, y = _absorb(logits, a, b, v), (b > 0).to(v)
        sums, after, report = _run(kernel, y, count)
        gap = report.item()
        if gap < torch.inf:
            u, v, y = a.log() + kernel.left - sums[0].log(), b.log() + kernel.right - sums[1].log(), after
        else:
            kernel = None
            if not new:
                continue
            u, v, report = _logged(logits, a, b, v, count)
            gap = report.item()
        steps += count
    # Columns again, from the same u: rounding can no longer make an entry exceed the mass of its column.
    terms = logits + u[..., None]
    return terms - _log_sums(terms, -2)[..., None, :] + b.log()[..., None, :], steps


class _Kernel(NamedTuple):
    """exp(logits + left + right) ``[..., n, m]``, and the marginals."""

    matrix: Tensor
    left: Tensor
    right: Tensor
    a: Tensor
    b: Tensor


def _absorb(logits: Tensor, a: Tensor, b: Tensor, v: Tensor) -> _Kernel:
    """Return the kernel that has v in it; the largest entry of each row is 1."""
    terms = logits + v[..., None, :]
    row_shift = -terms.detach().amax(-1)
    least = torch.finfo(v.dtype).tiny ** (2 / 3)  # below are the numbers whose products become denormal, which is slow
    matrix = threshold((terms + row_shift[..., None]).exp(), least, 0)
    return _Kernel(matrix.masked_fill((b == 0)[..., None, :], 1), row_shift, v, a, b)


Rounds = tuple[tuple[Tensor, Tensor], Tensor, Tensor]


def _rounds(kernel: _Kernel, y: Tensor, count: int) -> Rounds:
    """Return the last sums of rows and columns, y, and the largest gap of a marginal: inf if a sum cannot be trusted."""
    rows, columns = [_times(kernel.matrix, y)], list[Tensor]()
    for _ in range(count):
        x = kernel.a / rows[-1]
        columns.append(_times(kernel.matrix.mT, x))
        y = kernel.b / columns[-1]
        rows.append(_times(kernel.matrix, y))
    gap = ((x - kernel.a / rows[-1]) * rows[-1]).abs().max()
    floor = torch.finfo(y.dtype).tiny ** 0.25  # next to such a sum the entries that were set to 0 are nothing
    low, high = torch.stack(rows[:-1]).aminmax()
    least, most = torch.stack(columns).aminmax()
    sound = (torch.minimum(low, least) > floor) & (torch.maximum(high, most) < 1 / floor)
    return (rows[-2], columns[-1]), y, torch.where(sound, gap, torch.inf)


def _run(kernel: _Kernel, y: Tensor, count: int) -> Rounds:
    """Run ``_rounds``; on a GPU without gradients it is recorded once, then replayed."""
    if torch.is_grad_enabled() or not y.is_cuda or count != CHECK:
        return _rounds(kernel, y, count)
    return _recording(tuple(kernel.matrix.shape), y.dtype, y.device).replay(kernel, y)


class _Recording:
    """Iterations recorded once as a CUDA graph, on fixed tensors.

    Iterations are so short that starting their operations one by one takes most of the time.
    """

    def __init__(self, like: Tensor) -> None:
        rows, columns = torch.ones_like(like[..., 0]), torch.ones_like(like[..., 0, :])
        self.own = _Kernel(torch.ones_like(like), rows, columns, rows.clone(), columns.clone())
        self.y, self.holds = columns.clone(), self.own
        side = torch.cuda.Stream(like.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(like.device))
        with torch.cuda.stream(side):
            _rounds(self.own, self.y, CHECK)
        torch.cuda.current_stream(like.device).wait_stream(side)
        self.graph, self.outcome = record(lambda: _rounds(self.own, self.y, CHECK), like.device)

    def replay(self, kernel: _Kernel, y: Tensor) -> Rounds:
        """Run ``_rounds``."""
        if self.holds is not kernel:
            self.holds = kernel
            for own, source in ((self.own.matrix, kernel.matrix), (self.own.a, kernel.a), (self.own.b, kernel.b)):
                own.copy_(source)
        self.y.copy_(y)
        self.graph.replay()
        (rows, columns), after, gap = self.outcome
        return (rows.clone(), columns.clone()), after.clone(), gap


@lru_cache(maxsize=4)
def _recording(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> _Recording:
    """Return iterations on kernels of a shape ``[..., n, m]``."""
    return _Recording(torch.ones(shape, dtype=dtype, device=device))


def _times(kernel: Tensor, y: Tensor) -> Tensor:
    """Return kernel times y, ``[..., n]``; on a GPU not as a matrix product, which may keep only ten bits."""
    if kernel.is_cuda and kernel.dtype == torch.float32:
        return (kernel * y[..., None, :]).sum(-1)
    if kernel.ndim == 2:
        return kernel.mv(y)
    return (y[..., None, :] @ kernel.mT)[..., 0, :]


def _logged(logits: Tensor, a: Tensor, b: Tensor, v: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return u, v and the largest gap, of iterations on logarithms, which never overflow."""
    sums = _log_sums(logits + v[..., None, :], -1)
    for _ in range(count):
        u = a.log() - sums
        v = b.log() - _log_sums(logits + u[..., None], -2)
        sums = _log_sums(logits + v[..., None, :], -1)
    return u, v, ((u + sums).exp() - a).abs().max()


def _log_sums(terms: Tensor, axis: int) -> Tensor:
    """Return log-sum-exp; 0, without a gradient, where every entry is minus infinity."""
    void = terms.amax(axis, keepdim=True) == -torch.inf
    return terms.masked_fill(void, 0).logsumexp(axis).masked_fill(void.squeeze(axis), 0)


def _zeroed(x: Tensor) -> Tensor:
    """Return the tensor with infinite entries replaced by 0."""
    return x.masked_fill(x.isinf(), 0)


class _Implicit(Function):
    """The log plan, with the gradient of the plan that solves the marginal conditions with regard to the cost."""

    @staticmethod
    def forward(ctx: Any, log_plan: Tensor, _: Tensor, epsilon: float) -> Tensor:
        ctx.save_for_backward(log_plan)
        ctx.epsilon = epsilon
        return log_plan.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        (log_plan,) = ctx.saved_tensors
        with torch.autocast(grad.device.type, enabled=False):
            slope = _implicit(log_plan, grad.masked_fill(log_plan == -torch.inf, 0))
        return None, slope / -ctx.epsilon, None


def _implicit(log_plan: Tensor, grad: Tensor) -> Tensor:
    """Return the gradient of the logits, given that of the log plan.

    The linear system of the marginal conditions is symmetric; it is reduced to the smaller side, ``[..., k, k]`` with
    k = min(n, m), and solved in double precision. Potentials are known up to a constant only: a small ridge picks one,
    and what the plan gets from it cancels.
    """
    if log_plan.shape[-1] > log_plan.shape[-2]:
        return _implicit(log_plan.mT, grad.mT).mT
    grad, plan = grad.double(), log_plan.double().exp()
    row_roots, column_roots = _zeroed(plan.sum(-1).rsqrt()), _zeroed(plan.sum(-2).rsqrt())
    q = plan * row_roots[..., None] * column_roots[..., None, :]  # its singular values are between 0 and 1
    system = -(q.mT @ q)
    system.diagonal(dim1=-2, dim2=-1).add_(1 + RIDGE)
    right = row_roots * grad.sum(-1)
    lower = column_roots * grad.sum(-2) - _times(q.mT, right)
    y = torch.cholesky_solve(lower[..., None], torch.linalg.cholesky_ex(system)[0])[..., 0]
    x = row_roots * (right - _times(q, y))
    return (grad - plan * (x[..., None] + (column_roots * y)[..., None, :])).to(log_plan)
