"""Measures of labels known by a description: seen and unseen labels, the toy of invertible flows, and named clusters."""

from dataclasses import dataclass
from typing import Literal

import torch

from labelwise.evaluate.ordinal import evaluate_ordinal
from labelwise.evaluate.tested import Tested
from labelwise.evaluate.zero_shot import evaluate_zero_shot
from labelwise.metrics import harmonic_mean
from labelwise.ops.balance import BalanceCurve
from labelwise_papers.analyses.named import FIXED, UNCERTAIN_FIRST, answer_curve, evaluate_named
from labelwise_papers.reproduce.label_measures import Figures, NoOptions
from labelwise_papers.reproduce.subject import Subject
from labelwise_papers.toy import Kind, draw_toy, run_toy

RATES = (
    "zero_shot",
    "unseen",
    "seen",
    "harmonic",
    "unseen_without_gap",
    "seen_without_gap",
    "harmonic_without_gap",
    "area",
)
GAPS = tuple(step / 200 for step in range(51))  # alpha, where a gap scales distances
UNSEEN = tuple(step / 100 for step in range(101))  # unseen accuracies at which the curve is kept


@dataclass(frozen=True, kw_only=True)
class ToyOptions:
    """Which generator to train in the plane, for how many steps, and how far centres of a run that succeeds may be off."""

    kind: Kind = "flow"
    steps: int = 4000
    unseen_error: float = 0.15
    seen_error: float = 0.1


@dataclass(frozen=True, kw_only=True)
class AskedOptions:
    """Which cluster a person is asked about next."""

    order: Literal["uncertain first", "fixed"] = "uncertain first"


def zero_shot(subject: Subject, _: NoOptions) -> Figures:
    """Return accuracies on seen and unseen labels in per cent, H for every gap, and the curve of seen over unseen accuracy."""
    found = evaluate_zero_shot(subject.tested)
    gaps = list(GAPS) if subject.classifier.calibration.penalty == "scale" else []
    at_gaps = [round(100 * harmonic_mean(*found.curve.at(gap)), 3) for gap in gaps]
    return {
        **{name: 100 * getattr(found, name) for name in RATES},
        "gap": found.gap,
        "validation_harmonic": 100 * subject.classifier.origin.summary.get("balance", {}).get("harmonic", float("nan")),
        "leaked": found.leaked,
        "gaps": gaps,
        "harmonic_at_gaps": at_gaps,
        "unseen_levels": [100 * level for level in UNSEEN],
        "seen_at_unseen": [100 * share for share in seen_at(found.curve)],
    }


def seen_at(curve: BalanceCurve) -> list[float]:
    """Return the best seen accuracy where unseen accuracy is at least 0, 0.01, ... 1; 0 where that is out of reach."""
    places = torch.searchsorted(curve.unseen, torch.tensor(UNSEEN, dtype=curve.unseen.dtype)).tolist()
    return [round(float(curve.seen[place]), 5) if place < len(curve.seen) else 0.0 for place in places]


def toy(subject: Subject, options: ToyOptions) -> Figures:
    """Return how far the centres are off that a generator learnt, and 100 where the run succeeds, else 0; draws the points."""
    found = run_toy(options.kind, subject.run.seed, options.steps)
    subject.pictures.mkdir(parents=True, exist_ok=True)
    draw_toy([found]).savefig(subject.pictures / f"{subject.name}.png", dpi=90)
    right = found.unseen_error < options.unseen_error and found.seen_error < options.seen_error
    return {"unseen_error": found.unseen_error, "seen_error": found.seen_error, "succeeds": 100.0 * right}


def named(subject: Subject, _: NoOptions) -> Figures:
    """Return how right the names of clusters are: of the chosen restart, the mean of all, and the best naming there is.

    Also what can be told without labels: how far mean scores agree with the prior, and which part of a cluster gets one label.
    """
    found = evaluate_named(subject.tested)
    report = subject.classifier.origin.summary["naming"]
    return {
        "accuracy": 100 * found.accuracy,
        "mean": 100 * found.mean,
        "deviation": 100 * found.deviation,
        "clusters": 100 * found.clusters,
        "restarts": [100 * share for share in found.restarts],
        "near": 100 * report["near"],
        "far": 100 * report["far"],
        "cohesion": 100 * sum(report["cohesion"]) / len(report["cohesion"]),
    }


def asked(subject: Subject, options: AskedOptions) -> Figures:
    """Return the accuracy after 0, 1, 2 ... clusters were named by a person, and the least number that names all rightly."""
    data = subject.given
    order = UNCERTAIN_FIRST if options.order == "uncertain first" else FIXED
    curve = [
        100 * share
        for share in answer_curve(
            Tested.of(subject.classifier, data.split("train"), data.labels), subject.tested, order
        )
    ]
    return {"answers": list(range(len(curve))), "after_answers": curve, "needed": float(curve.index(max(curve)))}


def ordinal(subject: Subject, _: NoOptions) -> Figures:
    """Return accuracy, mean absolute error in levels and quadratic kappa, where the most probable level is said."""
    found = evaluate_ordinal(subject.tested).best
    figures: Figures = {"accuracy": 100 * found.accuracy, "error": found.mean_absolute_error}
    return figures | ({} if found.kappa is None else {"kappa": found.kappa})
