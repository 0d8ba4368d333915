"""Measures of a cell: functions of a subject; their other parameters are options.

A measure returns figures by name: numbers (rates in per cent), words, or lists for plots. It fits the subject's classifier by
asking for it, or makes fits of its own with ``Subject.fit``.
"""

import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, make_dataclass, replace
from functools import cache, lru_cache, partial
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from labelwise.core.balance import BalanceCurve
from labelwise.core.metrics import confusion_matrix, harmonic_mean
from labelwise.data import load
from labelwise.evaluation.episodes import EpisodeSettings
from labelwise.evaluation.evaluation import Evaluation, align_targets
from labelwise.evaluation.protocols import PROTOCOLS
from labelwise.evaluation.retrieval import KS
from labelwise.evaluation.verification import PAIRS
from labelwise.fitting.rebuild import model_of
from labelwise.fitting.steps import Trained
from labelwise.images.as_images import as_batch
from labelwise.images.images import join
from labelwise.methods.prototype.method import Head
from labelwise.methods.zero_label.assignment import best_matching
from labelwise.methods.zero_label.label_prior import Source, label_similarity
from labelwise.methods.zero_label.transport import LabelPrior
from labelwise.support.errors import DataError, LabelwiseError, UsageError, listing, suggest
from labelwise.support.rows import Draws
from labelwise.support.settings import from_plain
from labelwise.tasks.similarity import By
from labelwise.train.tensors import kmeans
from labelwise_papers.analyses.answers import answer_calibration, yes_rates
from labelwise_papers.analyses.domains import Views, evaluate_domain_views, with_head
from labelwise_papers.analyses.joint import draw_joint, joint_view
from labelwise_papers.analyses.named import Order, answer_curve, evaluate_named, evaluate_with_labels
from labelwise_papers.analyses.naming_loss import NamingLoss, compare_namings
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
from labelwise_papers.reproduce.subject import Subject
from labelwise_papers.reproduce.tiny import tiny
from labelwise_papers.toy import Kind, draw_toy, run_toy

Figures = dict[str, Any]
RATES = ("zero_shot", "unseen", "seen", "harmonic")
GAPS = tuple(step / 200 for step in range(51))  # alpha, where a gap scales distances
UNSEEN = tuple(step / 100 for step in range(101))  # unseen accuracies at which the curve is kept


def record_of(evaluation: Evaluation, name: str, **options: Any) -> Any:
    """Return the record of a protocol; one that does not apply is an error."""
    protocol = PROTOCOLS[name]
    if why := protocol.reason(evaluation):
        raise DataError(f"{protocol.title}: {why}")
    return protocol.run(evaluation, **options)


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
        epochs: 100 * accuracy(Trained.of(model).bound(classifier.labels), test, labels)
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
    """Return the share of salient pixels of so many training images under their true label, of maps scaled either way."""
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

    The image is the first test image that is answered rightly, under every label, among so many training images.
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
    """Return the equal error rate of at most so many pairs of either kind by each score, as ``EER score``."""
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


def domains(subject: Subject, *, every: int = 5, heads: tuple[Head, ...] = ()) -> Figures:
    """Return accuracy on each domain by models trained on the others, and the mean: by the oracle's choice, and ``strict``.

    A model may be chosen after so many epochs each, next to that at the end; 0 is that at the end alone. ``heads`` of a prototype name
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

    Only ``worst`` counts the two adaptive attacks, of ``adaptive_steps``, and the random search, of so many ``queries``. The step
    size of PGD is a share of epsilon, 2.5 / steps where left out; there is a figure for each number of steps, and where there is
    a ``weak_step`` two for PGD by steps of that share, shown scores and shown probabilities, which ``worst`` does not count.
    """
    trials: dict[str, Attack] = {"FGSM": Fgsm()}
    trials |= {f"PGD {count}": Pgd(steps=count, step_size=step_size) for count in steps}
    final = (Apgd(steps=adaptive_steps), Apgd(loss="ratio", steps=adaptive_steps), Square(queries=queries))
    settings = RobustSettings(epsilon=epsilon, attacks=(*trials.values(), *final), seed=subject.run.seed)
    evaluation = subject.evaluation[torch.arange(len(subject.evaluation))[:images]]
    result = evaluate_robust(evaluation, settings)
    alone = {name: 100 * result.attacks.get(attack.name, 0.0) for name, attack in trials.items()}
    if weak_step is not None:
        alone |= under_weak_attacks(evaluation, settings, steps, weak_step)
    return {"clean": 100 * result.clean, **alone, "worst": 100 * result.worst, "warnings": list(result.warnings)}


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
        **{name: 100 * result[name] for name in ("accuracy", "mean", "deviation", "clusters")},
        "restarts": [100 * share for share in result["restarts"]],
        **{name: 100 * result[name] for name in ("near", "far", "near and far")},
        "cohesion": 100 * sum(report["cohesion"]) / len(report["cohesion"]),
    }


def named_with_labels(subject: Subject) -> Figures:
    """Return how right names are where labels may be read for the start: what a naming would need, and no result."""
    if subject.method is None:
        raise UsageError("Naming is measured with a method; the row has none.")
    figures = evaluate_with_labels(subject.dataset, subject.method, subject.run)
    return {name: 100 * share for name, share in figures.items()}


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


MEASURES: Mapping[str, Callable[..., Figures]] = {
    run.__name__: run
    for run in (
        closed, best_epoch, calibration, outliers, saliency, probe, neighbours, answers, joint, retrieval, verification, episodes, domains,
        robustness, zero_shot, named, named_with_labels, objective, asked, ordinal, toy,
    )
}  # fmt: skip

QUICK: Mapping[str, Mapping[str, Any]] = {  # options that make a measure quick
    "outliers": {"made": True},
    "saliency": {"images": 16},
    "joint": {"projection": "pca"},
    "verification": {"pairs": 500},
    "episodes": {"ways": 2, "queries": 2, "count": 3},
    "domains": {"every": 1},
    "robustness": {"images": 4, "adaptive_steps": 2, "queries": 2},
    "objective": {"searches": 2},
    "toy": {"steps": 2},
}


@cache
def _options_of(name: str) -> type[Any]:
    """Return the options of a measure as a class, whose values ``from_plain`` checks."""
    _, *options = signature(MEASURES[name], eval_str=True).parameters.values()
    return make_dataclass(name, [(one.name, one.annotation, field(default=one.default)) for one in options])


def check_measures(names: Iterable[str], options: Mapping[str, Mapping[str, Any]], where: str) -> None:
    """Raise an error for measures or options that there are not."""
    for name in [*names, *options]:
        if name not in MEASURES:
            raise UsageError(
                f'Row "{where}": no measure "{name}".{suggest(name, MEASURES)} Measures: {listing(MEASURES, 40)}.'
            )
    for name, values in options.items():
        from_plain(_options_of(name), values, f"options.{name}.")


def measure(
    subject: Subject, names: Iterable[str], options: Mapping[str, Mapping[str, Any]]
) -> tuple[Figures, dict[str, str]]:
    """Return all figures of a subject, and why measures failed by name: what is trained is not lost by one of them."""
    figures: Figures = {}
    failed: dict[str, str] = {}
    for name in names:
        values = from_plain(_options_of(name), options.get(name, {}), f"options.{name}.")
        try:
            figures |= MEASURES[name](subject, **vars(values))
        except Exception as error:
            if "classifier" not in vars(subject):
                raise
            failed[name] = str(error) if isinstance(error, LabelwiseError) else traceback.format_exc()
    return figures, failed
