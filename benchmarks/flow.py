"""Milliseconds of our flow and of the same flow built of FrEIA's blocks (and of zuko's), side by side in one run.

    python benchmarks/flow.py [--device cpu|cuda] [--threads N] [--rounds N] [--quick] [--json FILE]

A training step is the forward pass, the negative log-likelihood, its gradient and a step of Adam; the inverse runs without
gradients. Ours and FrEIA's have the same permutations, networks and number of weights. zuko's RealNVP transforms only one half
in a coupling, so it gets twice as many couplings; its inverse is drawn from the same weights. All take turns in every round,
after a warm-up, and the median counts.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from labelwise.methods.izf.flow import Flow, FlowSettings
from labelwise.methods.izf.head import CLAMP

Case = tuple[Callable[[], Any], Callable[[], Any]]
Pass = Callable[[Tensor], tuple[Tensor, Tensor]]


def ours(size: int, settings: FlowSettings, v: Tensor) -> Case:
    flow = Flow(size, settings).to(v.device)
    return steps(flow, flow, flow.inverse, v)


def freia(size: int, settings: FlowSettings, v: Tensor) -> Case:
    try:
        framework, modules = import_module("FrEIA.framework"), import_module("FrEIA.modules")
    except ImportError as error:
        raise SystemExit("This benchmark compares with FrEIA, which is missing: pip install FrEIA") from error

    def network(given: int, made: int) -> nn.Module:
        return nn.Sequential(nn.Linear(given, settings.hidden), nn.LeakyReLU(), nn.Linear(settings.hidden, made))

    flow = framework.SequenceINN(size)
    for _ in range(settings.blocks):
        flow.append(modules.PermuteRandom)
        flow.append(modules.GLOWCouplingBlock, subnet_constructor=network, clamp=CLAMP)
    start(flow).to(v.device)
    return steps(flow, flow, lambda z: flow(z, rev=True, jac=False)[0], v)


def zuko(size: int, settings: FlowSettings, v: Tensor) -> Case | None:
    try:
        library = import_module("zuko")
    except ImportError:
        return None
    made = library.flows.RealNVP(
        size, transforms=2 * settings.blocks, randmask=True, hidden_features=(settings.hidden,), activation=nn.LeakyReLU
    )
    flow = start(made).to(v.device)

    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        z, log_det = flow().transform.call_and_ladj(x)
        return z, log_det

    return steps(flow, forward, lambda z: flow().transform.inv(z), v)


def start(flow: nn.Module) -> nn.Module:
    for parameter in flow.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=0.01)
    return flow


def steps(flow: nn.Module, forward: Pass, inverse: Callable[[Tensor], Tensor], v: Tensor) -> Case:
    """Return a training step and an inverse without gradients."""
    parameters = [p for p in flow.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=1e-6, fused=True)

    def train() -> None:
        z, log_det = forward(v)
        loss = ((z * z).sum(1) / 2 - log_det).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def generate() -> Tensor:
        with torch.no_grad():
            return inverse(v)

    return train, generate


def milliseconds(call: Callable[[], Any], times: int, device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(times):
        call()
    if device == "cuda":
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - begun) / times


def measure(cases: dict[str, Case], rounds: int, times: int, device: str) -> dict[str, list[float]]:
    """Return the median milliseconds of a training step and of an inverse, of each case."""
    found: dict[str, list[list[float]]] = {name: [[], []] for name in cases}
    for counted in (False, False, *[True] * rounds):
        for name, calls in cases.items():
            for kind, call in enumerate(calls):
                spent = milliseconds(call, times, device)
                if counted:
                    found[name][kind].append(spent)
    return {name: [statistics.median(values) for values in kinds] for name, kinds in found.items()}


def show(found: dict[str, list[float]], title: str) -> None:
    table = Table("flow", "training step, ms", "x ours", "inverse, ms", "x ours", title=title)
    for name, times in found.items():
        cells = [cell for mine, other in zip(found["labelwise"], times, strict=True) for cell in (other, other / mine)]
        table.add_row(name, *(f"{cell:.2f}" for cell in cells))
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the flow, compared with FrEIA.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="small sizes, three rounds")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    size, hidden, n = (64, 32, 32) if options.quick else (2048, 1024, 256)
    settings = FlowSettings(hidden=hidden)
    v = torch.rand(n, size, device=options.device)
    made = {"labelwise": ours, "FrEIA": freia, "zuko": zuko}
    cases = {name: case for name, build in made.items() if (case := build(size, settings, v)) is not None}
    times = 20 if options.device == "cuda" else 1
    found = measure(cases, 3 if options.quick else options.rounds, times, options.device)
    where = platform.machine() + f", {options.threads} CPU thread(s)"
    where = torch.cuda.get_device_name() if options.device == "cuda" else where
    title = f"{settings.blocks} blocks, size {size}, hidden {hidden}, batch {n}, {where}, torch {torch.__version__}"
    show(found, title)
    if options.json:
        rows = {name: dict(zip(("training_ms", "inverse_ms"), times, strict=True)) for name, times in found.items()}
        options.json.write_text(json.dumps({"about": title, **rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
