"""Accuracy of the names that ``zero_label`` gives: of the chosen restart, of all restarts, and after answers."""

from statistics import fmean, pstdev
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from labelwise.core.arrays import Array, linear_scores
from labelwise.core.metrics import confusion_matrix
from labelwise.evaluation.evaluation import Evaluation
from labelwise.images.dataset import Dataset
from labelwise.methods.shared.linear import array
from labelwise.methods.zero_label.assignment import best_matching
from labelwise.methods.zero_label.method import NamedModel
from labelwise.methods.zero_label.naming import prior_agreement
from labelwise.methods.zero_label.rename import name_clusters, named_head, settled_names, uncertain_clusters
from labelwise.train.loop import train
from labelwise.train.method import Method, Run
from labelwise.train.train_data import TensorSplit, TrainData

Order = Literal["uncertain first", "fixed", "worth most"]


def evaluate_named(evaluation: Evaluation) -> dict[str, Any]:
    """Return how right the names of clusters are on labelled test images: of the restart that was chosen without labels.

    Also of every restart, the chosen one first, with their mean and deviation; and of the chosen ``clusters`` under the best
    naming there is, which labels were read to find.
    """
    head = named_head(evaluation.classifier)
    scores, positions = evaluation.labelled()
    targets = np.asarray(positions)
    answers = [scores.best, *(linear_scores(scores.embeddings, opinion).argmax(1) for opinion in head.opinions)]
    figures = _figures(answers, targets, len(evaluation.classifier.labels))
    return {"images": len(scores), **figures, **true_agreement(evaluation)}


def evaluate_with_labels(data: Dataset, method: Method, run: Run) -> dict[str, Any]:
    """Return the same figures of a method of naming that may read labels, for what names would need; no classifier is made.

    ``work`` is what its transport took, where the method counts it.
    """
    train_split, test = data.split("train"), data.split("test")
    part = TrainData(train=TensorSplit.of(train_split), val=TensorSplit.of(train_split.select([])), labels=data.labels)
    model, _ = train(method, part, run)
    assert isinstance(model, NamedModel)
    targets = np.asarray(test.targets)
    embeddings = array(model.encode_all(TensorSplit.of(test).images.to(model.head.weight.device)))
    answers = [linear_scores(embeddings, opinion).argmax(1) for opinion in model.known["opinions"]]
    return {**_figures([answers[0], *answers], targets, len(data.labels)), "work": model.report.get("work", {})}


def _figures(answers: list[Array], targets: Array, k: int) -> dict[str, Any]:
    """Return how right answers ``[n]`` are: the first, which count, and those of every restart, the others."""
    right, *restarts = (_share(own, targets) for own in answers)
    table = confusion_matrix(answers[0], targets, k).T
    return {
        "accuracy": right,
        "restarts": restarts,
        "mean": fmean(restarts),
        "deviation": pstdev(restarts),
        "clusters": float(table[np.arange(k), best_matching(table)].sum() / len(targets)),
    }


def true_agreement(evaluation: Evaluation) -> dict[str, float]:
    """Return the share of labels whose mean scores agree with the prior on the nearest two labels, the farthest two, and both.

    Means are over the images that have a label, as in figure 4A, whatever they are called; labels without an image are left out.
    """
    head = named_head(evaluation.classifier)
    scores, positions = evaluation.labelled()
    order = [head.labels.names.index(name) for name in evaluation.classifier.labels.names]
    raw, targets = np.empty_like(scores.raw), np.array(order)[np.asarray(positions)]
    raw[:, order] = scores.raw
    means = {label: raw[targets == label].mean(0) for label in np.unique(targets).tolist()}
    near, far = prior_agreement(np.stack(list(means.values())), head.alike, list(means))
    return {"near": float(near.mean()), "far": float(far.mean()), "near and far": float((near & far).mean())}


def answer_curve(train: Evaluation, test: Evaluation, order: Order = "uncertain first") -> list[float]:
    """Return the accuracy on ``test`` after 0, 1, 2 ... clusters were named by someone who sees the labels of ``train``.

    ``order`` says which of the clusters left is asked about next: the least certain, that of the least number, or the one whose answer is worth most.
    """
    classifier, truth = test.classifier, _true_names(train)
    scores, positions = test.labelled()
    targets = np.asarray(positions)
    accuracies: list[float] = []
    now, answers = classifier, dict[int, str]()
    for _ in range(len(test.labels) + 1):
        accuracies.append(_share(scores.of(now).best, targets))
        left = [doubt for doubt in uncertain_clusters(now) if doubt.cluster not in answers]
        if not left:
            break
        asked = left[0] if order == "uncertain first" else min(left, key=lambda doubt: doubt.cluster)
        if order == "worth most":
            worth = settled_names(now).worth
            asked = max(left, key=lambda doubt: worth[doubt.cluster])
        answers[asked.cluster] = classifier.labels.names[int(truth[asked.cluster])]
        now = name_clusters(classifier, answers)
    return accuracies


def _true_names(evaluation: Evaluation) -> Array:
    """Return what a person would call each cluster ``[k]``, each label once."""
    head = named_head(evaluation.classifier)
    scores, positions = evaluation.labelled()
    targets = np.asarray(positions)
    table = confusion_matrix(scores.best, targets, len(evaluation.classifier.labels)).T
    names: Array = best_matching(table)[head.names]
    return names


def _share(answers: ArrayLike, targets: ArrayLike) -> float:
    return float((np.asarray(answers) == np.asarray(targets)).mean())
