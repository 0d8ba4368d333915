"""Measures of a classifier of known labels: accuracy, answers, outliers, what it looks at, and what its embeddings hold."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from labelwise.data import load
from labelwise.data.read.pictures import as_batch
from labelwise.errors import UsageError
from labelwise.evaluate.closed import evaluate_closed
from labelwise.evaluate.outliers import evaluate_outliers
from labelwise.evaluate.tested import Tested, align_targets
from labelwise.scores import Scores
from labelwise_papers.analyses.answers import answer_calibration, yes_rates
from labelwise_papers.analyses.joint import draw_joint, joint_view
from labelwise_papers.analyses.neighbours import nearest_labels
from labelwise_papers.analyses.probe import probe_embeddings
from labelwise_papers.analyses.saliency import salient_share
from labelwise_papers.reproduce.sources import is_at_hand
from labelwise_papers.reproduce.subject import Subject
from labelwise_papers.reproduce.tiny import tiny

Figures = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """A measure without options."""


@dataclass(frozen=True, kw_only=True)
class OutlierOptions:
    """Sets of images that are none of the labels.

    Attributes:
        sets: their names; one that is not at hand gives no figure.
        made: tiny pictures in place of them, for quick runs.
    """

    sets: tuple[str, ...] = ()
    made: bool = False


@dataclass(frozen=True, kw_only=True)
class SaliencyOptions:
    """How many training images to look at, at most, and how many at a time."""

    images: int = 5_000
    batch: int = 256


@dataclass(frozen=True, kw_only=True)
class JointOptions:
    """Training images in the picture at most, and how the plane is found; ``umap`` needs the package umap-learn."""

    images: int = 2_000
    projection: Literal["pca", "umap"] = "pca"


def closed(subject: Subject, _: NoOptions) -> Figures:
    """Return accuracy over images and over labels, and how far probabilities of the best label are off."""
    found = evaluate_closed(subject.tested)
    return {
        "accuracy": 100 * found.accuracy,
        "class_accuracy": 100 * found.class_accuracy,
        "ece": found.ece,
        "leaked": found.leaked,
    }


def calibration(subject: Subject, _: NoOptions) -> Figures:
    """Return how far probabilities of a yes are off, from raw scores and after calibration."""
    every = answer_calibration(subject.tested).every
    return {"ece_before": every.before.ece, "ece_after": every.after.ece}


def outliers(subject: Subject, options: OutlierOptions) -> Figures:
    """Return the AUROC of telling each set from test images, by confidence and by both signs."""
    found: Figures = {}
    for name in options.sets:
        strange = _strange("tiny/pictures" if options.made else name, subject.classifier.model.spec.shape, subject.root)
        if strange is None:
            continue
        scores = subject.classifier.scores(strange)
        for sign, words in (("confidence", name), ("both", f"{name} (both signs)")):
            result = evaluate_outliers(subject.tested.scores, scores, sign=sign)  # type: ignore[arg-type]
            found[words] = 100 * result.auroc
    return found


@lru_cache(maxsize=4)
def _strange(name: str, shape: tuple[int, ...], root: Path | None) -> Tensor | None:
    """Return all images of another set in this shape ``[n, c, h, w]``; None where it is not at hand."""
    if name.startswith("tiny/"):
        return as_batch(tiny(name).split("test").images, shape)
    if not is_at_hand(name, root):
        return None
    data = load(name, size=shape[1], root=root)
    return as_batch(torch.cat([split.images for split in data.splits.values()]), shape)


def saliency(subject: Subject, options: SaliencyOptions) -> Figures:
    """Return the share of salient pixels of training images under their true label."""
    train = subject.given.split("train")
    targets = align_targets(subject.classifier, train, subject.given.labels)[: options.images]
    found = salient_share(subject.classifier, train.images[: options.images], targets, batch=options.batch)
    return {"saliency": 100 * found.share}


def probe(subject: Subject, _: NoOptions) -> Figures:
    """Return the accuracy of a logistic regression on image embeddings."""
    data = subject.given
    found = probe_embeddings(Tested.of(subject.classifier, data.split("train"), data.labels), subject.tested)
    return {"probe": 100 * found.probe}


def neighbours(subject: Subject, _: NoOptions) -> Figures:
    """Return the nearest other label of every label, as figures called by the label."""
    return {one.label: one.nearest[0] for one in nearest_labels(subject.classifier, 1).labels}


def answers(subject: Subject, _: NoOptions) -> Figures:
    """Return how often the raw answer is yes: to the true label, a wrong one, and label inputs of ones and zeros."""
    rates = yes_rates(subject.tested).raw
    kinds = ("right", "wrong", "ones", "zeros")
    found = {f"yes_{kind}": getattr(rates, kind) for kind in kinds}
    return {name: 100 * rate for name, rate in found.items() if rate is not None}


def joint(subject: Subject, options: JointOptions) -> Figures:
    """Return how far a test image lies from the training images of its own label and of the nearest other; draws the plane.

    The image is the first test image that is answered rightly, under every label.
    """
    classifier, data = subject.classifier, subject.given
    train = data.split("train")
    targets = align_targets(classifier, train, data.labels)[: options.images]
    image, truth = next(_answered(subject))
    known = classifier.scores(train.images[: options.images])
    view = joint_view(known, targets, image, projection=options.projection)
    place = view.names.index(truth)
    others = torch.cat([view.distances[:place], view.distances[place + 1 :]])
    subject.pictures.mkdir(parents=True, exist_ok=True)
    draw_joint(view, truth).savefig(subject.pictures / f"{subject.name}.png", dpi=100)
    return {"own_distance": float(view.distances[place]), "nearest_other": float(others[~others.isnan()].min())}


def _answered(subject: Subject) -> Iterator[tuple[Scores, str]]:
    """Yield the scores of test images that are answered rightly, one by one, and their labels."""
    names, scores = subject.classifier.labels.names, subject.tested.scores
    for row in (scores.best.cpu() == subject.tested.targets).nonzero()[:, 0].tolist():
        yield scores[row : row + 1], names[int(scores.best[row])]
    raise UsageError("No test image is answered rightly, so there is none to draw. Train longer.")
