"""Measures of classifiers whose test images have labels that training knows."""

from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from labelwise.data import load
from labelwise.evaluation.evaluation import align_targets
from labelwise.fitting.rebuild import model_of
from labelwise.fitting.steps import Trained
from labelwise.images.as_images import as_batch
from labelwise.images.images import join
from labelwise.methods.prototype.method import Head
from labelwise.support.errors import UsageError
from labelwise.train.distribution import choose_device
from labelwise_papers.analyses.answers import answer_calibration, yes_rates
from labelwise_papers.analyses.domains import Views, evaluate_domain_views, with_head
from labelwise_papers.analyses.joint import draw_joint, joint_view
from labelwise_papers.analyses.neighbours import nearest_labels
from labelwise_papers.analyses.probe import probe_embeddings
from labelwise_papers.analyses.saliency import salient_share
from labelwise_papers.analyses.snapshots import accuracy, through_snapshots
from labelwise_papers.attacks.apgd import Apgd
from labelwise_papers.attacks.pgd import Attack, Fgsm, Pgd
from labelwise_papers.attacks.robust import RobustSettings, evaluate_robust
from labelwise_papers.attacks.square import Square
from labelwise_papers.attacks.weak import under_weak_attacks
from labelwise_papers.reproduce.sources import is_at_hand
from labelwise_papers.reproduce.subject import Figures, Subject, record_of
from labelwise_papers.reproduce.tiny import tiny


def closed(subject: Subject) -> Figures:
    """Return accuracy over images and over labels, and how far probabilities of the best label are off."""
    result = record_of(subject.evaluation, "closed")
    rates = {"accuracy": 100 * result.accuracy, "class_accuracy": 100 * result.balanced_accuracy}
    return {**rates, "ece": result.ece, "leaked": result.leaked}


def best_epoch(subject: Subject) -> Figures:
    """Return the accuracy of the best of the epochs that were kept, and of each: chosen on test images, as papers may have done, and never a choice of ours."""
    classifier, test, labels = subject.classifier, subject.dataset.split("test"), subject.dataset.labels
    if subject.run.folder is None:
        raise UsageError("Epochs are kept in the folder of a run; the run has none.")
    model = model_of(classifier)
    kept = {
        epochs: 100 * accuracy(Trained.of(model).bind(classifier.labels), test, labels)
        for epochs in through_snapshots(model, subject.run.folder)
    }
    best = max([*kept.values(), 100 * record_of(subject.evaluation, "closed").accuracy])
    return {"best_epoch": best, "epochs": list(kept), "accuracy_after": list(kept.values())}


def calibration(subject: Subject) -> Figures:
    """Return how far probabilities of a yes are off, from raw scores and after calibration."""
    every = answer_calibration(subject.evaluation)["every"]
    return {f"ece_{when}": every[when]["ece"] for when in ("before", "after")}


def outliers(subject: Subject, *, sets: tuple[str, ...] = (), made: bool = False) -> Figures:
    """Return the AUROC of telling each set from test images, by confidence and by both signs.

    ``sets`` are names of data of none of the labels; one that is not at hand gives no figure. For quick runs tiny images are
    ``made`` in place of them.
    """
    figures: Figures = {}
    for name in sets:
        strange = _strange("tiny/pictures" if made else name, subject.classifier.shape, subject.root)
        if strange is None:
            continue
        evaluation = replace(subject.evaluation, outliers=subject.classifier.scores(strange))
        for sign, words in (("confidence", name), ("both", f"{name} (both signs)")):
            figures[words] = 100 * record_of(evaluation, "unknown", sign=sign).auroc
    return figures


@lru_cache(maxsize=4)
def _strange(name: str, shape: tuple[int, ...], root: Path | None) -> Tensor | None:
    """Return all images of another set in this shape ``[n, c, h, w]``; None where it is not at hand."""
    if name.startswith("tiny/"):
        return torch.from_numpy(as_batch(tiny(name).split("test").images, shape))
    if not is_at_hand(name, root):
        return None
    data = load(name, size=shape[1], root=root)
    return torch.from_numpy(as_batch(join([split.images for split in data.splits.values()]), shape))


def saliency(subject: Subject, *, images: int = 5_000, batch: int = 256) -> Figures:
    """Return the share of salient pixels of training images under their true label, by both scalings of the maps."""
    train, model = subject.dataset.split("train"), subject.classifier
    targets = torch.from_numpy(align_targets(model, train, subject.dataset.labels))[:images]
    ways = {"saliency": False, "saliency from zero": True}
    shares = {
        name: salient_share(
            model,
            torch.from_numpy(model.batch(train.images.select(range(min(images, len(train)))))),
            targets,
            batch=batch,
            from_zero=way,
        )
        for name, way in ways.items()
    }
    return {name: 100 * share["share"] for name, share in shares.items()}


def probe(subject: Subject) -> Figures:
    """Return the accuracy of a logistic regression on image embeddings."""
    return {"probe": 100 * probe_embeddings(subject.trained_on, subject.evaluation)["probe"]}


def neighbours(subject: Subject) -> Figures:
    """Return the nearest other label of every label, as figures called by the label."""
    return {one["label"]: one["nearest"][0] for one in nearest_labels(subject.classifier, 1)["labels"]}


def answers(subject: Subject) -> Figures:
    """Return how often the raw answer is yes: to the true label, a wrong one, and label inputs of ones and zeros."""
    rates = yes_rates(subject.evaluation)["raw"]
    return {f"yes_{kind}": 100 * rate for kind, rate in rates.items() if rate is not None and kind != "every_wrong"}


def joint(subject: Subject, *, images: int = 2_000, projection: Literal["pca", "umap"] = "pca") -> Figures:
    """Return how far a test image lies from the training images of its own label and of the nearest other; draws the plane.

    The image is the first test image that is answered rightly, under every label, among the first training images.
    """
    classifier, train = subject.classifier, subject.dataset.split("train")
    targets = align_targets(classifier, train, subject.dataset.labels)[:images]
    scores = subject.evaluation.scores
    right = np.flatnonzero(scores.best == np.asarray(subject.evaluation.targets)).tolist()
    if not right:
        raise UsageError("No test image is answered rightly, so there is none to draw. Train longer.")
    image, truth = scores[right[0] : right[0] + 1], classifier.labels.names[int(scores.best[right[0]])]
    view = joint_view(
        classifier.scores(train.images.select(range(min(images, len(train))))), targets, image, projection=projection
    )
    place = view.names.index(truth)
    others = np.delete(view.distances, place)
    subject.draw(draw_joint(view, truth), dpi=100)
    return {"own_distance": float(view.distances[place]), "nearest_other": float(np.nanmin(others))}


def domains(subject: Subject, *, every: int = 5, heads: tuple[Head, ...] = ()) -> Figures:
    """Return accuracy on each domain by models trained on the others, and the mean: by the oracle's choice, and ``strict``.

    Models are candidates after each ``every`` epochs and at the end; 0 means at the end only. ``heads`` of a prototype name
    labels, too, by the same trained models: figures called ``by`` the head.
    """
    if subject.method is None:
        raise UsageError("Domains are measured with a method; the row has none.")
    views: Views = {"": lambda model: model, **{f" by {head}": partial(with_head, head) for head in heads}}
    figures: Figures = {}
    for way, result in evaluate_domain_views(
        subject.dataset, subject.method, subject.run, every=every, views=views
    ).items():
        for each in result.domains:
            figures |= {
                f"{each.domain}{way}": 100 * each.oracle.test,
                f"{each.domain} strict{way}": 100 * each.strict.test,
            }
        figures |= {f"average{way}": 100 * result.oracle, f"average strict{way}": 100 * result.strict}
    return figures


def robustness(  # noqa: PLR0913 - the options of the measure
    subject: Subject,
    *,
    epsilon: float = 8 / 255,
    steps: tuple[int, ...] = (7, 20),
    step_size: float | None = None,
    adaptive_steps: int = 100,
    queries: int = 1000,
    images: int | None = None,
    weak_step: float | None = None,
) -> Figures:
    """Return accuracy on clean images, under FGSM and each PGD alone, and under all attacks together (``worst``).

    Only ``worst`` counts the two adaptive attacks, of ``adaptive_steps``, and the random search, of ``queries`` queries. The step
    size of PGD is a share of epsilon, 2.5 / steps where left out; there is a figure for each number of steps, and where there is
    a ``weak_step`` two for PGD by steps of that share, shown scores and shown probabilities, which ``worst`` does not count.
    """
    trials: dict[str, Attack] = {"FGSM": Fgsm()}
    trials |= {f"PGD {count}": Pgd(steps=count, step_size=step_size) for count in steps}
    final = (Apgd(steps=adaptive_steps), Apgd(loss="ratio", steps=adaptive_steps), Square(queries=queries))
    settings = RobustSettings(epsilon=epsilon, attacks=(*trials.values(), *final), seed=subject.run.seed)
    evaluation = subject.evaluation[torch.arange(len(subject.evaluation))[:images]]
    model = model_of(subject.classifier, choose_device(subject.run.device))
    result = evaluate_robust(evaluation, settings, model)
    alone = {name: 100 * result.attacks.get(attack.name, 0.0) for name, attack in trials.items()}
    if weak_step is not None:
        alone |= under_weak_attacks(evaluation, settings, model, steps, weak_step)
    return {"clean": 100 * result.clean, **alone, "worst": 100 * result.worst, "warnings": list(result.warnings)}
