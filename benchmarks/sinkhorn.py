"""Milliseconds of our transport and of POT's and geomloss', side by side in one run, forwards and with the gradient of the cost.

    python benchmarks/sinkhorn.py [--device cpu|cuda] [--threads N] [--rounds N] [--iterations N] [--quick] [--json FILE]

All run the same number of iterations on the same float32 costs (squared distances of normalised features), epsilon 0.01 of the
mean cost, with no early stop, and take turns in every round after a warm-up; the least time of each counts. The gradient is that of the transport
cost through all iterations, except where a row says otherwise: "implicit" is that of the solution, "envelope" only that of
the regularised cost, and geomloss has no other. Libraries that are not installed are left out with a word.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.methods.zero_label.sinkhorn import Gradient, SinkhornSettings, sinkhorn

SHAPES = ((1, 10, 1000), (50, 10, 1000), (1, 500, 500), (8, 500, 500))
Solver = Callable[[Tensor], Tensor]  # costs [b, n, m] to values [b]


def costs(shape: tuple[int, ...], device: str) -> Tensor:
    batch, n, m = shape
    a, b = normalize(torch.randn(batch, n, 64), dim=-1), normalize(torch.randn(batch, m, 64), dim=-1)
    found = torch.cdist(a, b).square()
    return (found / found.mean()).to(device)


def ours(iterations: int, epsilon: float, gradient: Gradient, cost: Tensor) -> Tensor:
    settings = SinkhornSettings(epsilon=epsilon, iterations=iterations, tolerance=0, gradient=gradient)
    found = sinkhorn(cost[0] if len(cost) == 1 else cost, settings=settings)
    return found.objective if gradient == "envelope" else found.cost


def pot(library: Any, iterations: int, epsilon: float, cost: Tensor) -> Tensor:
    rows, columns = (cost.new_full((k,), 1 / k) for k in cost.shape[1:])
    solve = partial(library.sinkhorn, method="sinkhorn_log", numItermax=iterations, stopThr=0, warn=False)
    return torch.stack([(solve(rows, columns, one, epsilon) * one).sum() for one in cost])


def pot_batch(library: Any, iterations: int, epsilon: float, cost: Tensor) -> Tensor:
    grad = "autodiff" if cost.requires_grad else "detach"
    found = library.solve_batch(cost, epsilon, max_iter=iterations, tol=0, method="log_sinkhorn", grad=grad)
    value: Tensor = found.value_linear
    return value


def geomloss(library: Any, iterations: int, epsilon: float, cost: Tensor) -> Tensor:
    value: Tensor = library.solve_batch(cost, reg=epsilon, max_iter=iterations).value
    return value


def solvers(iterations: int, epsilon: float) -> dict[str, Solver]:
    """Return ours and those of the libraries that are installed."""
    modes: tuple[Gradient, ...] = ("unrolled", "implicit", "envelope")
    found: dict[str, Solver] = {f"labelwise, {mode}": partial(ours, iterations, epsilon, mode) for mode in modes}
    others = {
        "POT, one by one": ("ot", pot),
        "POT, batch": ("ot.batch", pot_batch),
        "geomloss, envelope": ("geomloss.ot", geomloss),
    }
    for name, (module, solver) in others.items():
        try:
            found[name] = partial(solver, import_module(module), iterations, epsilon)
        except ImportError:
            Console().print(f'{name}: left out, there is no module "{module}"')
    return found


def forward(solver: Solver, cost: Tensor) -> Tensor:
    with torch.no_grad():
        return solver(cost.detach())


def backward(solver: Solver, cost: Tensor) -> Tensor:
    return torch.autograd.grad(solver(cost).sum(), cost)[0]


def milliseconds(call: Callable[[], Any], device: str) -> float:
    begun = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - begun)


def measure(known: dict[str, Solver], cost: Tensor, rounds: int) -> dict[str, list[float]]:
    """Return the least milliseconds forwards and with the gradient, of each solver."""
    found = {name: [torch.inf, torch.inf] for name in known}
    cost = cost.clone().requires_grad_()
    for counted in (False, *[True] * rounds):
        for name, solver in known.items():
            for kind, call in enumerate((forward, backward)):
                spent = milliseconds(partial(call, solver, cost), cost.device.type)
                if counted:
                    found[name][kind] = min(found[name][kind], spent)
    return found


def show(found: dict[str, list[float]], values: dict[str, float], title: str) -> None:
    table = Table("solver", "forward, ms", "x ours", "with gradient, ms", "x ours", "value", title=title)
    first = found["labelwise, unrolled"]
    for name, times in found.items():
        cells = [cell for mine, other in zip(first, times, strict=True) for cell in (other, other / mine)]
        table.add_row(name, *(f"{cell:.2f}" for cell in cells), f"{values[name]:.5f}")
    Console(width=110).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of entropic transport, compared with POT and geomloss.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="small sizes, one round")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    known = solvers(options.iterations, 0.01)
    where = platform.machine() + f", {options.threads} CPU thread(s)"
    where = torch.cuda.get_device_name() if options.device == "cuda" else where
    written = {}
    for shape in ((2, 5, 30), (2, 20, 20)) if options.quick else SHAPES:
        cost = costs(shape, options.device)
        found = measure(known, cost, 1 if options.quick else options.rounds)
        values = {name: float(forward(solver, cost).mean()) for name, solver in known.items()}
        title = " x ".join(map(str, shape)) + f", {options.iterations} iterations, {where}, torch {torch.__version__}"
        show(found, values, title)
        written[title] = {
            name: {"forward_ms": times[0], "gradient_ms": times[1], "value": values[name]}
            for name, times in found.items()
        }
    if options.json:
        options.json.write_text(json.dumps(written, indent=2) + "\n")


if __name__ == "__main__":
    main()
