"""Quality of generated features for labels with test images, and a plot of them among real ones."""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelwise.core.classifier import Classifier
from labelwise.evaluation.plane import find_plane
from labelwise.support.text import caption
from labelwise.tasks.imagine import Imagined, generated

Projection = Literal["pca", "umap", "tsne"]
COLOURED = 10  # most labels that are distinguishable in the plot
Features = NDArray[Any]


def evaluate_imagined(
    classifier: Classifier, real: ArrayLike, targets: ArrayLike, *, count: int = 50, seed: int = 0
) -> list[dict[str, Any]]:
    """Return the quality of generated features for every label with images, in the classifier's order.

    ``real [n, f]`` are features of test images with one label each, of two labels at least, as ``imagine`` makes its gallery;
    ``targets [n]`` are positions of the classifier's labels; ``count`` features are generated for each label, 2 at least.
    """
    real = np.asarray(real, np.float64)
    columns, own = np.unique(np.asarray(targets), return_inverse=True)
    k = len(columns)
    names = [classifier.labels.names[i] for i in columns.tolist()]
    means = np.stack([real[own == label].mean(0) for label in range(k)])
    mean_distance = float(np.linalg.norm(means[:, None] - means, axis=2).sum()) / (k * (k - 1))
    real_distances = _distances(real, real)
    np.fill_diagonal(real_distances, np.inf)  # exclude each row itself
    nearest = real_distances.argmin(1)
    figures = []
    for label, (name, rows) in enumerate(
        zip(names, np.asarray(generated(classifier, names, count, seed)), strict=True)
    ):
        mine = own == label
        deviation = _deviation(real[mine])
        figures.append(
            {
                "label": name,
                "described": name in classifier.unseen,
                "images": int(mine.sum()),
                # distance of the means of generated and real features, relative to the mean distance of two labels
                "offset": float(np.linalg.norm(rows.mean(0) - means[label])) / mean_distance if mean_distance else 0.0,
                # share whose nearest real image has the right label; for real images, the upper limit
                "precision": float((own[_distances(rows, real).argmin(1)] == label).mean()),
                "real_precision": float((own[nearest[mine]] == label).mean()),
                # root mean square distance to their mean, relative to that of real images; None with one image
                "spread": _deviation(rows) / deviation if deviation else None,
            }
        )
    return figures


def _distances(rows: Features, columns: Features) -> Features:
    """Return squared distances ``[n, m]`` minus the squared length of each row."""
    distances: Features = (columns**2).sum(1) - 2 * rows.astype(np.float64) @ columns.T
    return distances


def _deviation(rows: Features) -> float:
    """Return the unbiased root mean square distance of rows ``[n, f]`` to their mean; 0 for a single row."""
    return float(rows.var(0, ddof=1).sum() ** 0.5) if len(rows) > 1 else 0.0


def draw_imagined(
    classifier: Classifier, imagined: Imagined, targets: ArrayLike, projection: Projection = "pca"
) -> Any:
    """Plot imagined features in a plane with the gallery; targets ``[n]`` are -1 if unknown.

    Grey dots are real images of other labels, coloured ones of the imagined labels; crosses are generated.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    gallery, features, truth = np.asarray(imagined.gallery), np.asarray(imagined.features), np.asarray(targets)
    n, (k, count, width) = len(gallery), features.shape
    rows = np.concatenate([gallery, features.reshape(-1, width)])
    points = _planar(projection, len(rows)).fit_transform(rows)
    real, imaginary = points[:n], points[n:].reshape(k, count, 2)
    is_seen = np.array([name not in classifier.unseen for name in classifier.labels.names] + [False])[truth]
    columns = [classifier.labels.index(name) for name in imagined.names[:COLOURED]]
    is_other = ~np.isin(truth, columns)
    clouds: list[tuple[Features, int, str, Any, str]] = [  # points, size, marker, colour, legend
        (real[is_other & is_seen], 8, "o", "#cccccc", "other labels, seen"),
        (real[is_other & ~is_seen], 8, "o", "#888888", "other labels, not seen"),
    ]
    for i, (column, name) in enumerate(zip(columns, imagined.names, strict=False)):
        colour = colormaps["tab10"](i)
        clouds.append((real[truth == column], 14, "o", colour, f"{name}, real"))
        clouds.append((imaginary[i], 22, "x", colour, f"{name}, generated"))
    figure = Figure(figsize=(7.4, 5), layout="constrained", facecolor="white")
    axes: Any = figure.subplots()
    for cloud, size, marker, colour, words in clouds:
        if len(cloud):
            look = {"linewidths": 0.9} if marker == "x" else {"linewidths": 0, "alpha": 0.8 if size > 8 else 1}
            axes.scatter(*cloud.T, size, color=colour, marker=marker, label=caption(words), **look)
    axes.set(xticks=[], yticks=[], xlabel=f"{projection.upper()} 1", ylabel=f"{projection.upper()} 2")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _planar(projection: Projection, points: int) -> Any:
    if projection != "tsne":
        return find_plane(projection)
    from sklearn.manifold import TSNE

    return TSNE(2, random_state=0, perplexity=min(30.0, (points - 1) / 3))
