"""Does the objective of zero_label's stage III know the names? Its lowest loss for any naming of clusters, in closed form.

Once it is fixed which cluster goes to which label, every image costs the weighted squared distance of its scores to the prior vectors
of that label, and scores are linear in the code: the best layer is a weighted least squares per score. So namings can be compared by
the lowest loss that each allows, and searched for the lowest of all, without a step of training.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from labelwise.methods.zero_label.assignment import random_matchings
from labelwise.methods.zero_label.transport import LabelPrior
from labelwise.support.rows import Draws

RANDOM = 50  # random namings
RIDGE = 1e-9  # of the mean diagonal, for codes that do not fill their space


@dataclass(frozen=True, eq=False, kw_only=True)
class NamingLoss:
    """The lowest mean cost of an image for any naming: loss of eq. 5 with the plan that sends each cluster to its label."""

    moments: Tensor  # mean of code times code over all images, the part of each cluster [k, d, d]
    sums: Tensor  # mean code over all images, the part of each cluster [k, d]
    sizes: Tensor  # share of images in each cluster [k]
    weights: Tensor  # mean over samples of the cost weight of each score under each label [k, k]
    means: Tensor  # mean over samples of weight times prior vector of each label [k, k]
    squares: Tensor  # mean over samples of weight times its square [k, k]

    @classmethod
    def of(cls, codes: Tensor, members: Tensor, prior: LabelPrior) -> "NamingLoss":
        """Return the loss for codes ``[n, d]`` in clusters ``[n]`` and a prior over k labels."""
        k = prior.atoms.shape[1]
        rows, inside = codes.double(), one_hot(members, k).double()
        own = one_hot(prior.atoms.argmax(1), k).double() * prior.chances[:, None]
        own = (own / own.sum(0)).T  # how probable each sample is under each label [k, a]
        parts = [rows[members == cluster] for cluster in range(k)]
        return cls(
            moments=torch.stack([part.T @ part for part in parts]) / len(rows),
            sums=inside.T @ rows / len(rows),
            sizes=inside.mean(0),
            weights=own @ prior.weights,
            means=own @ (prior.weights * prior.atoms),
            squares=own @ (prior.weights * prior.atoms.square()),
        )

    def __call__(self, namings: Tensor) -> Tensor:
        """Return the lowest loss ``[m]`` under each naming ``[m, k]``, the label of every cluster."""
        weights = self.weights[namings].mT  # [m, score, cluster]
        targets = self.means[namings].mT
        matrix = torch.einsum("mlc,cde->mlde", weights, self.moments)
        level = matrix.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None] * RIDGE
        right = targets @ self.sums
        factor = torch.linalg.cholesky(matrix + level * torch.eye(matrix.shape[-1], dtype=matrix.dtype))
        heads = torch.cholesky_solve(right[..., None], factor)[..., 0]
        constant = (self.sizes[:, None] * self.squares[namings]).sum((1, 2))
        return constant - (right * heads).sum((1, 2))


def lowest_namings(loss: NamingLoss, searches: int, draws: Draws) -> tuple[Tensor, Tensor]:
    """Return namings ``[searches, k]`` and their losses, each where no exchange of two names lowers the loss, from random starts."""
    k = len(loss.sums)
    pairs = torch.combinations(torch.arange(k), 2)
    exchanges = torch.arange(k).repeat(len(pairs), 1)
    exchanges.scatter_(1, pairs, pairs.flip(1))
    namings = torch.from_numpy(random_matchings(searches, k, draws))
    lowest = loss(namings)
    for row in range(searches):
        while True:
            near = namings[row][exchanges]
            losses = loss(near)
            best = int(losses.argmin())
            if losses[best] >= lowest[row] - 1e-12:
                break
            namings[row], lowest[row] = near[best], losses[best]
    return namings, lowest


def compare_namings(loss: NamingLoss, truth: Tensor, searches: int, draws: Draws) -> dict[str, Any]:
    """Return the loss of the true naming ``[k]`` next to the lowest that was found, and how many names of that one are right.

    Also the mean loss of random namings, how many different namings that no exchange lowers have a lower loss than the true one, and
    by which share of it the loss of every search is ``apart``, from the lowest.
    """
    namings, losses = lowest_namings(loss, searches, draws)
    true, best = float(loss(truth[None])), namings[losses.argmin()]
    different, first = torch.unique(namings, dim=0, return_inverse=True)
    lower = {int(place) for place, value in zip(first, losses, strict=True) if value < true - 1e-12}
    return {
        "true": true,
        "lowest": float(losses.min()),
        "random": float(loss(torch.from_numpy(random_matchings(RANDOM, len(truth), draws))).mean()),
        "right": float((best == truth).double().mean()),
        "below": float(len(lower)),
        "ends": float(len(different)),
        "apart": (losses.sort().values / true - 1).tolist(),
    }
