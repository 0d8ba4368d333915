"""Naming by transport, stages II and III of zero_label (Babu Sam et al., 2022), all restarts trained together.

Stage II brings k centres to the image embeddings by entropic transport. Stage III trains a linear layer so that its scores follow a
prior over labels, which is transport again; images of one cluster move as one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, pad

from labelwise.core.arrays import Array
from labelwise.methods.zero_label.label_prior import cost_weights, prior_vectors, rank_labels
from labelwise.methods.zero_label.sinkhorn import Gradient, SinkhornSettings, Transport, sinkhorn
from labelwise.support.errors import UsageError
from labelwise.support.settings import setting
from labelwise.train.batches import Batch, ShuffledBatches
from labelwise.train.distribution import whole_batch
from labelwise.train.optimizers import Optimizer, Schedule
from labelwise.train.stages import Loss, Stage
from labelwise.train.tensors import nearest_centres
from labelwise.train.train_data import TensorSplit

SHUFFLED = 3  # entries of a sample of the prior
MOST_LOSS = 1e30  # of a restart that has none yet
HEAD_SCALE = 10.0  # the linear layer starts at the centres divided by it


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelPrior:
    """The prior over scores. A sample is the vector of a label with its three most dissimilar entries shuffled.

    Cost weights follow the ranks of a sample's entries, so they are shuffled alike.
    So there are at most 6 k different samples, and a batch of them is how often each was drawn: transport to repeated samples
    is the same as transport to each once with its count as its mass.
    """

    atoms: Tensor  # the different samples [a, k]
    weights: Tensor  # the cost weights of each [a, k]
    chances: Tensor  # how probable each is [a]

    @classmethod
    def of(cls, similarity: Array, shares: Array | None = None, *, second: float = 0.2) -> "LabelPrior":
        """Return the prior of labels with this similarity ``[k, k]`` and these shares ``[k]``, or equal ones."""
        k = len(similarity)
        if k < 2:
            raise UsageError(f"A label prior needs at least two labels; given {k}.")
        far = torch.from_numpy(rank_labels(similarity)[:, max(1, k - SHUFFLED) :])
        orders = torch.tensor(list(permutations(range(far.shape[1]))))

        def shuffled(rows: Array) -> Tensor:
            values = torch.from_numpy(rows)
            every = values[:, None].repeat(1, len(orders), 1)
            return every.scatter_(
                2, far[:, None].expand(-1, len(orders), -1), values.gather(1, far)[:, orders]
            ).flatten(0, 1)

        alpha = torch.full((k,), 1 / k, dtype=torch.float64) if shares is None else torch.as_tensor(shares).double()
        return cls(
            atoms=shuffled(prior_vectors(similarity, second=second)),
            weights=shuffled(cost_weights(similarity)),
            chances=(alpha / len(orders)).repeat_interleave(len(orders)),
        )

    def draw(self, count: int, batches: int, generator: torch.Generator) -> Tensor:
        """Return what share of a batch of samples is each atom ``[batches, a]``, for batches of ``count`` samples."""
        chances = self.chances.to(generator.device)
        picks = torch.multinomial(chances.expand(batches, -1), count, replacement=True, generator=generator)
        ones = torch.full_like(picks, 1, dtype=torch.float64) / count
        return torch.zeros(batches, len(chances), dtype=torch.float64, device=picks.device).scatter_add_(1, picks, ones)

    def costs(self, scores: Tensor) -> Tensor:
        """Return the cost of sending each score vector to each atom ``[..., n, a]``, from scores ``[..., n, k]`` (eq. 3)."""
        weights, atoms = self.weights.to(scores), self.atoms.to(scores)
        cross = (weights * atoms).T
        return (scores.square() @ weights.T - 2 * (scores @ cross) + (weights * atoms.square()).sum(1)).clamp_min(0)


@dataclass(frozen=True, kw_only=True)
class ClusteringSettings:
    """Stage II of transport naming: centres that entropic transport brings to the embeddings."""

    steps: int = setting(5000, "Steps of gradient descent.")
    batch: int = setting(1000, "Images of a step.")
    lr: float = setting(0.01, "Learning rate of Adam; 0.1 in the paper, 0.01 in the authors' code.")
    epsilon: float = setting(0.01, "Regularisation of the transport.")
    iterations: int = setting(1000, "Most iterations of Sinkhorn's algorithm.")
    tolerance: float = setting(1e-4, "How far marginals of the plan may be off.")
    gradient: Gradient = setting(
        "implicit", "How the plan is differentiated; unrolled, as in the paper, through the iterations."
    )
    shared: bool = setting(False, "One clustering for all restarts, which then differ in stage III alone.")


@dataclass(frozen=True, kw_only=True)
class Matching:
    """Stage III of transport naming: a linear layer whose scores follow the prior."""

    steps: int = setting(10_000, "Steps of gradient descent.")
    batch: int = setting(500, "Images of a step, and samples of the prior.")
    lr: float = setting(1e-5, "Learning rate of SGD with momentum 0.9 and weight decay 5e-4.")
    clip: float = setting(100.0, "Largest gradient norm of a restart.")
    epsilon: float = setting(0.01, "Regularisation of the transport (the paper's beta).")
    iterations: int = setting(700, "Most iterations of Sinkhorn's algorithm.")
    tolerance: float = setting(1e-5, "How far marginals of the plan may be off.")
    gradient: Gradient = setting("implicit", "As in clustering; envelope does not suit a guided loss.")
    guided: bool = setting(True, "Images of a cluster move as one (ablations B and C: false).")
    initial: Literal["clusters", "random"] = setting(
        "clusters", "Start at the centres, or at random (ablations C and D)."
    )
    bias: bool = setting(False, "Whether the layer has a bias, which starts at random.")


class Restarts(nn.Module):
    """All restarts of transport naming: the trained parameters, and the best of each restart so far.

    Centres are ``[r, k, d]``, of one restart where they are shared; layers ``[r, k, d]``, or ``[r, k, d + 1]`` with a bias.
    """

    best_centres: Tensor
    best_heads: Tensor
    centre_losses: Tensor
    head_losses: Tensor
    solve: Callable[..., Transport] = staticmethod(sinkhorn)  # what solves the problems of transport

    def __init__(
        self, r: int, k: int, d: int, clustering: ClusteringSettings | None = None, matching: Matching | None = None
    ) -> None:
        super().__init__()
        own = 1 if clustering is not None and clustering.shared else r
        width = d + (matching is not None and matching.bias)
        self.centres = nn.Parameter(torch.randn(own, k, d))
        self.heads = nn.Parameter(torch.rand(r, k, width).mul_(2).sub_(1).div_(d**0.5))
        self.register_buffer("best_centres", torch.zeros(own, k, d))
        self.register_buffer("best_heads", torch.zeros(r, k, width))
        self.register_buffer("centre_losses", torch.full((own,), MOST_LOSS))
        self.register_buffer("head_losses", torch.full((r,), MOST_LOSS))

    def rows(self) -> Tensor:
        """Return the best layer of each restart, weights and then a bias ``[r, k, d + 1]``."""
        missing = 1 + self.centres.shape[-1] - self.best_heads.shape[-1]
        return pad(self.best_heads, (0, missing))

    @torch.no_grad()
    def keep(self, part: Literal["centre", "head"], losses: Tensor) -> None:
        """Store the parameters of each restart with the lowest loss so far, given the current losses ``[r]``."""
        current, best = (self.centres, self.best_centres) if part == "centre" else (self.heads, self.best_heads)
        lowest = self.centre_losses if part == "centre" else self.head_losses
        better = losses < lowest
        best.copy_(torch.where(better[:, None, None], current, best))
        lowest.copy_(torch.where(better, losses, lowest))


def transport_stages(
    restarts: Restarts, prior: LabelPrior, split: TensorSplit, clustering: ClusteringSettings, matching: Matching
) -> Iterator[Stage]:
    """Yield stages II and III; images of the split are embeddings of unit length ``[n, d]``, its targets are not read."""

    def clusters(batch: Batch) -> dict[str, Tensor]:
        return {"transport": clustering_losses(restarts, whole_batch(batch.images, batch)[0], clustering).sum()}

    def names(batch: Batch) -> dict[str, Tensor]:
        return {"transport": matching_losses(restarts, batch, prior, matching).sum()}

    adam = Optimizer(name="adam", lr=clustering.lr, weight_decay=0.0)
    yield _stage("zero_label clusters", clusters, restarts.centres, (split, clustering), adam)
    if matching.initial == "clusters":
        with torch.no_grad():
            restarts.heads[..., : split.shape[0]] = restarts.best_centres / HEAD_SCALE
    sgd = Optimizer(name="sgd", lr=matching.lr, momentum=0.9, nesterov=False, weight_decay=5e-4)
    stage = _stage("zero_label names", names, restarts.heads, (split, matching), sgd)
    yield replace(stage, clip=lambda heads: clip_each(heads, matching.clip))


def _stage(
    name: str,
    loss: Loss,
    trained: nn.Parameter,
    work: tuple[TensorSplit, ClusteringSettings | Matching],
    optimizer: Optimizer,
) -> Stage:
    """Return a stage at a constant rate, its steps rounded up to whole epochs."""
    split, settings = work
    batches = ShuffledBatches(split=split, size=min(settings.batch, len(split)))
    epochs, schedule = -(-settings.steps // len(batches)), Schedule(name="constant")
    return Stage(
        name=name,
        loss=loss,
        parameters=(trained,),
        batches=batches,
        epochs=epochs,
        optimizer=optimizer,
        schedule=schedule,
    )


def clustering_losses(restarts: Restarts, embeddings: Tensor, settings: ClusteringSettings) -> Tensor:
    """Return the loss of stage II of each restart ``[r]`` on a batch of embeddings ``[n, d]``, and store the best centres."""
    with torch.autocast(embeddings.device.type, enabled=False):
        centres = restarts.centres
        near = 2 * centres @ embeddings.T
        cost = (centres.square().sum(-1)[..., None] + embeddings.square().sum(-1) - near).clamp_min(0)
        transport = restarts.solve(cost, settings=_solver(settings))
        losses = transport.objective if settings.gradient == "envelope" else transport.cost
    restarts.keep("centre", losses.detach())
    return losses


def matching_losses(restarts: Restarts, batch: Batch, prior: LabelPrior, settings: Matching) -> Tensor:
    """Return the loss of stage III of each restart ``[r]``, and store the best heads (eq. 5, or 4 where not guided)."""
    embeddings, _ = whole_batch(batch.images, batch)
    with torch.autocast(embeddings.device.type, enabled=False):
        heads = restarts.heads
        costs = prior.costs(pad(embeddings, (0, heads.shape[-1] - embeddings.shape[-1]), value=1.0) @ heads.mT)
        shares = prior.draw(batch.rng.total, len(heads), batch.rng.generator).to(costs)
        transport = restarts.solve(costs, columns=shares, settings=_solver(settings))
        if not settings.guided:
            losses = transport.objective if settings.gradient == "envelope" else transport.cost
        else:
            members, _ = nearest_centres(embeddings, restarts.best_centres)
            losses = guided_cost(transport.plan, costs, one_hot(members, heads.shape[1]).to(costs))
    restarts.keep("head", losses.detach())
    return losses


def guided_cost(plan: Tensor, costs: Tensor, inside: Tensor) -> Tensor:
    """Return <A A' R, M> of each restart ``[...]`` from R, M ``[..., n, a]`` and A ``[..., n, k]``, which is <A'R, A'M>."""
    return ((inside.mT @ plan) * (inside.mT @ costs)).sum((-2, -1))


@torch.no_grad()
def clip_each(parameters: Sequence[nn.Parameter], most: float) -> None:
    """Make the gradient ``[r, k, d]`` of each restart no longer than ``most``."""
    for gradient in (parameter.grad for parameter in parameters if parameter.grad is not None):
        length = gradient.flatten(1).square().sum(1).sqrt()
        gradient.mul_((most / (length + 1e-6)).clamp_max(1)[:, None, None])


def _solver(settings: ClusteringSettings | Matching) -> SinkhornSettings:
    own = {name: getattr(settings, name) for name in ("epsilon", "iterations", "tolerance", "gradient")}
    return SinkhornSettings(**own)
