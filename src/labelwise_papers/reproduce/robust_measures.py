"""Measures under change: attacked pictures, and domains that training never saw."""

from dataclasses import dataclass

import torch

from labelwise.errors import UsageError
from labelwise.evaluate.robust import RobustSettings, evaluate_robust
from labelwise.ops.adaptive_attacks import Apgd
from labelwise.ops.attacks import Attack, Fgsm, Pgd
from labelwise.ops.square_attack import Square
from labelwise_papers.analyses.domains import evaluate_domains
from labelwise_papers.reproduce.label_measures import Figures
from labelwise_papers.reproduce.subject import Subject


@dataclass(frozen=True, kw_only=True)
class RobustnessOptions:
    """How pictures are attacked.

    Attributes:
        epsilon: how far a pixel may move, where pixels lie in [0, 1].
        steps: of PGD, one figure for each.
        step_size: of PGD, as a share of epsilon; None is 2.5 / steps.
        adaptive_steps: of the two adaptive attacks, which only ``worst`` counts.
        queries: of the random search, which only ``worst`` counts.
        images: test images at most; None is all.
    """

    epsilon: float = 8 / 255
    steps: tuple[int, ...] = (7, 20)
    step_size: float | None = None
    adaptive_steps: int = 100
    queries: int = 1000
    images: int | None = None


@dataclass(frozen=True, kw_only=True)
class DomainsOptions:
    """After how many epochs a model may be chosen, beside that at the end; 0 is that at the end alone."""

    every: int = 5


def robustness(subject: Subject, options: RobustnessOptions) -> Figures:
    """Return accuracy on clean pictures, under FGSM and each PGD alone, and under all attacks together (``worst``)."""
    trials: dict[str, Attack] = {"FGSM": Fgsm()}
    trials |= {f"PGD {steps}": Pgd(steps=steps, step_size=options.step_size) for steps in options.steps}
    final = (Apgd(steps=options.adaptive_steps), Apgd(loss="ratio", steps=options.adaptive_steps))
    attacks = (*trials.values(), *final, Square(queries=options.queries))
    count = len(subject.tested) if options.images is None else min(options.images, len(subject.tested))
    settings = RobustSettings(epsilon=options.epsilon, attacks=attacks, seed=subject.run.seed)
    found = evaluate_robust(subject.tested[torch.arange(count)], settings)
    alone = {name: 100 * found.attacks.get(attack.name, 0.0) for name, attack in trials.items()}
    return {"clean": 100 * found.clean, **alone, "worst": 100 * found.worst, "warnings": list(found.warnings)}


def domains(subject: Subject, options: DomainsOptions) -> Figures:
    """Return accuracy on each domain by models trained on the others, and the mean: by the oracle's choice, and ``strict``."""
    if subject.method is None:
        raise UsageError("Domains are measured with a method; the row has none.")
    found = evaluate_domains(subject.given, subject.method, subject.run, every=options.every)
    figures: Figures = {}
    for each in found.domains:
        figures |= {each.domain: 100 * each.oracle.test, f"{each.domain} strict": 100 * each.strict.test}
    return figures | {"average": 100 * found.oracle, "average strict": 100 * found.strict}
