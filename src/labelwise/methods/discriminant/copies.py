"""Pictures of one label that look alike: copies, crops, bursts of a camera."""

from collections.abc import Sequence

import torch
from torch import Tensor

from labelwise.support.segments import connected_groups
from labelwise.train.tensors import segment_mean

# Squared distance of lookalikes, relative to the mean one of two pictures of a label. Photos planted a second time (re-encoded, cropped,
# brighter, mirrored) lie below it, and 0 to 4 % of the photos of four real sets do. In few dimensions many pictures come that near
# by chance: of all pictures this share may.
ALIKE, BY_CHANCE = 0.3, 0.01
# Where a label has modes (photos and sketches), all of one mode are near each other: lookalikes are nearer than this share of the mean
# squared distance to so many neighbours, too. Copies of photos are, and 2 % of the sketches of a set that has none.
NEARER, NEIGHBOURS = 0.45, 20
MOST_COMPARED = 4_096  # rows of a label of which all pairs are compared
MOST_ROWS = 1_000  # that say in how many directions pictures vary


def together(embeddings: Tensor, targets: Tensor, groups: Sequence[str]) -> Tensor:
    """Return the set of each image ``[n]`` that is left out with it: lookalikes, and what the data say belongs together.

    An image whose group is blank belongs to none.
    """
    names = [name or row for row, name in enumerate(groups)]
    named = {name: place for place, name in enumerate(dict.fromkeys(names))}
    known = torch.tensor([named[name] for name in names], device=embeddings.device) if groups else None
    return lookalike_groups(embeddings, targets, known)


def lookalike_groups(embeddings: Tensor, targets: Tensor, groups: Tensor | None = None) -> Tensor:
    """Return the group of each image ``[n]``: images of one label whose embeddings ``[n, d]`` are alike, or alike to others of it.

    Images of one of the ``groups [n]``, where these are known, stay together. A copy under another label is no lookalike: one of the
    two labels is wrong, which leaving the others out shows.
    """
    n, x = len(embeddings), embeddings.float()
    counts = torch.bincount(targets)
    means = segment_mean(x, targets, len(counts))
    typical, limit = _limits(x - means[targets], counts)
    pairs = [targets.new_empty(0, 2)]
    for label in torch.split(targets.argsort(stable=True), counts.tolist()):
        for rows in _windows(x, label) if len(label) > 1 else ():
            squares = torch.cdist(x[rows], x[rows]).square()
            near = squares.topk(min(NEIGHBOURS + 1, len(rows)), largest=False).values  # and itself, at 0
            around = NEARER * (near.sum(1) + (NEIGHBOURS + 1 - near.shape[1]) * typical) / NEIGHBOURS
            pairs.append(rows[(squares < torch.minimum(around[:, None], around).clamp_max(limit)).nonzero()])
    if groups is not None:
        first = torch.full((int(groups.max()) + 1,), n, device=x.device)
        first.scatter_reduce_(0, groups, torch.arange(n, device=x.device), "amin")
        pairs.append(torch.stack([torch.arange(n, device=x.device), first[groups]], 1))
    one, other = torch.cat(pairs).T.cpu()
    return torch.from_numpy(connected_groups(n, one, other)).to(x.device)


def _windows(x: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    """Return the rows of a label in sets whose pairs are compared: all of them, or of many those that lie side by side.

    Lookalikes lie near each other in every direction, so also in that in which rows vary most.
    """
    if len(rows) <= MOST_COMPARED:
        return (rows,)
    some = x[rows[:: -(-len(rows) // MOST_COMPARED)]]
    axis = torch.linalg.eigh(torch.cov(some.T)).eigenvectors[:, -1]
    order = rows[(x[rows] @ axis).argsort(stable=True)]
    return (*order.unfold(0, MOST_COMPARED, MOST_COMPARED // 2), order[-MOST_COMPARED:])


def _limits(inside: Tensor, counts: Tensor) -> tuple[float, float]:
    """Return the mean squared distance of two of a label, and that of lookalikes at most; from embeddings around its mean ``[n, d]``.

    Squared distances of a Gaussian spread as a chi-square of as many degrees as it has directions of equal variance.
    """
    total, degrees = float(inside.square().sum()), _directions(inside)
    pairs = float((counts * (counts - 1)).sum()) / 2
    chance = min(0.5, BY_CHANCE * len(inside) / max(pairs, 1.0))
    alike = _nearest_share(max(degrees, 1e-3), chance)
    typical = 2 * total / max(1, len(inside) - int((counts > 0).sum()))
    return typical, alike * typical


def _nearest_share(degrees: float, chance: float) -> float:
    """Return below which share of the mean such a share of all values of a chi-square lies, at most ``ALIKE``; by halving."""
    low, high, half = 0.0, ALIKE, torch.tensor(degrees / 2, dtype=torch.float64)
    if float(torch.special.gammainc(half, half * high)) <= chance:
        return high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if float(torch.special.gammainc(half, half * middle)) < chance else (low, middle)
    return high


def _directions(inside: Tensor) -> float:
    """Return in how many directions of equal variance rows ``[n, d]`` vary: (tr C)^2 / tr C^2, by at most ``MOST_ROWS`` of them.

    Of tr C^2, the squared products of all pairs of rows, those of two rows are as many times more as there are more pairs.
    """
    some = inside[:: -(-len(inside) // MOST_ROWS)]
    more = len(inside) / len(some)
    own = float(some.square().sum(1).square().sum())
    pairs = (float((some @ some.T).square().sum()) - own) * more * (len(inside) - 1) / max(1, len(some) - 1)
    return (more * float(some.square().sum())) ** 2 / max(more * own + pairs, 1e-30)
