"""The iterations of Sinkhorn's algorithm, forwards and backwards: on a kernel where that holds, else on logarithms."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import threshold

CHECK = 10  # iterations between two looks at the marginals


@dataclass(frozen=True)
class Problem:
    """What iterations see at one epsilon; ``powers`` of rows and columns are 1 where balanced.

    u = powers[0] * (rows - logsumexp(logits + v)), v = powers[1] * (columns - logsumexp(logits + u)), log_plan = logits + u + v.
    """

    logits: Tensor
    rows: Tensor
    columns: Tensor
    powers: tuple[float, float]


@dataclass(frozen=True)
class Scaled:
    """Iterations on the kernel exp(logits + left + right): scalings x ``[..., n]``, y ``[..., m]``, and what they divide."""

    left: Tensor
    right: Tensor
    x: list[Tensor]
    y: list[Tensor]  # one more: y[i] makes x[i], x[i] makes y[i + 1]
    row_sums: list[Tensor]
    column_sums: list[Tensor]


@dataclass(frozen=True)
class Logged:
    """One iteration on logarithms: v, the sums of the rows, the u made of both, the sums of the columns."""

    v: Tensor
    row_sums: Tensor
    u: Tensor
    column_sums: Tensor


Trail = list[Scaled | Logged]
Found = tuple[Tensor, Tensor, Tensor]


def zeroed(x: Tensor) -> Tensor:
    """Return the same with 0 in place of what is infinite."""
    return x.masked_fill(x.isinf(), 0)


def update(terms: Tensor, masses: Tensor, power: float, axis: int) -> tuple[Tensor, Tensor]:
    """Return new potentials and the log sums they are made of; what nothing can reach gets -inf."""
    sums = terms.logsumexp(axis)
    return torch.where(sums == -torch.inf, -torch.inf, power * (masses - sums)), sums


def iterate(
    problem: Problem, v: Tensor, limit: int, tolerance: float, trail: Trail | None
) -> tuple[Tensor, Tensor, int]:
    """Return u, v and the number of iterations; what they did is added to ``trail``.

    Iterations multiply by a kernel, which is many times faster than logarithms. A kernel is made anew when its scalings
    have grown too far, and iterations that even a new one cannot hold are run on logarithms.
    """
    done, gap, kernel, y = 0, torch.inf, None, v
    while done < limit and gap > tolerance:
        count, new = min(CHECK, limit - done), kernel is None
        if kernel is None:
            kernel, y = _absorb(problem, v), (problem.columns > -torch.inf).to(v)
        step, report = _step(kernel, y, problem.powers, count, whole=trail is not None)
        u, after = _potentials(problem, step)
        gap, steps = report.item(), Trail([step])
        if gap < torch.inf:
            y = step.y[-1]
        else:
            kernel = None
            if not new:
                continue
            u, after, report, steps = _logged(problem, v, count)
            gap = report.item()
        v, done = after, done + count
        if trail is not None:
            _extend(trail, steps)
    return u, v, done


@dataclass(frozen=True)
class _Kernel:
    """exp(logits + left + right), and what its sums divide."""

    matrix: Tensor
    left: Tensor
    right: Tensor
    row_mass: Tensor
    column_mass: Tensor


def _absorb(problem: Problem, v: Tensor) -> _Kernel:
    """Return the kernel that has v in it; the largest entry of each row is 1."""
    p, q = problem.powers
    terms, void = problem.logits + v[..., None, :], problem.columns == -torch.inf
    left = -terms.amax(-1)
    least = torch.finfo(v.dtype).tiny ** (2 / 3)  # below are the numbers whose products become denormal, which is slow
    matrix = threshold(terms.add_(left[..., None]).exp_(), least, 0, inplace=True)
    row_mass = (p * problem.rows - (1 - p) * left).exp()
    column_mass = (q * problem.columns - (1 - q) * zeroed(v)).exp()
    return _Kernel(matrix.masked_fill_(void[..., None, :], 1), left, v, row_mass, column_mass)


def _rounds(kernel: _Kernel, y: Tensor, powers: tuple[float, float], count: int) -> tuple[Scaled, Tensor]:
    """Return the step, and the largest gap of a marginal: inf if a sum came too near 0 or inf to be trusted."""
    p, q = powers
    xs, ys = list[Tensor](), [y]
    rows, columns = [rows_of(kernel.matrix, y)], list[Tensor]()
    for _ in range(count):
        xs.append(_divide(kernel.row_mass, rows[-1], p))
        columns.append(columns_of(kernel.matrix, xs[-1]))
        ys.append(_divide(kernel.column_mass, columns[-1], q))
        rows.append(rows_of(kernel.matrix, ys[-1]))
    last = rows.pop()
    gap = ((xs[-1] - _divide(kernel.row_mass, last, p)) * last).abs().max()
    floor = torch.finfo(y.dtype).tiny ** 0.25  # beside such a sum the entries that were set to 0 are nothing
    (low, high), (least, most) = torch.stack(rows).aminmax(), torch.stack(columns).aminmax()
    sound = (torch.minimum(low, least) > floor) & (torch.maximum(high, most) < 1 / floor)
    return Scaled(kernel.left, kernel.right, xs, ys, rows, columns), torch.where(sound, gap, torch.inf)


def _step(kernel: _Kernel, y: Tensor, powers: tuple[float, float], count: int, *, whole: bool) -> tuple[Scaled, Tensor]:
    """Return a step and its gap, of the whole step or of its last iteration alone, which is faster on a GPU."""
    if whole or not y.is_cuda or count != CHECK:
        return _rounds(kernel, y, powers, count)
    return _recording(tuple(kernel.matrix.shape), y.dtype, y.device, powers).replay(kernel, y)


def _potentials(problem: Problem, step: Scaled) -> tuple[Tensor, Tensor]:
    """Return u and v after a step."""
    p, q = problem.powers
    u = p * (problem.rows + step.left - step.row_sums[-1].log())
    return u, q * (problem.columns + step.right - step.column_sums[-1].log())


class _Recording:
    """Iterations recorded once as a CUDA graph, on tensors that stay where they are.

    Iterations are so short that starting their operations one by one takes most of the time.
    """

    def __init__(self, like: Tensor, powers: tuple[float, float]) -> None:
        rows, columns = torch.ones_like(like[..., 0]), torch.ones_like(like[..., 0, :])
        self.own = _Kernel(torch.ones_like(like), rows, columns, rows.clone(), columns.clone())
        self.y, self.holds = columns.clone(), self.own
        side = torch.cuda.Stream(like.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(like.device))
        with torch.cuda.stream(side):
            _rounds(self.own, self.y, powers, CHECK)
        torch.cuda.current_stream(like.device).wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.step, self.gap = _rounds(self.own, self.y, powers, CHECK)

    def replay(self, kernel: _Kernel, y: Tensor) -> tuple[Scaled, Tensor]:
        """Return what ``_rounds`` does, less all but the last iteration."""
        if self.holds is not kernel:
            self.holds = kernel
            for name in ("matrix", "row_mass", "column_mass"):
                getattr(self.own, name).copy_(getattr(kernel, name))
        self.y.copy_(y)
        self.graph.replay()
        last = [[one[-1].clone()] for one in (self.step.x, self.step.y, self.step.row_sums, self.step.column_sums)]
        return Scaled(kernel.left, kernel.right, *last), self.gap


@lru_cache(maxsize=4)
def _recording(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, powers: tuple[float, float]
) -> _Recording:
    """Return iterations on kernels of a shape ``[..., n, m]``."""
    return _Recording(torch.ones(shape, dtype=dtype, device=device), powers)


def _extend(trail: Trail, steps: Trail) -> None:
    """Add the steps to the trail; those on the same kernel become one."""
    for step in steps:
        before = trail[-1] if trail else None
        if isinstance(before, Scaled) and isinstance(step, Scaled) and before.left is step.left:
            before.x.extend(step.x)
            before.y.extend(step.y[1:])
            before.row_sums.extend(step.row_sums)
            before.column_sums.extend(step.column_sums)
        else:
            trail.append(step)


def _divide(mass: Tensor, sums: Tensor, power: float) -> Tensor:
    return mass / (sums if power == 1 else sums**power)


def rows_of(kernel: Tensor, y: Tensor) -> Tensor:
    """Return kernel times y, ``[..., n]``; on a GPU not as a matrix product, which may keep only ten bits."""
    if kernel.is_cuda and kernel.dtype == torch.float32:
        return (kernel * y[..., None, :]).sum(-1)
    if kernel.ndim == 2:
        return kernel.mv(y)
    return (y[..., None, :] @ kernel.mT)[..., 0, :]


def columns_of(kernel: Tensor, x: Tensor) -> Tensor:
    """Return x times kernel, ``[..., m]``."""
    return rows_of(kernel.mT, x)


def _logged(problem: Problem, v: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor, Trail]:
    """Return u, v, the largest gap and the steps, of iterations on logarithms, which always hold."""
    steps = Trail()
    for _ in range(count):
        u, rows = update(problem.logits + v[..., None, :], problem.rows, problem.powers[0], -1)
        new, columns = update(problem.logits + u[..., None], problem.columns, problem.powers[1], -2)
        steps.append(Logged(v, rows, u, columns))
        v = new
    after, sums = update(problem.logits + v[..., None, :], problem.rows, problem.powers[0], -1)
    return u, v, ((u + sums).exp() - (after + sums).exp()).abs().max(), steps


def pull_back(problem: Problem, trail: Trail, flow: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return gradients of the logits ``[..., n, m]`` and of the log masses, given ``flow``, that of the log plan at the end.

    Where the log plan starts does not count: ``v`` before the first iteration is a constant.
    """
    flow, u, v = flow.clone(), flow.sum(-1), flow.sum(-2)
    found = flow, torch.zeros_like(u), torch.zeros_like(v)
    for step in reversed(trail):
        if isinstance(step, Scaled):
            u, v = _scaled_back(problem, step, u, v, found)
        else:
            u, v = _logged_back(problem, step, u, v, found)
    return found


def _scaled_back(problem: Problem, step: Scaled, u: Tensor, v: Tensor, found: Found) -> tuple[Tensor, Tensor]:
    """Return gradients of u and v before the step, given those after it; what it adds to the others goes to ``found``."""
    flow, of_rows, of_columns = found
    p, q = problem.powers
    kernel = (problem.logits + step.left[..., None] + step.right[..., None, :]).exp_()
    x, y, row_sums, column_sums = (torch.stack(s) for s in (step.x, step.y[:-1], step.row_sums, step.column_sums))
    row_rates, column_rates = p / row_sums, q / column_sums
    from_columns, us, vs = -x * row_rates, list[Tensor](), list[Tensor]()
    u, zero = u * row_rates[-1], torch.zeros_like(u)
    for i in range(len(x) - 1, -1, -1):
        vs.append(v * column_rates[i])
        us.append(u + from_columns[i] * rows_of(kernel, vs[-1]))
        u, v = zero, -y[i] * columns_of(kernel, us[-1])
    of_u, of_v = torch.stack(us[::-1]), torch.stack(vs[::-1])
    of_rows += (of_u * row_sums).sum(0)
    of_columns += (of_v * column_sums).sum(0)
    wide = torch.float64 if kernel.is_cuda else kernel.dtype  # for the reason of rows_of
    left, right = (torch.cat(pair).to(wide) for pair in ((x, of_u), (of_v, y)))
    flow -= kernel.mul_((left.movedim(0, -1) @ right.movedim(0, -2)).to(kernel))
    return u, v


def _logged_back(problem: Problem, step: Logged, u: Tensor, v: Tensor, found: Found) -> tuple[Tensor, Tensor]:
    """Return the same as ``_scaled_back``."""
    flow, of_rows, of_columns = found
    p, q = problem.powers
    of_columns += q * v
    shares = (problem.logits + step.u[..., None] - zeroed(step.column_sums)[..., None, :]).exp_()
    shares *= (q * v)[..., None, :]
    flow -= shares
    u = p * (u - shares.sum(-1))
    of_rows += u
    shares = (problem.logits + step.v[..., None, :] - zeroed(step.row_sums)[..., None]).exp_()
    shares *= u[..., None]
    flow -= shares
    return torch.zeros_like(u), -shares.sum(-2)
