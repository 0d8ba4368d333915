"""The space in which images are compared, and their neighbours. It is computed once, from all features, without labels.

Neighbours mostly share a label, so their differences show how images of one label vary. Whitening by the covariance of these
differences is discriminant analysis without labels, like Hinneburg et al. and "relevant component analysis" (Bar-Hillel
et al., JMLR 6, 2005) with neighbours instead of known pairs.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from labelwise.core.arrays import root_features
from labelwise.label.grouping import divide
from labelwise.support.errors import DataError
from labelwise.support.processes import on_one_thread
from labelwise.support.rows import draw_rows, unit_rows

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

COMPONENTS = 384  # principal components at most
SAMPLE = 8_000  # images that components and the covariance of neighbours are computed from
NEAREST = 5  # neighbours whose differences are taken
RIDGE, FEW = (
    0.3,
    50.0,
)  # of the covariance of differences, relative to its mean variance; of few images FEW / n, where that is more
NEIGHBOURS = 50  # of each image that are remembered
REGIONS = 64  # parts of the space, to spread the first questions over
BLOCK = 2_048  # rows of one block of products


@dataclass(frozen=True, eq=False)
class Space:
    """Images as points, and the neighbours of each."""

    points: Floats  # principal components [n, d]
    directions: Floats  # whitened unit rows [n, d]
    covariance: Floats  # half the covariance of differences of neighbours: the within-label covariance [d, d]
    neighbours: Ints  # the nearest others of each, nearest first [n, m]
    kernel: Floats  # how near each is: 1 at the same place, 1/e at the usual distance of the last [n, m]

    def __len__(self) -> int:
        return len(self.points)

    @cached_property
    def regions(self) -> tuple[Ints, Floats]:
        """The region of each image ``[n]``, and how near regions are to each other: 1 at the same place ``[r, r]``."""
        places, centres = divide(self.directions, REGIONS)
        units = unit_rows(centres)
        return places, np.asarray(np.exp(2 * np.minimum(units @ units.T - 1, 0)), np.float32)


@on_one_thread
def make_space(features: npt.NDArray[Any]) -> Space:
    """Build the space of images from features ``[n, d]``."""
    points, covariance = _centred(features)
    directions = _directions(points, covariance)
    neighbours, products = nearest(directions, directions, min(NEIGHBOURS, len(points) - 1), others=True)
    squares = np.maximum(2 - 2 * products, 0)
    usual = max(float(np.median(squares[:, -1])), 1e-6)
    return Space(points, directions, covariance, neighbours, np.exp(-squares / usual).astype(np.float32))


@on_one_thread
def directions_of(features: npt.NDArray[Any]) -> Floats:
    """Return the directions of images in their space ``[n, d]``, without neighbours."""
    return _directions(*_centred(features))


def whitening(covariance: npt.NDArray[Any], ridge: float) -> Floats:
    """Return the matrix ``[d, d]`` that whitens rows of a covariance, with a ridge relative to its mean variance."""
    values, axes = np.linalg.eigh(covariance.astype(np.float64))
    values = np.maximum(values, 0)
    return np.asarray(axes / np.sqrt(values + ridge * max(float(values.mean()), 1e-9)), np.float32)


def nearest(points: Floats, queries: Floats, count: int, *, others: bool = False) -> tuple[Ints, Floats]:
    """Return the points with the largest products with each query ``[q, count]``, largest first, and these products.

    Args:
        points: ``[n, d]``.
        queries: ``[q, d]``.
        count: number of neighbours.
        others: the queries are the points themselves; exclude each from its own neighbours.
    """
    rows, values = np.empty((len(queries), count), np.int64), np.empty((len(queries), count), np.float32)
    for start in range(0, len(queries), BLOCK):
        products = queries[start : start + BLOCK] @ points.T
        if others:
            here = np.arange(len(products))
            products[here, start + here] = -np.inf
        best = np.argpartition(-products, count - 1, 1)[:, :count]
        near = np.take_along_axis(products, best, 1)
        order = (-near).argsort(1, kind="stable")
        rows[start : start + BLOCK] = np.take_along_axis(best, order, 1)
        values[start : start + BLOCK] = np.take_along_axis(near, order, 1)
    return rows, values


def _centred(features: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """Return images as points ``[n, d]``, and half the covariance of differences of neighbours ``[d, d]``."""
    if features.ndim != 2 or len(features) < 2:
        raise DataError(f"Features of at least two images are needed [n, d]; given {list(features.shape)}.")
    if not np.isfinite(features).all():
        raise DataError("The features hold a value that is not a finite number (NaN or infinity).")
    rows = root_features(features) if features.min() >= 0 else unit_rows(features)
    points = _components(np.asarray(rows, np.float32))
    return points, _neighbour_covariance(points)


def _directions(points: Floats, covariance: Floats) -> Floats:
    return np.asarray(unit_rows(points @ whitening(covariance, max(RIDGE, FEW / len(points)))), np.float32)


def _components(rows: Floats) -> Floats:
    """Return rows ``[n, d]`` as principal components around their mean."""
    sample = rows[draw_rows(len(rows), SAMPLE)]
    away = sample - sample.mean(0)
    if len(away) < away.shape[1]:
        values, left = np.linalg.eigh((away @ away.T).astype(np.float64))
        axes = away.T @ (left / np.sqrt(np.maximum(values, 1e-9))).astype(np.float32)
        long = values > 1e-7 * max(float(values[-1]), 1e-9)
        axes = axes[:, long if long.any() else slice(-1, None)]
    else:
        _, vectors = np.linalg.eigh((away.T @ away).astype(np.float64))
        axes = vectors.astype(np.float32)
    return np.ascontiguousarray((rows - sample.mean(0)) @ axes[:, ::-1][:, :COMPONENTS])


def _neighbour_covariance(points: Floats) -> Floats:
    """Return the covariance ``[d, d]`` of differences of mutual neighbours; of all points if there are none."""
    sample = points[draw_rows(len(points), SAMPLE)]
    units = unit_rows(sample)
    rows, _ = nearest(units, units, min(NEAREST, len(sample) - 1), others=True)
    here = np.arange(len(sample))
    mutual = np.stack([(rows[column] == here[:, None]).any(1) for column in rows.T], 1)
    differences = (sample[:, None] - sample[rows])[mutual]
    differences = differences if len(differences) > 1 and abs(differences).max() > 1e-6 else sample
    return np.asarray(differences.T @ differences / (2 * len(differences)), np.float32)
