"""Lookalikes: near-duplicate images (copies resized, brightened or compressed again; frames of a burst).

Two images look alike if their fingerprints (``decode.fingerprint``) correlate by at least ``LIKENESS``. Features are
compared by their cosine around the mean. To avoid comparing all pairs, a tree over the first principal directions finds every
candidate: distances there never exceed the full distances.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from labelwise.images.decode.headers import SHAPE, SIDE, fingerprint
from labelwise.images.file_images import StoredImages
from labelwise.images.images import FeatureRows, Images, Unreadable
from labelwise.support.processes import all_gather, current_group
from labelwise.support.rows import connected_groups, unit_rows

LIKENESS = 0.97
_CHUNK = 1024
_TOGETHER = 256  # images read at a time
_FEW = 4_096  # up to this number of rows, all pairs are compared
_DIRECTIONS = (7, 16)
_PAIRS = 10_000_000  # that are held at once, about
_SAMPLE = 500  # rows by which these are estimated
Rows = NDArray[np.int64]
Places = NDArray[np.float64]
Prints = NDArray[np.float32]


def fingerprints(images: Images) -> tuple[Prints, dict[int, str]]:
    """Return fingerprints ``[n, a]`` of unit length of images or features, and the faults of unreadable rows.

    Rows of uniform grey and unreadable rows are zeros. Processes that share the work read a share each.
    """
    if isinstance(images, FeatureRows):
        rows = images.values
        return unit_rows(rows - rows.mean(0) if len(rows) > 2 else rows), {}
    mine = np.flatnonzero(np.arange(len(images)) % current_group().world == current_group().rank)
    prints = np.zeros((len(images), SIDE * SIDE), np.float32)
    prints[mine], faults = _read(images.select(mine))
    faults = {int(mine[row]): reason for row, reason in faults.items()}
    if current_group().world > 1:
        for rows, part, bad in all_gather((mine, prints[mine], faults)):
            prints[rows] = part
            faults |= bad
    return prints, faults


def _read(images: Images) -> tuple[Prints, dict[int, str]]:
    """Return the fingerprints of images, and the faults of unreadable rows."""
    if isinstance(images, StoredImages):
        return images.fingerprints()
    prints, faults = np.zeros((len(images), SIDE * SIDE), np.float32), dict[int, str]()
    for start in range(0, len(images), _TOGETHER):
        rows = range(start, min(start + _TOGETHER, len(images)))
        for row, image in zip(rows, images.read(rows, images.shape or SHAPE), strict=True):
            if isinstance(image, Unreadable):
                faults[row] = image.reason
            else:
                prints[row] = fingerprint(image)
    return prints, faults


def similar_pairs(prints: Prints, likeness: float = LIKENESS) -> Iterator[tuple[Rows, Rows, NDArray[np.float32]]]:
    """Yield all pairs of rows that look alike, smaller row first, and their similarity, in blocks."""
    for first, second in _near(prints, likeness):
        yield _keep_similar((prints, prints), first, second, likeness)


def lookalike_groups(images: Images, likeness: float = LIKENESS) -> tuple[str, ...]:
    """Return the lookalike group of each image, connected directly or through others; blank if alone."""
    prints = fingerprints(images)[0]
    member = np.arange(len(prints))
    for first, second in _near(prints, likeness):
        separate = member[first] != member[second]
        left, right, _ = _keep_similar((prints, prints), first[separate], second[separate], likeness)
        if len(left):
            member = join_groups(member, left, right)
    return name_groups("lookalike", member)


def join_groups(member: Rows, first: Rows, second: Rows) -> Rows:
    """Merge the groups of each pair of rows; return the group of each row ``[n]``."""
    return connected_groups(len(member), member[first], member[second])[member]


def name_groups(kind: str, member: Rows) -> tuple[str, ...]:
    """Name the group ``[n]`` of each row: "kind 1", "kind 2" in the order of rows; blank for a row alone."""
    sizes = np.bincount(member, minlength=1)
    several = [int(group) for group in member.tolist() if sizes[group] > 1]
    names = {group: f"{kind} {i}" for i, group in enumerate(dict.fromkeys(several), 1)}
    return tuple(names.get(group, "") for group in member.tolist())


def _near(prints: Prints, likeness: float) -> Iterator[tuple[Rows, Rows]]:
    """Yield candidate pairs, smaller row first: all pairs that may look alike, and some others."""
    rows = np.flatnonzero(prints.any(1))
    if len(rows) <= _FEW:
        for start in range(0, len(rows), _CHUNK):
            some = prints[rows[start : start + _CHUNK]]
            first, second = np.nonzero(np.triu(some @ prints[rows[start:]].T >= likeness - 1e-3, 1))
            yield rows[first + start], rows[second + start]
        return
    points = prints[rows] - prints[rows].mean(0)
    if len(points) < points.shape[1]:  # the table of products that is the smaller one
        directions = np.linalg.svd(points, full_matrices=False)[2].T
    else:
        directions = np.linalg.eigh(points.T @ points)[1][:, ::-1]
    places = (points @ directions[:, : _DIRECTIONS[-1]]).astype(np.float64)
    for first, second in near(places, places, likeness):
        yield rows[first], rows[second]


def radius_of(likeness: float) -> float:
    """Return the largest distance of two unit vectors with this similarity."""
    return float((2 * (1 - likeness)) ** 0.5) + 1e-3


def near(places: Places, others: Places, likeness: float) -> Iterator[tuple[Rows, Rows]]:
    """Yield candidate pairs of rows of two sets; within one set, the smaller row first.

    ``[n, d]`` and ``[m, d]`` are coordinates in the first principal directions.
    """
    from scipy.spatial import cKDTree

    itself, radius = others is places, radius_of(likeness)
    if not len(places) or not len(others):
        return
    for count in _DIRECTIONS:  # few are quick, and enough unless most images are much alike
        own_places, tree = places[:, :count], cKDTree(others[:, :count])
        some = own_places[:: max(1, len(own_places) // _SAMPLE)]
        total = int(tree.query_ball_point(some, radius, return_length=True).mean() * len(own_places))
        if total <= _PAIRS and itself:
            pairs = tree.query_pairs(radius, output_type="ndarray")
            yield pairs[:, 0], pairs[:, 1]
            return
        if total <= _PAIRS:
            break
    step = max(1, len(own_places) * _PAIRS // max(1, total))
    for start in range(0, len(own_places), step):
        pairs = cKDTree(own_places[start : start + step]).sparse_distance_matrix(tree, radius, output_type="ndarray")
        first, second = pairs["i"] + start, pairs["j"]
        in_order = first < second if itself else slice(None)
        yield first[in_order], second[in_order]


def pairs_between(
    prints: tuple[Prints, Prints], places: tuple[Places, Places], likeness: float
) -> Iterator[tuple[Rows, Rows, NDArray[np.float32]]]:
    """Yield the pairs of rows of two sets that look alike, and their similarity; see ``near``."""
    for first, second in near(*places, likeness):
        yield _keep_similar(prints, first, second, likeness)


def _keep_similar(
    prints: tuple[Prints, Prints], first: Rows, second: Rows, likeness: float
) -> tuple[Rows, Rows, NDArray[np.float32]]:
    """Filter candidate pairs to those that look alike; also return their similarity."""
    first_prints, second_prints = prints
    values = np.empty(len(first), np.float32)
    for start in range(0, len(first), _CHUNK * 64):
        some = slice(start, start + _CHUNK * 64)
        values[some] = np.einsum("ij,ij->i", first_prints[first[some]], second_prints[second[some]])
    values = np.minimum(values, 1)
    is_alike = values >= likeness - 1e-5
    return first[is_alike], second[is_alike], values[is_alike]
