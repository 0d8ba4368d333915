"""Where an image lies once a label is asked about: joint codes of images and labels, in a plane to look at.

For an indicator network h = z * psi, the image embedding times what the label encoder makes of a label (figure 6 of its paper);
its predictor weighs the entries of h afterwards. Of any other linear score h = z * w, the image embedding times the label's weights,
so h says what each entry adds to the answer. Training images under their own label make one cloud for each label; an image under a wrong
label should fall outside of that label's cloud.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labelwise.core.arrays import Array, linear_scores
from labelwise.core.classifier import Classifier
from labelwise.core.scores import Scores
from labelwise.evaluation.plane import Projection, find_plane
from labelwise.support.errors import DataError, UnsupportedError
from labelwise.support.text import caption


@dataclass(frozen=True, eq=False, kw_only=True)
class JointView:
    """Joint embeddings of the s labels that one image fits best, in a plane.

    Distances are those of the image from the mean of each label's training images before projection, where 1 is the root mean
    square distance of those images; NaN for a label with fewer than two.
    """

    names: tuple[str, ...]  # these labels, best first
    points: Array  # training images of these labels, each under its own [n, 2]
    targets: Array  # the place of that label among the names [n]
    asked: Array  # the image under each of the labels [s, 2]
    distances: Array  # [s]
    projection: Projection


def joint_embeddings(scores: Scores, columns: Array) -> Array:
    """Return h ``[n, d]``: the embedding of image i times what the classifier has of the label at ``columns[i]``, without a bias.

    A single image goes with every column given.
    """
    return scores.embeddings * _weights(scores)[columns]


def joint_view(
    known: Scores, targets: ArrayLike, image: Scores, *, projection: Projection = "pca", most: int = 10
) -> JointView:
    """Return training images under their own labels ``[n]`` and one more image under each of these labels, in a plane.

    The classifier's score must be linear in the image embedding. At most ``most`` labels are shown, those that score highest
    for the image: more than 10 are hard to tell apart.
    """
    plane, classifier = find_plane(projection), known.classifier
    best = (-image.log_odds[0]).argsort(kind="stable")[:most]
    few = classifier.select([classifier.labels.names[i] for i in best.tolist()])
    places = np.full(len(classifier.labels) + 1, -1)
    places[best] = np.arange(len(best))
    columns = places[np.asarray(targets)]
    rows = np.flatnonzero(columns >= 0)
    if len(rows) < 3:
        raise DataError(f"A plane needs at least three training images of the best labels; there are {len(rows)}.")
    points = joint_embeddings(known[rows].of(few), columns[rows])
    asked = joint_embeddings(image.of(few), np.arange(len(best)))
    return JointView(
        names=few.labels.names,
        points=np.asarray(plane.fit_transform(points)),
        targets=columns[rows],
        asked=np.asarray(plane.transform(asked)),
        distances=_distances(points.astype(np.float64), columns[rows], asked.astype(np.float64)),
        projection=projection,
    )


def _weights(scores: Scores) -> Array:
    """Return the weights ``[k, d]`` of a linear score; an error where the score is not linear in image embeddings."""
    table = scores.classifier.label_embeddings
    if table.shape[1] == scores.embeddings.shape[1] + 1:
        some = scores[:16]
        if np.allclose(some.raw, linear_scores(some.embeddings, table), rtol=1e-3, atol=1e-4):
            return table[:, :-1] / _predictor(scores.classifier)
    raise UnsupportedError(
        f"{scores.classifier.kind} does not score by weights on the image code, so an image and a label have no joint "
        "code. A method with a linear score has them, such as indicator, softmax or eszsl."
    )


def _predictor(classifier: Classifier) -> Array:
    """Return how the predictor of an indicator network weighs the entries of h ``[d]``; ones for any other method."""
    training = classifier.origin.training
    state = training.read() if classifier.kind == "indicator" and training is not None else {}
    if "predictor.weight" not in state or np.any(state.get("base", 0)):  # a closed form that it began with has no psi
        return np.ones(1)
    weights: Array = np.asarray(state["predictor.weight"][0])
    return np.where(weights == 0, 1, weights)


def _distances(known: Array, targets: Array, asked: Array) -> Array:
    distances = np.full(len(asked), np.nan)
    for label in np.unique(targets):
        cloud = known[targets == label]
        centre = cloud.mean(0)
        spread = np.sqrt(((cloud - centre) ** 2).sum(1).mean())
        if len(cloud) > 1 and spread > 0:
            distances[label] = np.linalg.norm(asked[label] - centre) / spread
    return distances


def draw_joint(view: JointView, truth: str | None = None) -> Any:
    """Return a figure: a dot for each training image, a star for the image under each label, larger for its own (``truth``)."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    table = colormaps["tab20" if len(view.names) > 10 else "tab10"]
    figure = Figure(figsize=(7.4, 5), layout="constrained", facecolor="white")
    axes = figure.subplots()
    for place, name in enumerate(view.names):
        x, y = view.points[view.targets == place].T
        axes.scatter(x, y, 12, color=table(place % table.N), alpha=0.45, linewidths=0, label=caption(name))
    for place, (name, (x, y)) in enumerate(zip(view.names, view.asked.tolist(), strict=True)):
        size, edge = (340, 1.4) if name == truth else (110, 0.7)
        colour, above = table(place % table.N), 3 + (name == truth)
        axes.scatter([x], [y], size, color=colour, marker="*", edgecolors="#222222", linewidths=edge, zorder=above)
    of = f"an image of {truth}" if truth else "one image"
    figure.suptitle(f"Dots: training images under their own label. Stars: {of} under each label", fontsize=9)
    axes.set(xticks=[], yticks=[], xlabel=f"{view.projection.upper()} 1", ylabel=f"{view.projection.upper()} 2")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5), markerscale=2)
    return figure
