"""Project features to a plane: principal components or UMAP."""

from importlib import import_module
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelwise.support.errors import UsageError

Projection = Literal["pca", "umap"]


class Pca:
    """The two directions in which rows vary most."""

    def fit_transform(self, rows: ArrayLike) -> NDArray[np.float64]:
        """Find the directions of rows ``[n, d]`` and return the rows along them ``[n, 2]``."""
        points = np.asarray(rows, np.float64)
        self.mean = points.mean(0)
        directions = np.linalg.svd(points - self.mean, full_matrices=False)[2][:2]
        signs = np.sign(directions[range(len(directions)), abs(directions).argmax(1)])
        self.directions = directions * signs[:, None]  # a direction has no sign: its largest entry is positive
        return self.transform(points)

    def transform(self, rows: ArrayLike) -> NDArray[np.float64]:
        """Return other rows ``[m, d]`` along the directions ``[m, 2]``."""
        return np.asarray((np.asarray(rows, np.float64) - self.mean) @ self.directions.T)


def find_plane(projection: Projection) -> Any:
    """Return what makes a plane: ``fit_transform`` for some rows, ``transform`` for others."""
    if projection == "pca":
        return Pca()
    if projection != "umap":
        raise UsageError(f'The projection must be pca or umap; given "{projection}".')
    try:
        return import_module("umap").UMAP(n_components=2, random_state=0)
    except ImportError:
        raise UsageError(
            "UMAP needs the package umap-learn, which is not installed. Run: pip install umap-learn; or choose pca."
        ) from None
