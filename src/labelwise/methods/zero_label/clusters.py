"""Clusters of image embeddings: main directions, many starts, smoothing over neighbours, linear scores of clusters."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.methods.shared.centring import Centring, array
from labelwise.methods.shared.head import Centre
from labelwise.methods.zero_label.sinkhorn import SinkhornSettings, sinkhorn
from labelwise.train.tensors import Clusters, kmeans, nearest_centres, segment_mean

CHUNK = 2**24  # numbers of a block of distances
BALANCING_STEPS = 30
SHRINKAGE = 0.2


class PCA(Centring):
    """Centred rows of unit length, projected on their main directions.

    Rows get unit length first, too. Until it is fitted to rows of more numbers than directions it is a ``Centring``.
    """

    directions: Tensor  # orthonormal columns [size, most]; zeros if there are none to choose

    def __init__(self, size: int, most: int) -> None:
        super().__init__(size)
        self.most, self.chosen = most, False
        self.register_buffer("directions", torch.zeros(size, most if most < size else 0))
        self.register_load_state_dict_post_hook(PCA._loaded)  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def fit(self, rows: Tensor) -> None:
        """Fit the mean and the main directions to rows ``[n, size]``."""
        self.chosen = self.directions.numel() > 0
        unit = normalize(rows.double(), dim=1)
        super().fit(unit if self.chosen else rows)
        if self.chosen:
            residuals = unit - unit.mean(0)
            self.directions.copy_(torch.linalg.eigh(residuals.T @ residuals).eigenvectors[:, -self.most :])

    def forward(self, rows: Tensor) -> Tensor:
        """Return centred rows of unit length ``[n, size]``."""
        if not self.chosen:
            return super().forward(rows)
        main = self.directions.to(rows.dtype)
        return normalize((normalize(rows, dim=1) - self.mean.to(rows.dtype)) @ main @ main.T, dim=1)

    def centre(self) -> Centre:
        """Return the NumPy equivalent."""
        return replace(super().centre(), directions=array(self.directions)) if self.chosen else super().centre()

    def _loaded(self, _: object) -> None:
        self.chosen = bool(self.directions.any())


def neighbour_means(embeddings: Tensor, count: int) -> Tensor:
    """Return the mean of each embedding and its nearest ones, ``count`` in all, of unit length ``[n, d]``.

    This moves embeddings between clusters apart.
    """
    neighbours = min(count, len(embeddings))
    if neighbours <= 1:
        return embeddings
    parts = torch.split(embeddings, max(1, CHUNK // len(embeddings)))
    return normalize(
        torch.cat([embeddings[(part @ embeddings.T).topk(neighbours).indices].mean(1) for part in parts]), dim=1
    )


def discriminant(embeddings: Tensor, members: Tensor, k: int) -> Tensor:
    """Return weights and bias ``[k, d + 1]`` of linear scores that tell clusters apart (Fisher's linear discriminant).

    A share ``SHRINKAGE`` of the covariance inside clusters is replaced by its mean in all directions.
    """
    x = embeddings.double()
    means = segment_mean(x, members, k)
    inside = x - means[members]
    covariance = inside.T @ inside / len(x)
    level = (covariance.trace() / len(covariance)).clamp_min(1e-12)
    covariance = (1 - SHRINKAGE) * covariance + SHRINKAGE * level * torch.eye(len(covariance)).to(covariance)
    weights = torch.linalg.solve(covariance, means.T).T
    bias = -0.5 * (weights * means).sum(1, keepdim=True)
    return torch.cat([weights, bias], 1).to(embeddings)


def cluster_starts(embeddings: Tensor, k: int, starts: int, seed: int, sizes: Tensor | None) -> list[Clusters]:
    """Return k clusters of embeddings ``[n, d]`` from several starts, lowest inertia first.

    ``sizes [k]`` are the shares of images that clusters should have, in any order; None leaves them free.
    """
    generator = torch.Generator().manual_seed(seed)
    clusterings = [kmeans(embeddings, k, generator, starts=1) for _ in range(starts)]
    if sizes is not None:
        clusterings = [
            balance(embeddings, clustering, sizes)
            for clustering in sorted(clusterings, key=lambda clustering: clustering.inertia)
        ]
    return sorted(clusterings, key=lambda clustering: clustering.inertia)


def balance(embeddings: Tensor, start: Clusters, sizes: Tensor) -> Clusters:
    """Return clusters of these sizes (shares ``[k]``, the largest for the largest cluster), from those of a start.

    Embeddings are shared out by entropic transport, and centres moved to the mean of what they receive, in turns.
    """
    centres = start.centres
    order = torch.bincount(start.members, minlength=len(sizes)).argsort(descending=True)
    target_sizes = torch.empty_like(sizes)
    target_sizes[order.cpu()] = sizes.sort(descending=True).values
    settings = SinkhornSettings(epsilon=0.01, iterations=100, tolerance=1e-5, gradient="detached")
    for _ in range(BALANCING_STEPS):
        cost = torch.cdist(embeddings, centres).square()
        plan = sinkhorn(cost, columns=target_sizes.to(embeddings), settings=settings).plan
        before, centres = centres, plan.T @ embeddings / plan.sum(0)[:, None].clamp_min(1e-12)
        if float((centres - before).abs().max()) < 1e-4:
            break
    members, _ = nearest_centres(embeddings, centres)
    spent = (plan * torch.cdist(embeddings, centres).square()).sum() / plan.sum()
    return Clusters(centres, members, float(spent))
