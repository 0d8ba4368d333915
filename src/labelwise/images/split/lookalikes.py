"""Lookalikes: pictures that show the same once more (a copy resized, brightened, compressed again; frames of a burst).

A picture's fingerprint is its grey thumbnail of 16 by 16 pixels, of mean zero and length one; two look alike where these
correlate by ``LIKENESS``. Features are compared by their cosine around their mean. Of many pictures none is compared with all others: a tree over the
first principal directions, in which two are never farther apart than in all of them, names every pair that can be alike.
"""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from labelwise.images.lazy import LazyImages
from labelwise.images.streams import own_rows, stream_of
from labelwise.support.cache import LOOKS, Cache
from labelwise.support.processes import sum_over_processes
from labelwise.support.segments import connected_groups

LIKENESS = 0.97
_SIDE, _CHUNK = 16, 1024
_TOGETHER = 32  # pictures of which fingerprints are made at once: more would leave the processor's caches
_FEW = 4_096  # rows up to which all are compared with all
_DIRECTIONS = (7, 16)
_PAIRS = 10_000_000  # that are held at once, about
_SAMPLE = 500  # rows by which these are estimated
Rows = NDArray[np.int64]
Places = NDArray[np.float64]


def fingerprints(images: Tensor) -> Tensor:
    """Return what pictures ``[n, c, h, w]`` or features ``[n, a]`` are compared by, of length one; zeros for a single grey."""
    if isinstance(images, LazyImages) and stream_of(images) is None:
        return _remembered(images)
    if images.ndim == 2:
        rows = images.detach().cpu().float()
        return F.normalize(rows - rows.mean(0) if len(rows) > 2 else rows)
    prints = [torch.empty(0, _SIDE * _SIDE)]
    for part in torch.split(images, _TOGETHER):
        grey = part.sum(1, keepdim=True, dtype=torch.int16).cpu().float() / part.shape[1]
        flat = F.interpolate(grey, size=(_SIDE, _SIDE), mode="area").flatten(1)
        flat = flat - flat.mean(1, keepdim=True)
        prints.append(F.normalize(flat) * (flat.norm(dim=1, keepdim=True) > _SIDE))  # a shade of grey on average
    return torch.cat(prints)


def _remembered(images: LazyImages) -> Tensor:
    """Return the same of pictures that may not have been read: those that the cache knows need not be."""
    cache, mine = Cache(), images[own_rows(images)]
    assert isinstance(mine, LazyImages)
    keys = mine.digests
    known = cache.read(LOOKS, keys)
    missing = [row for row, key in enumerate(keys) if key not in known]
    if missing:
        prints = fingerprints(mine.source.pixels(mine.rows[missing]))
        fresh = {keys[row]: each.tobytes() for row, each in zip(missing, prints.numpy(), strict=True)}
        cache.write(LOOKS, fresh)
        known |= fresh
    every = np.frombuffer(bytearray(b"".join(known[key] for key in keys)), np.float32)
    table = torch.zeros(len(images), _SIDE * _SIDE)
    table[own_rows(images)] = torch.from_numpy(every.reshape(len(keys), _SIDE * _SIDE))
    return sum_over_processes(table)


def alike(prints: Tensor, likeness: float = LIKENESS) -> Iterator[tuple[Rows, Rows, NDArray[np.float32]]]:
    """Yield the pairs of rows that look alike, the smaller row first, and how much; all of them, some at a time."""
    for first, second in _near(prints, likeness):
        yield _alike((prints, prints), first, second, likeness)


def lookalike_groups(images: Tensor, likeness: float = LIKENESS) -> tuple[str, ...]:
    """Return the group of each image: those that look alike, directly or by way of others; blank where there is none."""
    prints = fingerprints(images)
    member = np.arange(len(prints))
    for first, second in _near(prints, likeness):
        apart = member[first] != member[second]
        one, other, _ = _alike((prints, prints), first[apart], second[apart], likeness)
        if len(one):
            member = join_groups(member, one, other)
    return name_groups("lookalike", member)


def join_groups(member: Rows, first: Rows, second: Rows) -> Rows:
    """Return the group of each row ``[n]`` where the groups of each pair of rows are one."""
    return connected_groups(len(member), member[first], member[second])[member]


def name_groups(kind: str, member: Rows) -> tuple[str, ...]:
    """Return a name for each row, by its group ``[n]``: "kind 1", "kind 2" in the order of rows; blank for a row alone."""
    sizes = np.bincount(member, minlength=1)
    several = [int(group) for group in member.tolist() if sizes[group] > 1]
    names = {group: f"{kind} {i}" for i, group in enumerate(dict.fromkeys(several), 1)}
    return tuple(names.get(group, "") for group in member.tolist())


def _near(prints: Tensor, likeness: float) -> Iterator[tuple[Rows, Rows]]:
    """Yield all pairs that can be alike, the smaller row first, and others that are not."""
    rows = prints.any(1).nonzero()[:, 0]
    if len(rows) <= _FEW:
        for start in range(0, len(rows), _CHUNK):
            some = prints[rows[start : start + _CHUNK]]
            pairs = (some @ prints[rows[start:]].T >= likeness - 1e-3).triu(1).nonzero() + start
            yield rows[pairs[:, 0]].numpy(), rows[pairs[:, 1]].numpy()
        return

    points, number = prints[rows] - prints[rows].mean(0), rows.numpy()
    if len(points) < points.shape[1]:  # the table of products that is the smaller one
        directions = torch.linalg.svd(points, full_matrices=False).Vh.T
    else:
        directions = torch.linalg.eigh(points.T @ points).eigenvectors.flip(1)
    places = (points @ directions[:, : _DIRECTIONS[-1]]).double().numpy()
    for first, second in near(places, places, likeness):
        yield number[first], number[second]


def radius_of(likeness: float) -> float:
    """Return how far apart two of length one that are so alike can be, in any directions."""
    return float((2 * (1 - likeness)) ** 0.5) + 1e-3


def near(places: Places, others: Places, likeness: float) -> Iterator[tuple[Rows, Rows]]:
    """Yield all pairs of a row of each that can be alike, and others that are not; where both are the same, the smaller row first.

    ``[n, d]`` and ``[m, d]`` are where pictures lie in the first principal directions.
    """
    from scipy.spatial import cKDTree

    itself, radius = others is places, radius_of(likeness)
    if not len(places) or not len(others):
        return
    for count in _DIRECTIONS:  # few are quick, and enough unless most pictures are much alike
        here, tree = places[:, :count], cKDTree(others[:, :count])
        some = here[:: max(1, len(here) // _SAMPLE)]
        total = int(tree.query_ball_point(some, radius, return_length=True).mean() * len(here))
        if total <= _PAIRS and itself:
            pairs = tree.query_pairs(radius, output_type="ndarray")
            yield pairs[:, 0], pairs[:, 1]
            return
        if total <= _PAIRS:
            break
    step = max(1, len(here) * _PAIRS // max(1, total))
    for start in range(0, len(here), step):
        pairs = cKDTree(here[start : start + step]).sparse_distance_matrix(tree, radius, output_type="ndarray")
        first, second = pairs["i"] + start, pairs["j"]
        ahead = first < second if itself else slice(None)
        yield first[ahead], second[ahead]


def pairs_between(
    prints: tuple[Tensor, Tensor], places: tuple[Places, Places], likeness: float
) -> Iterator[tuple[Rows, Rows, NDArray[np.float32]]]:
    """Yield the pairs of a row of each that look alike, and how much; see ``near`` for where they lie."""
    for first, second in near(*places, likeness):
        yield _alike(prints, first, second, likeness)


def _alike(
    prints: tuple[Tensor, Tensor], first: Rows, second: Rows, likeness: float
) -> tuple[Rows, Rows, NDArray[np.float32]]:
    """Return those of some pairs that look alike, and how much: a row of the first and one of the second prints."""
    here, there = prints
    pieces = zip(*(torch.split(torch.from_numpy(rows), _CHUNK * 64) for rows in (first, second)), strict=True)
    cosines = [torch.empty(0), *((here[one] * there[other]).sum(1) for one, other in pieces)]
    values = torch.cat(cosines).clamp_max(1).numpy()
    enough = values >= likeness - 1e-5
    return first[enough], second[enough], values[enough]
