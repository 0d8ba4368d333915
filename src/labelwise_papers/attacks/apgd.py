"""APGD: gradient ascent that finds its own step size, on the cross-entropy or on a ratio of score differences."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import ClassVar, Literal

import torch
from torch import Tensor

from labelwise.support.errors import UsageError
from labelwise.support.settings import check_range
from labelwise_papers.attacks.pgd import Loss, Points, Problem, choice_loss, margin

MOMENTUM = 0.75  # alpha: the share of a move that follows the gradient, the rest repeats the last move
RISING = 0.75  # rho: the share of steps that must raise the loss, or the step size is halved
# Shares of all steps: the first check, then how the gaps between checks shrink, the smallest gap.
FIRST_CHECK, CLOSER, CLOSEST = 0.22, 0.03, 0.06


def ratio_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the difference of logits ratio (DLR) ``[n]``: the margin over the distance of the first and the third score.

    Neither a shift nor a scale of the scores changes it. Two labels have no third score: the margin is returned unchanged.
    """
    if scores.shape[1] < 3:
        return margin(scores, targets)
    top = scores.topk(3).values
    return margin(scores, targets) / (top[:, 0] - top[:, 2] + 1e-12)


def aimed_ratio_loss(aims: Tensor) -> Loss:
    """Return the DLR loss toward a given wrong label of each image, ``aims [n]``."""

    def loss(scores: Tensor, targets: Tensor) -> Tensor:
        lead = (scores.gather(1, aims[:, None]) - scores.gather(1, targets[:, None]))[:, 0]
        if scores.shape[1] < 3:
            return lead
        top = scores.topk(min(4, scores.shape[1])).values
        return lead / (top[:, 0] - top[:, 2:].mean(1) + 1e-12)

    return loss


@dataclass(frozen=True, kw_only=True)
class Apgd:
    """Gradient ascent that finds its own step size (APGD, Croce and Hein 2020).

    The step starts at twice the radius. At checkpoints it is halved, and the ascent goes back to the point with the highest loss, where
    too few steps raised the loss or a whole stretch found nothing better.
    """

    black_box: ClassVar[bool] = False

    loss: Literal["choice", "ratio"] = "choice"  # `choice` (cross-entropy) or `ratio` (DLR)
    steps: int = 100
    # with `ratio`, how many wrong labels to aim at, one after another, the nearest first, each on the images that are
    # left standing; 0 aims at none
    aims: int = 0

    def __post_init__(self) -> None:
        check_range(self, "at least 1", "steps")
        if self.loss not in ("choice", "ratio"):
            raise UsageError(f'The loss of APGD is "choice" or "ratio"; given "{self.loss}".')
        if self.aims < 0 or (self.aims and self.loss == "choice"):
            raise UsageError(f'Only the loss "ratio" aims at wrong labels, at 0 or more of them; given {self.aims}.')

    @property
    def name(self) -> str:
        """The name, the loss and the aims."""
        return ("apgd-ce" if self.loss == "choice" else "apgd-dlr") + (f" t{self.aims}" if self.aims else "")

    def __call__(self, problem: Problem, generator: torch.Generator) -> Points:
        """Return the best point of all aims."""
        if not self.aims:
            return self._climb(problem, choice_loss if self.loss == "choice" else ratio_loss, generator)
        best = problem.glance(problem.images)
        with torch.no_grad():
            scores = problem.scores(problem.images).scatter(1, problem.targets[:, None], -torch.inf)
        aims = scores.topk(min(self.aims, scores.shape[1] - 1)).indices
        rows = torch.arange(len(aims), device=aims.device)
        for column in range(aims.shape[1]):
            if len(rows):
                aimed = aimed_ratio_loss(aims[rows, column])
                best = best.merged(rows, self._climb(problem.select(rows), aimed, generator))
                rows = (~best.fooled).nonzero()[:, 0]
        return best

    def _climb(self, problem: Problem, loss: Loss, generator: torch.Generator) -> Points:
        """Return the best point of one ascent."""
        best = top = here = problem.look(problem.random_start(generator), loss)
        previous, step, momentum = here.images, 2 * problem.radius, 1.0
        rises, halved = torch.zeros_like(here.losses), torch.zeros_like(here.fooled)
        checked, checked_losses, checks = 0, here.losses, set(check_steps(self.steps))
        for number in range(1, self.steps + 1):
            ahead = problem.project(here.images + step * here.gradient.sign())
            move = momentum * (ahead - here.images) + (1 - momentum) * (here.images - previous)
            before, here = here, problem.look(problem.project(here.images + move), loss)
            previous, momentum = before.images, MOMENTUM
            rises = rises + (here.losses > before.losses)
            best, top = best.better(here), top.where(here.losses > top.losses, here)
            if number in checks:
                stuck = ~halved & (top.losses == checked_losses)
                halved = stuck | (rises < RISING * (number - checked))
                step = torch.where(halved[:, None, None, None], step / 2, step)
                here = here.where(halved, top)
                rises, checked, checked_losses = torch.zeros_like(rises), number, top.losses
        return best


def check_steps(steps: int) -> Iterator[int]:
    """Yield the steps after which progress is checked: rarely at first, then more often."""
    before, now = 0.0, FIRST_CHECK
    while (step := ceil(round(now * steps, 6))) <= steps:
        yield step
        before, now = now, now + max(now - before - CLOSER, CLOSEST)
