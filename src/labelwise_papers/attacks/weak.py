"""Deliberately weak attacks, to show how much apparent robustness depends on the attack."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from labelwise.evaluation.evaluation import Evaluation
from labelwise.train.model import LabelModel
from labelwise_papers.attacks.pgd import Attack, Pgd, Points, Problem
from labelwise_papers.attacks.robust import RobustSettings, evaluate_robust


@dataclass(frozen=True)
class OfProbabilities:
    """An attack that is shown probabilities where it expects scores: where they saturate, no gradient is left."""

    black_box: ClassVar[bool] = False
    attack: Attack

    @property
    def name(self) -> str:
        """The name of the attack, and what it is shown."""
        return f"{self.attack.name}, of probabilities"

    def __call__(self, problem: Problem, generator: torch.Generator) -> Points:
        """Return the best point that the attack finds so."""
        scores = problem.scores
        return self.attack(replace(problem, scores=lambda images: scores(images).softmax(1)), generator)


def under_weak_attacks(
    evaluation: Evaluation, settings: RobustSettings, model: LabelModel, steps: Iterable[int], step_size: float
) -> dict[str, float]:
    """Return accuracy in per cent under PGD by steps of a share of epsilon, shown scores and shown probabilities, by name."""
    small: dict[str, Attack] = {f"PGD {count}, weak": Pgd(steps=count, step_size=step_size) for count in steps}
    trials = {**small, **{f"{name}, of probabilities": OfProbabilities(each) for name, each in small.items()}}
    stood = evaluate_robust(evaluation, replace(settings, attacks=tuple(trials.values())), model).attacks
    return {name: 100 * stood.get(attack.name, 0.0) for name, attack in trials.items()}
