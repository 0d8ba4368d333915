"""Many numbers as two, to look at."""

from importlib import import_module
from typing import Any, Literal

from labelwise.support.errors import UsageError

Projection = Literal["pca", "umap"]


def find_plane(projection: Projection) -> Any:
    """Return what makes a plane of many numbers: ``fit_transform`` for training images, ``transform`` for others."""
    if projection == "umap":
        try:
            return import_module("umap").UMAP(n_components=2, random_state=0)
        except ImportError:
            raise UsageError(
                "UMAP needs the package umap-learn, which is not installed. Run: pip install umap-learn; or choose pca."
            ) from None
    if projection != "pca":
        raise UsageError(f'A plane is made by pca or umap; given "{projection}".')
    from sklearn.decomposition import PCA

    return PCA(2, svd_solver="full")
