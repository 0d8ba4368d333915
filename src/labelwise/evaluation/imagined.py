"""How good generated features are, for labels with test images; and a plane to look at them beside real ones."""

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from labelwise.core.classifier import Classifier
from labelwise.evaluation.plane import find_plane
from labelwise.methods.clarel.retrieval import distances
from labelwise.support.display import caption
from labelwise.tasks.imagine import Imagined, generated
from labelwise.train.tensors import segment_mean

Projection = Literal["pca", "umap", "tsne"]
COLOURED = 10  # labels that one can tell apart in a plane


def evaluate_imagined(
    classifier: Classifier, real: ArrayLike, targets: Tensor, *, count: int = 50, seed: int = 0
) -> list[dict[str, Any]]:
    """Return how good features are that a model generates, for every label with images, in the order of the classifier's.

    ``real [n, f]`` are features of test images of one label each, of two labels at least, as ``imagine`` keeps them of its gallery;
    ``targets [n]`` where that label stands among the classifier's; ``count`` how many features are generated for each label, 2 at least.
    """
    from sklearn.neighbors import NearestNeighbors

    columns, own = torch.unique(targets.cpu(), return_inverse=True)
    k = len(columns)
    names = [classifier.labels.names[i] for i in columns.tolist()]
    features = torch.from_numpy(generated(classifier, names, count, seed))
    real = torch.as_tensor(real)
    means = segment_mean(real, own, k)
    between = float(distances(means, means).sum()) / (k * (k - 1))
    others = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(real.double().numpy())
    nearest = torch.from_numpy(others.kneighbors(return_distance=False)[:, 0])  # none is its own neighbour
    figures = []
    for label, (name, rows) in enumerate(zip(names, features, strict=True)):
        mine = own == label
        spread = _spread(real[mine])
        figures.append(
            {
                "label": name,
                "described": name in classifier.unseen,
                "images": int(mine.sum()),
                # from the mean of what was generated to that of real images; 1 is the mean distance of two labels
                "offset": float((rows.mean(0) - means[label]).norm()) / between if between else 0.0,
                # the share whose nearest real image has the right label; of real images, what can be expected at best
                "precision": float((own[distances(rows, real).argmin(1)] == label).float().mean()),
                "real_precision": float((own[nearest[mine]] == label).float().mean()),
                # root mean square distance to their mean, where 1 is that of real images; None with one image
                "spread": _spread(rows) / spread if spread else None,
            }
        )
    return figures


def _spread(rows: Tensor) -> float:
    """Return the root mean square distance of rows ``[n, f]`` to their mean, without its bias; 0 for a single one."""
    return float(rows.var(0).sum().sqrt()) if len(rows) > 1 else 0.0


def draw_imagined(
    classifier: Classifier, imagined: Imagined, targets: ArrayLike, projection: Projection = "pca"
) -> Any:
    """Return a figure of what was imagined in a plane with the gallery, whose targets ``[n]`` are -1 where not known.

    Grey dots are real images of other labels, coloured ones of the imagined labels; crosses are generated.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    targets = torch.as_tensor(targets)
    n, (k, count, _) = len(imagined.gallery), imagined.features.shape
    rows = np.concatenate([imagined.gallery, imagined.features.reshape(k * count, -1)])
    points = torch.as_tensor(_planar(projection, len(rows)).fit_transform(rows)).float()
    real, generated = points[:n], points[n:].reshape(k, count, 2)
    seen = torch.tensor([name not in classifier.unseen for name in classifier.labels.names] + [False])[targets.cpu()]
    columns = [classifier.labels.index(name) for name in imagined.names[:COLOURED]]
    other = ~torch.isin(targets.cpu(), torch.tensor(columns))
    clouds: list[tuple[Tensor, int, str, Any, str]] = [  # points, size, marker, colour, words
        (real[other & seen], 8, "o", "#cccccc", "other labels, seen"),
        (real[other & ~seen], 8, "o", "#888888", "other labels, not seen"),
    ]
    for i, (column, name) in enumerate(zip(columns, imagined.names, strict=False)):
        colour = colormaps["tab10"](i)
        clouds.append((real[targets.cpu() == column], 14, "o", colour, f"{name}, real"))
        clouds.append((generated[i], 22, "x", colour, f"{name}, generated"))
    figure = Figure(figsize=(7.4, 5), layout="constrained", facecolor="white")
    axes: Any = figure.subplots()
    for cloud, size, marker, colour, words in clouds:
        if len(cloud):
            look = {"linewidths": 0.9} if marker == "x" else {"linewidths": 0, "alpha": 0.8 if size > 8 else 1}
            axes.scatter(*cloud.T.numpy(), size, color=colour, marker=marker, label=caption(words), **look)
    axes.set(xticks=[], yticks=[], xlabel=f"{projection.upper()} 1", ylabel=f"{projection.upper()} 2")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _planar(projection: Projection, points: int) -> Any:
    if projection != "tsne":
        return find_plane(projection)
    from sklearn.manifold import TSNE

    return TSNE(2, random_state=0, perplexity=min(30.0, (points - 1) / 3))
