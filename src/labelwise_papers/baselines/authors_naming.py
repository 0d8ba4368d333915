"""Stages II and III of zero_label as their authors' code runs them: iterations of transport that stop early, and where stage III starts.

Their solver stops once a step moves the potentials by less than 0.1 in all, which is long before the plan meets both marginals. Only
the one that was updated last is met, and the code can be read either way. Stage III starts at the centres, in the order in which
these happen to be: one order for all restarts, one for each, or the true one, which is no result but tells what the others lack.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.core.metrics import confusion_matrix
from labelwise.methods.shared.linear import array
from labelwise.methods.zero_label.assignment import best_matching
from labelwise.methods.zero_label.method import NamedModel, ZeroLabel
from labelwise.methods.zero_label.sinkhorn import SinkhornSettings, Transport
from labelwise.methods.zero_label.transport import HEAD_SCALE, Restarts
from labelwise.support.errors import UsageError
from labelwise.support.settings import setting
from labelwise.train.data import TrainData
from labelwise.train.model import LabelModel, Spec
from labelwise.train.stages import Stage
from labelwise.train.tensors import nearest_centres, segment_mean

Side = Literal["rows", "columns"]
MOVED = 0.1  # summed change of the potentials that ends the iterations
NOTHING = 1e-8  # added to shares, so that they have logarithms


def early_sinkhorn(
    cost: Tensor, columns: Tensor | None = None, *, settings: SinkhornSettings, last: Side = "columns"
) -> Transport:
    """Return the plan ``[..., n, m]`` after the iterations that the authors' rule allows, with the gradient through them.

    The shares of rows are equal; ``last`` says whose marginal the plan meets. A problem that has settled does not change. What columns
    stand for repeated samples moves as often as these are, so that the rule counts every sample.
    """
    n, m = cost.shape[-2:]
    a = cost.new_full((n,), 1 / n)
    b = cost.new_full((m,), 1 / m) if columns is None else columns.detach().to(cost)
    shares, times = ((a, b), (1.0, b * n if columns is not None else 1.0))
    logits, logs = cost / -settings.epsilon, [(share + NOTHING).log() for share in shares]
    u, v = cost.new_zeros(cost.shape[:-1]), cost.new_zeros(*cost.shape[:-2], m)  # potentials over epsilon
    moving, done = torch.ones(cost.shape[:-2], dtype=torch.bool, device=cost.device), 0
    for done in range(1, settings.iterations + 1):  # noqa: B007
        before, here = v if last == "rows" else u, moving[..., None]
        for side in ("columns", "rows") if last == "rows" else ("rows", "columns"):
            if side == "rows":
                u = torch.where(here, logs[0] - (logits + v[..., None, :]).logsumexp(-1), u)
            else:
                v = torch.where(here, logs[1] - (logits + u[..., None]).logsumexp(-2), v)
        after, weight = (v, times[1]) if last == "rows" else (u, times[0])
        moved = ((after - before).detach().abs() * weight).sum(-1) * settings.epsilon
        moving = moving & (moved >= MOVED)
        if not bool(moving.any()):
            break
    plan = (logits + u[..., None] + v[..., None, :]).exp()
    paid = (plan * cost).sum((-2, -1))
    return Transport(plan, paid, paid.detach(), done, ~moving)


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
    clusters: Literal["found", "labels"] = setting("found", "Clusters of stage II, or the true labels, likewise.")

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
        model.restarts.solve = early_sinkhorn
        return model

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Yield stages II and III; where names start is settled between them."""
        assert isinstance(model, NamedModel)
        assert model.restarts is not None
        for stage in super().stages(model, data):
            if stage.name == "zero_label names":
                _start(model.restarts, self, stage.batches.split.images, data.train.targets)  # type: ignore[attr-defined]
            yield replace(stage, recordable=False)


@torch.no_grad()
def _start(restarts: Restarts, method: AuthorsZeroLabel, embeddings: Tensor, targets: Tensor) -> None:
    """Put the centres where stage III starts, and choose its solver."""
    restarts.solve = partial(early_sinkhorn, last=method.last)
    r, k, _ = restarts.heads.shape
    reads = "labels" if method.clusters == "labels" else "true" if method.order == "true" else ""
    if reads and bool((targets < 0).any()):
        raise UsageError(f'"{reads}" reads labels, which were taken away. Measure it by "named_with_labels".')
    if method.clusters == "labels":
        restarts.best_centres.copy_(normalize(segment_mean(embeddings, targets.to(embeddings.device), k), dim=1))
    if method.matching.initial != "clusters":
        return
    orders = torch.stack([torch.randperm(k) if method.order == "many" else torch.arange(k) for _ in range(r)])
    if method.order == "true" and method.clusters == "found":
        members = array(nearest_centres(embeddings, restarts.best_centres[0])[0])
        table = confusion_matrix(members, array(targets), k)
        orders[:] = torch.from_numpy(best_matching(table)).long()
    centres = restarts.best_centres[0][orders.to(embeddings.device)]
    restarts.heads[..., : centres.shape[-1]] = centres / HEAD_SCALE
