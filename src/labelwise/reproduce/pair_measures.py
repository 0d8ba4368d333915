"""Measures of what a classifier makes of pairs and of attacked pictures: retrieval, verification, robustness."""

from dataclasses import dataclass

from labelwise.evaluate.retrieval import KS, evaluate_retrieval
from labelwise.evaluate.robust import RobustSettings, evaluate_robust
from labelwise.evaluate.verification import PAIRS, evaluate_verification
from labelwise.ops.adaptive_attacks import Apgd
from labelwise.ops.attacks import Attack, Fgsm, Pgd
from labelwise.ops.square_attack import Square
from labelwise.reproduce.label_measures import Figures
from labelwise.reproduce.subject import Subject
from labelwise.tasks.verify import By


@dataclass(frozen=True, kw_only=True)
class RetrievalOptions:
    """How many first answers to look at."""

    ks: tuple[int, ...] = KS


@dataclass(frozen=True, kw_only=True)
class VerificationOptions:
    """By which scores pairs are told apart, and how many pairs of each kind at most."""

    by: tuple[By, ...] = ("cosine", "similarity", "sum")
    pairs: int = PAIRS


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


def retrieval(subject: Subject, options: RetrievalOptions) -> Figures:
    """Return recall at each k as ``R@k``, and the mean average precision at R."""
    found = evaluate_retrieval(subject.classifier, subject.test, ks=options.ks)
    return {f"R@{k}": 100 * share for k, share in found.recall.items()} | {"MAP@R": 100 * found.precision_at_r}


def verification(subject: Subject, options: VerificationOptions) -> Figures:
    """Return the equal error rate of pairs of test images by each score, as ``EER score``."""
    figures: Figures = {}
    for by in options.by:
        found = evaluate_verification(subject.classifier, subject.test, by=by, most=options.pairs)
        figures |= {f"EER {by}": 100 * found.eer, f"AUROC {by}": 100 * found.auroc}
    return figures


def robustness(subject: Subject, options: RobustnessOptions) -> Figures:
    """Return accuracy on clean pictures, under FGSM and each PGD alone, and under all attacks together (``worst``)."""
    trials: dict[str, Attack] = {"FGSM": Fgsm()}
    trials |= {f"PGD {steps}": Pgd(steps=steps, step_size=options.step_size) for steps in options.steps}
    final = (Apgd(steps=options.adaptive_steps), Apgd(loss="ratio", steps=options.adaptive_steps))
    attacks = (*trials.values(), *final, Square(queries=options.queries))
    split = (
        subject.test if options.images is None else subject.test.select(range(min(options.images, len(subject.test))))
    )
    settings = RobustSettings(epsilon=options.epsilon, attacks=attacks, seed=subject.run.seed)
    found = evaluate_robust(subject.classifier, split, subject.given.labels, settings)
    alone = {name: 100 * found.attacks.get(attack.name, 0.0) for name, attack in trials.items()}
    return {"clean": 100 * found.clean, **alone, "worst": 100 * found.worst, "warnings": list(found.warnings)}
