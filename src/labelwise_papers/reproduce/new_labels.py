"""Measures of what a method does with labels that training did not know, or that nobody gave: zero-shot, pairs, names of clusters."""

from typing import Literal

import numpy as np
import torch
from torch.nn.functional import normalize, pad

from labelwise.core.balance import BalanceCurve
from labelwise.core.metrics import confusion_matrix, harmonic_mean
from labelwise.evaluation.episodes import EpisodeSettings
from labelwise.evaluation.retrieval import KS
from labelwise.evaluation.verification import PAIRS
from labelwise.methods.zero_label.assignment import best_matching
from labelwise.methods.zero_label.label_prior import Source, label_similarity
from labelwise.methods.zero_label.transport import LabelPrior
from labelwise.support.errors import UsageError
from labelwise.support.rows import Draws
from labelwise.tasks.similarity import By
from labelwise.train.tensors import kmeans
from labelwise_papers.analyses.named import Order, answer_curve, evaluate_named, evaluate_with_labels
from labelwise_papers.analyses.naming_loss import NamingLoss, compare_namings
from labelwise_papers.reproduce.subject import Figures, Subject, record_of
from labelwise_papers.toy import Kind, draw_toy, run_toy

RATES = ("zero_shot", "unseen", "seen", "harmonic")
GAPS = tuple(step / 200 for step in range(51))  # alpha, where a gap scales distances
UNSEEN = tuple(step / 100 for step in range(101))  # unseen accuracies at which the curve is kept


def retrieval(subject: Subject, *, ks: tuple[int, ...] = KS, by: tuple[By, ...] = ("similarity",)) -> Figures:
    """Return recall at each k as ``R@k``, and the mean average precision at R; by scores after the first as ``R@k score``."""
    figures: Figures = {}
    every = len(subject.evaluation)
    for place, (score, result) in enumerate(
        record_of(subject.evaluation, "retrieval", scores=by, most=every, ks=ks).items()
    ):
        words = f" {score}" if place else ""
        figures |= {f"R@{k}{words}": 100 * share for k, share in result.recall.items()}
        figures[f"MAP@R{words}"] = 100 * result.precision_at_r
    return figures


def verification(
    subject: Subject, *, by: tuple[By, ...] = ("cosine", "similarity", "sum"), pairs: int = PAIRS
) -> Figures:
    """Return the equal error rate by each score, over at most ``pairs`` pairs of either kind, as ``EER score``."""
    figures: Figures = {}
    every = len(subject.evaluation)
    for score, result in record_of(subject.evaluation, "verification", scores=by, most=every, pairs=pairs).items():
        figures |= {f"EER {score}": 100 * result.eer, f"AUROC {score}": 100 * result.auroc}
    return figures


def episodes(
    subject: Subject, *, ways: int = 5, shots: tuple[int, ...] = (1, 5), queries: int = 15, count: int = 600
) -> Figures:
    """Return the accuracy of few-shot episodes as ``n-shot``, by nearest means and by cosine, with 95 % intervals."""
    figures: Figures = {}
    settings = [
        EpisodeSettings(ways=ways, shots=each, queries=queries, count=count, seed=subject.run.seed) for each in shots
    ]
    for each, result in zip(shots, record_of(subject.evaluation, "episodes", settings=settings), strict=True):
        for way, estimate in result.accuracy.items():
            words = f"{each}-shot" + ("" if way == "taught" else f", {way}")
            figures |= {words: 100 * estimate.mean, f"{words} (interval)": 100 * estimate.error}
    return figures


def zero_shot(subject: Subject) -> Figures:
    """Return accuracies on seen and unseen labels in per cent, H for every gap, and the curve of seen over unseen accuracy."""
    result = record_of(subject.evaluation, "zero_shot")
    rates = (*RATES, *(f"{name}_without_gap" for name in RATES[1:]), "area")
    gaps = list(GAPS) if subject.classifier.calibration.penalty == "scale" else []
    return {
        **{name: 100 * getattr(result, name) for name in rates},
        "gap": result.gap,
        "validation_harmonic": 100 * subject.classifier.origin.summary.get("balance", {}).get("harmonic", float("nan")),
        "leaked": result.leaked,
        "gaps": gaps,
        "harmonic_at_gaps": [round(100 * harmonic_mean(*result.curve.at(gap)), 3) for gap in gaps],
        "unseen_levels": [100 * level for level in UNSEEN],
        "seen_at_unseen": [100 * share for share in seen_at(result.curve)],
    }


def seen_at(curve: BalanceCurve) -> list[float]:
    """Return the best seen accuracy where unseen accuracy is at least 0, 0.01, ... 1; 0 where that is out of reach."""
    places = np.searchsorted(curve.unseen, UNSEEN).tolist()
    return [round(float(curve.seen[place]), 5) if place < len(curve.seen) else 0.0 for place in places]


def named(subject: Subject) -> Figures:
    """Return how right the names of clusters are: of the chosen restart, the mean of all, and the best naming there is.

    Also how far the mean scores of the true labels agree with the prior, and which part of a cluster gets one label.
    """
    result, report = evaluate_named(subject.evaluation), subject.classifier.origin.summary["naming"]
    return {
        **_rates(result),
        **report.get("work", {}),
        **{name: 100 * result[name] for name in ("near", "far", "near and far")},
        "cohesion": 100 * sum(report["cohesion"]) / len(report["cohesion"]),
    }


def named_with_labels(subject: Subject) -> Figures:
    """Return how right names are where labels may be read for the start: what a naming would need, and no result."""
    if subject.method is None:
        raise UsageError("Naming is measured with a method; the row has none.")
    result = evaluate_with_labels(subject.dataset, subject.method, subject.run)
    return {**_rates(result), **result["work"]}


def _rates(result: Figures) -> Figures:
    rates = {name: 100 * result[name] for name in ("accuracy", "mean", "deviation", "clusters")}
    return {**rates, "restarts": [100 * share for share in result["restarts"]]}


def objective(
    subject: Subject,
    *,
    prior: Source = "words",
    clusters: Literal["labels", "kmeans"] = "labels",
    bias: bool = False,
    searches: int = 20,
) -> Figures:
    """Return the lowest loss that stage III of zero_label allows under the true names, and under those of lowest loss found.

    Clusters are those of k-means, or the labels themselves; the layer may have a ``bias``, as codes that do not lie around their mean have it. Names right are in per cent, and so is by how much each search ends
    ``apart`` from the loss of the true names, the lowest first.
    """
    train, k = subject.dataset.split("train"), len(subject.dataset.labels)
    codes, generator = (
        normalize(torch.from_numpy(train.images.values).float(), dim=1),
        torch.Generator().manual_seed(subject.run.seed),
    )
    members = torch.from_numpy(train.targets) if clusters == "labels" else kmeans(codes, k, generator).members
    truth = torch.from_numpy(best_matching(confusion_matrix(members, train.targets, k).T))
    codes = pad(codes, (0, int(bias)), value=1.0)
    loss = NamingLoss.of(codes, members, LabelPrior.of(label_similarity(subject.dataset.labels, prior)))
    figures = compare_namings(loss, truth, searches, Draws(subject.run.seed))
    apart = [100 * each for each in figures["apart"]]
    return figures | {"right": 100 * figures["right"], "apart": apart, "search": list(range(1, len(apart) + 1))}


def asked(subject: Subject, *, order: Order = "uncertain first") -> Figures:
    """Return the accuracy after 0, 1, 2 ... clusters were named by a person, and the least number that names all rightly."""
    curve = [100 * share for share in answer_curve(subject.trained_on, subject.evaluation, order)]
    return {"answers": list(range(len(curve))), "after_answers": curve, "needed": float(curve.index(max(curve)))}


def ordinal(subject: Subject) -> Figures:
    """Return accuracy, mean absolute error in levels and quadratic kappa, where the most probable level is said."""
    result = record_of(subject.evaluation, "ordinal").best
    figures: Figures = {"accuracy": 100 * result.accuracy, "error": result.mean_absolute_error}
    return figures | ({} if result.kappa is None else {"kappa": result.kappa})


def toy(
    subject: Subject, *, kind: Kind = "flow", steps: int = 4000, unseen_error: float = 0.15, seen_error: float = 0.1
) -> Figures:
    """Return how far the centres are off that a generator learnt, and whether by less than two errors (100, else 0); draws them."""
    result = run_toy(kind, subject.run.seed, steps)
    subject.draw(draw_toy([result]), dpi=90)
    right = result.unseen_error < unseen_error and result.seen_error < seen_error
    return {"unseen_error": result.unseen_error, "seen_error": result.seen_error, "succeeds": 100.0 * right}
