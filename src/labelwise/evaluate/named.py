"""How right the names are that ``zero_label`` gave, once labels are read: of the chosen restart, of all, and after answers."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, pstdev

import torch
from torch import Tensor

from labelwise.core import Classifier, Labels
from labelwise.data.dataset import Split
from labelwise.errors import DataError
from labelwise.evaluate.answers import labelled_images
from labelwise.methods.naming import Doubt, name_clusters, named_model, uncertain_clusters
from labelwise.ops.assignment import best_matching
from labelwise.ops.linear import linear_scores

Order = Callable[[list[Doubt]], Doubt]
FIXED: Order = lambda doubts: min(doubts, key=lambda doubt: doubt.cluster)  # noqa: E731 - a rule by name
UNCERTAIN_FIRST: Order = lambda doubts: doubts[0]  # noqa: E731 - likewise


@dataclass(frozen=True, kw_only=True)
class NamedResult:
    """Figures of named clusters on labelled test images.

    Attributes:
        images: how many.
        accuracy: of the restart that was chosen without labels.
        restarts: the accuracy of every restart, the chosen one first.
        mean: of these.
        deviation: of these.
        clusters: accuracy of the chosen clusters under the best naming there is, which labels were read to find.
    """

    images: int
    accuracy: float
    restarts: tuple[float, ...]
    mean: float
    deviation: float
    clusters: float


@torch.no_grad()
def evaluate_named(classifier: Classifier, split: Split, labels: Labels) -> NamedResult:
    """Return how right the names of clusters are on a test split whose targets point into ``labels``."""
    model = named_model(classifier)
    images, targets = labelled_images(classifier, split, labels)
    codes = classifier.encode(images).float()
    own = [linear_scores(codes, opinion).argmax(1) for opinion in model.opinions]
    every = tuple(_share(answers == targets) for answers in own)
    chosen = classifier.scores_of_codes(codes).argmax(1)
    table = _table(chosen, targets, len(classifier.labels))
    best = table[torch.arange(len(table)), best_matching(table)].sum() / len(chosen)
    return NamedResult(
        images=len(images),
        accuracy=_share(chosen == targets),
        restarts=every,
        mean=fmean(every),
        deviation=pstdev(every),
        clusters=float(best),
    )


def answer_curve(
    classifier: Classifier, train: Split, test: Split, labels: Labels, order: Order = UNCERTAIN_FIRST
) -> list[float]:
    """Return the accuracy on ``test`` after 0, 1, 2 ... clusters were named by someone who sees the labels of ``train``.

    Args:
        classifier: one that ``zero_label`` made.
        train: labelled images by which a person would name a cluster.
        test: labelled images to measure on.
        labels: what the targets of both point into.
        order: which of the clusters left to ask about next; they come with the least certain first.
    """
    truth = _true_names(classifier, train, labels)
    images, targets = labelled_images(classifier, test, labels)
    found: list[float] = []
    now, answers = classifier, dict[int, str]()
    for _ in range(len(labels) + 1):
        found.append(_share(now.scores(images).argmax(1) == targets))
        left = [doubt for doubt in uncertain_clusters(now) if doubt.cluster not in answers]
        if not left:
            break
        asked = order(left)
        answers[asked.cluster] = classifier.labels.names[int(truth[asked.cluster])]
        now = name_clusters(classifier, answers)
    return found


def _true_names(classifier: Classifier, split: Split, labels: Labels) -> Tensor:
    """Return what a person would call each cluster ``[k]``, each label once."""
    model = named_model(classifier)
    images, targets = labelled_images(classifier, split, labels)
    answers = classifier.scores(images).argmax(1)
    return best_matching(_table(answers, targets, len(classifier.labels)))[model.names.cpu()]


def _table(answers: Tensor, targets: Tensor, k: int) -> Tensor:
    """Return how many images have each answer and each target ``[k, k]``."""
    if not len(answers):
        raise DataError("There is no labelled image to measure names on.")
    places = (answers * k + targets).cpu()
    return torch.zeros(k * k).index_add_(0, places, torch.ones(len(places))).view(k, k)


def _share(right: Tensor) -> float:
    return float(right.double().mean())
