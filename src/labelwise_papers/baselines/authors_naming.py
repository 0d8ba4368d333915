"""Stages II and III of zero_label as their authors' code runs them: iterations of transport that stop early, and where stage III starts.

Their solver stops once a step moves the potentials by less than 0.1 in all, which is long before the plan meets both marginals. Only
the one that was updated last is met, and the code can be read either way. Stage III starts at the centres, in the order in which
these happen to be: one order for all restarts, one for each, or the true one, which is no result but tells what the others lack.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import normalize

from labelwise.core.metrics import confusion_matrix
from labelwise.methods.shared.linear import array
from labelwise.methods.zero_label.assignment import best_matching
from labelwise.methods.zero_label.method import NamedModel, ZeroLabel
from labelwise.methods.zero_label.sinkhorn import SinkhornSettings, Transport
from labelwise.methods.zero_label.transport import HEAD_SCALE, Restarts
from labelwise.support.errors import UsageError
from labelwise.support.settings import setting
from labelwise.train.model import LabelModel, Spec
from labelwise.train.stages import Stage
from labelwise.train.tensors import kmeans, nearest_centres, segment_mean
from labelwise.train.train_data import TrainData

Side = Literal["rows", "columns"]
MOVED = 0.1  # summed change of the potentials that ends the iterations
NOTHING = 1e-8  # added to shares, so that they have logarithms
HUGE = 1e140  # a scaling beyond it, or below its inverse, could overflow in a product of two
LOOK = 10  # iterations between two looks at that
SKIPPED: dict[str, Any] = {"patience": 0, "keeps_best": False}  # of a stage that ends before its first step
# Of a step: the iterations that its slowest restart took, problems that the bound ended, and mass off the marginals, in %.
WORK = ("iterations", "bounded", "off")


def early_sinkhorn(
    cost: Tensor,
    columns: Tensor | None = None,
    *,
    settings: SinkhornSettings,
    last: Side = "columns",
    moved: float = MOVED,
) -> Transport:
    """Return the plan ``[..., n, m]`` after the iterations that the authors' rule allows, with the gradient through them.

    The shares of rows are equal; ``last`` says whose marginal the plan meets. A problem that has settled does not change. What columns
    stand for repeated samples moves as often as these are, so that the rule counts every sample. Iterations multiply by a kernel in
    double precision, and run on logarithms where that would overflow. ``converged`` says where the rule ended them, not their bound.
    """
    n, m = cost.shape[-2:]
    rows = cost.new_full((n,), 1 / n, dtype=torch.float64)
    shares = cost.new_full((m,), 1 / m, dtype=torch.float64) if columns is None else columns.detach().double()
    first = (rows, torch.ones_like(rows)), (shares, torch.ones_like(shares) if columns is None else shares * n)
    (a, weights), (b, _) = first if last == "columns" else first[::-1]
    a, b, rule = a + NOTHING, b + NOTHING, _Rule(settings.iterations, moved / settings.epsilon, weights)
    logits = (cost if last == "columns" else cost.mT).double() / -settings.epsilon
    u = a.log() - logits.logsumexp(-1)
    v = b.log() - (logits + u[..., None]).logsumexp(-2)
    start = logits + u[..., None] + v[..., None, :]
    moving = rule.goes_on(torch.ones_like(u[..., 0], dtype=torch.bool), torch.zeros_like(u), u)
    plan, done, settled = _Scaled.apply(start, a, b, moving, rule)  # type: ignore[no-untyped-call]
    if plan is None:
        plan, done, settled = _logged(start, a, b, moving, rule)
    plan = (plan if last == "columns" else plan.mT).to(cost)
    paid = (plan * cost).sum((-2, -1))
    return Transport(plan, paid, paid.detach(), done, settled)


class _Rule(NamedTuple):
    """When iterations end: the most there are, and the weighted change of the first potentials, over epsilon, below which they settle."""

    most: int
    least: float
    weights: Tensor

    def goes_on(self, moving: Tensor, before: Tensor, after: Tensor) -> Tensor:
        """Return which problems have not settled ``[...]``."""
        return moving & (((after - before).detach().abs() * self.weights).sum(-1) >= self.least)


def _logged(start: Tensor, a: Tensor, b: Tensor, moving: Tensor, rule: _Rule) -> tuple[Tensor, int, Tensor]:
    """Return plan, iterations and what has settled, by logarithms, which never overflow; autograd keeps every step."""
    u, v, done = torch.zeros_like(start[..., 0]), torch.zeros_like(start[..., 0, :]), 1
    while done < rule.most and bool(moving.any()):
        before, here, done = u, moving[..., None], done + 1
        u = torch.where(here, a.log() - (start + v[..., None, :]).logsumexp(-1), u)
        v = torch.where(here, b.log() - (start + u[..., None]).logsumexp(-2), v)
        moving = rule.goes_on(moving, before, u)
    return (start + u[..., None] + v[..., None, :]).exp(), done, ~moving


class _Scaled(Function):
    """The same by products with a kernel, and its gradient by hand: of an iteration only scalings are kept, no matrix.

    Returns None for the plan where a scaling leaves what products can hold.
    """

    @staticmethod
    def forward(
        ctx: Any, start: Tensor, a: Tensor, b: Tensor, moving: Tensor, rule: _Rule
    ) -> tuple[Tensor | None, int, Tensor]:
        kernel, x, y = start.exp(), torch.ones_like(start[..., 0]), torch.ones_like(start[..., 0, :])
        xs, ys, active = [x], [y], [moving[..., None]]
        while len(xs) < rule.most and bool(active[-1].any()):
            x = torch.where(active[-1], a / _times(kernel, y), x)
            y = torch.where(active[-1], b / _times(kernel.mT, x), y)
            if len(xs) % LOOK == 0 and not _sound(x, y):
                break
            moving = rule.goes_on(moving, xs[-1].log(), x.log())
            xs.append(x)
            ys.append(y)
            active.append(moving[..., None])
        if not _sound(x, y):
            return None, 0, moving
        plan = kernel * x[..., None] * y[..., None, :]
        ctx.save_for_backward(kernel, plan, a, b, torch.stack(xs), torch.stack(ys), torch.stack(active))
        return plan, len(xs), ~moving

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor, None, None, None, None]:
        kernel, plan, a, b, xs, ys, active = ctx.saved_tensors
        grad = grad * plan
        of_u, of_v = grad.sum(-1), grad.sum(-2)
        pairs = [
            (torch.zeros_like(of_u), torch.zeros_like(of_v))
        ]  # their outer products times the kernel are taken off
        for place in range(len(xs) - 1, 0, -1):
            x, y, before, here = xs[place], ys[place], ys[place - 1], active[place - 1]
            column = torch.where(here, of_v * y / b, 0)
            of_u = of_u - x * _times(kernel, column)
            row = torch.where(here, of_u * x / a, 0)
            of_v = torch.where(here, -before * _times(kernel.mT, row), of_v)
            of_u = torch.where(here, 0, of_u)
            pairs += [(x, column), (row, before)]
        rows, columns = (torch.stack(side, -1) for side in zip(*pairs, strict=True))
        return grad - kernel * (rows @ columns.mT), None, None, None, None


def _times(kernel: Tensor, y: Tensor) -> Tensor:
    """Return kernel times y, ``[..., n]``."""
    return (kernel @ y[..., None])[..., 0]


def _sound(*scalings: Tensor) -> bool:
    """Return whether products of these can neither overflow nor vanish."""
    return all(bool(((each > 1 / HUGE) & (each < HUGE)).all()) for each in scalings)


@dataclass(frozen=True, kw_only=True)
class AuthorsZeroLabel(ZeroLabel):
    """zero_label with the authors' iterations of transport, from one order of centres, many, or the true one."""

    name: ClassVar[str] = "zero_label_authors"

    last: Side = setting(
        "columns", "Which marginal of the plan of stage III is met: that of images (rows) or of samples."
    )
    order: Literal["one", "many", "true"] = setting(
        "one", "The order of centres that stage III starts from; true reads labels, to tell what names need."
    )
    clusters: Literal["found", "kmeans", "labels"] = setting(
        "found", "Clusters of stage II, of k-means, or the true labels, which reads labels likewise."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.naming != "transport" or not self.clustering.shared:
            raise UsageError(
                "The authors name by transport, from one clustering: naming=transport, clustering.shared=true."
            )

    def build(self, spec: Spec) -> NamedModel:
        """Return the untrained model."""
        model = super().build(spec)
        assert model.restarts is not None
        model.restarts.register_buffer("work", torch.zeros(2, len(WORK) + 1, dtype=torch.float64))
        model.restarts.solve = _Solver(model.restarts, 0)
        return model

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Yield stages II and III; where names start is settled between them.

        Clusters that no row of a table needs are not trained, and those of the same images from the same start are trained once.
        """
        assert isinstance(model, NamedModel)
        assert model.restarts is not None
        restarts, work = model.restarts, model.restarts.get_buffer("work")
        for stage in super().stages(model, data):
            embeddings = stage.batches.split.images  # type: ignore[attr-defined]
            stage = replace(stage, recordable=False)
            if stage.name == "zero_label names":
                _start(restarts, self, embeddings, data.train.targets)
                restarts.solve = _Solver(restarts, 1, self.last)
                yield stage
            elif self.clusters != "found" or not (self.matching.guided or self.matching.initial == "clusters"):
                yield replace(stage, **SKIPPED)
            else:
                trained = _trained(_digest(embeddings, restarts.centres, repr(self.clustering)))
                for own, known in zip((restarts.best_centres, work), trained, strict=False):
                    own.copy_(known)
                yield replace(stage, **SKIPPED) if trained else stage
                trained[:] = restarts.best_centres.clone(), work.clone()
        model.report["work"] = {
            f"{what}_{stage}": total / max(1, steps)
            for stage, (steps, *totals) in zip(("clusters", "names"), work.tolist(), strict=True)
            for what, total in zip(WORK, totals, strict=True)
        }


@dataclass(frozen=True, eq=False)
class _Solver:
    """The authors' iterations, which add to the row of a stage what they took and what they leave."""

    restarts: Restarts
    row: int
    last: Side = "columns"

    def __call__(self, cost: Tensor, columns: Tensor | None = None, *, settings: SinkhornSettings) -> Transport:
        """Return the plan, see ``early_sinkhorn``."""
        transport = early_sinkhorn(cost, columns, settings=settings, last=self.last)
        with torch.no_grad():
            shares = 1 / cost.shape[-1] if columns is None else columns
            rows = (transport.plan.sum(-1) - 1 / cost.shape[-2]).abs().sum(-1)
            off = rows + (transport.plan.sum(-2) - shares).abs().sum(-1)
            bounded = (~transport.converged).double().mean()
            one, taken = torch.ones_like(bounded), torch.full_like(bounded, transport.iterations)
            self.restarts.get_buffer("work")[self.row].add_(
                torch.stack([one, taken, 100 * bounded, 50 * off.double().mean()])
            )
        return transport


def _digest(embeddings: Tensor, centres: Tensor, settings: str) -> str:
    """Return what names clusters: images, start and settings."""
    parts = (array(embeddings).tobytes(), array(centres).tobytes(), settings.encode())
    return sha256(b"".join(sha256(part).digest() for part in parts)).hexdigest()


@lru_cache(maxsize=2)
def _trained(_: str) -> list[Tensor]:
    """Return where a process keeps the clusters of a digest, and what they took: at first nothing."""
    return []


@torch.no_grad()
def _start(restarts: Restarts, method: AuthorsZeroLabel, embeddings: Tensor, targets: Tensor) -> None:
    """Put the centres where stage III starts."""
    r, k, _ = restarts.heads.shape
    reads = "labels" if method.clusters == "labels" else "true" if method.order == "true" else ""
    if reads and bool((targets < 0).any()):
        raise UsageError(f'"{reads}" reads labels, which were taken away. Measure it by "named_with_labels".')
    if method.clusters == "labels":
        restarts.best_centres.copy_(normalize(segment_mean(embeddings, targets.to(embeddings.device), k), dim=1))
    if method.clusters == "kmeans":
        found = kmeans(normalize(embeddings, dim=1), k, torch.Generator().manual_seed(0))
        restarts.best_centres.copy_(normalize(found.centres, dim=1))
    if method.matching.initial != "clusters":
        return
    orders = torch.stack([torch.randperm(k) if method.order == "many" else torch.arange(k) for _ in range(r)])
    if method.order == "true" and method.clusters != "labels":
        members = array(nearest_centres(embeddings, restarts.best_centres[0])[0])
        table = confusion_matrix(members, array(targets), k)
        orders[:] = torch.from_numpy(best_matching(table)).long()
    centres = restarts.best_centres[0][orders.to(embeddings.device)]
    restarts.heads[..., : centres.shape[-1]] = centres / HEAD_SCALE
