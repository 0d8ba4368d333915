"""APGD: gradient ascent that finds its own step size, on the cross-entropy or on a ratio of score differences."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import ClassVar, Literal

import torch
from torch import Tensor

from labelwise.errors import UsageError
from labelwise.ops.attacks import Best, Loss, Problem, Seen, check_counts, choice_loss, in_turn, margin

MOMENTUM = 0.75  # alpha: the share of a move that follows the gradient, the rest repeats the last move
RISING = 0.75  # rho: the share of steps that must raise the loss, or the step size is halved
FIRST_CHECK, CLOSER, CLOSEST = (
    0.22,
    0.03,
    0.06,
)  # shares of all steps: the first check, then how gaps shrink, the smallest gap


def ratio_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the difference of logits ratio (DLR) ``[n]``: the margin over the distance of the first and the third score.

    Neither a shift nor a scale of the scores changes it. Two labels have no third score: the margin is returned as it is.
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

    Attributes:
        loss: ``choice`` (cross-entropy) or ``ratio`` (DLR).
        steps: of each start.
        restarts: how many starts; later ones attack the images that are left standing.
        aims: with ``ratio``, how many wrong labels to aim at, one after another, the nearest first; 0 aims at none.
    """

    black_box: ClassVar[bool] = False

    loss: Literal["choice", "ratio"] = "choice"
    steps: int = 100
    restarts: int = 1
    aims: int = 0

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_counts({"steps": self.steps, "restarts": self.restarts})
        if self.loss not in ("choice", "ratio"):
            raise UsageError(f'The loss of APGD is "choice" or "ratio"; given "{self.loss}".')
        if self.aims < 0 or (self.aims and self.loss == "choice"):
            raise UsageError(f'Only the loss "ratio" aims at wrong labels, at 0 or more of them; given {self.aims}.')

    @property
    def name(self) -> str:
        """The name, the loss and the aims."""
        return ("apgd-ce" if self.loss == "choice" else "apgd-dlr") + (f" t{self.aims}" if self.aims else "")

    def __call__(self, problem: Problem, generator: torch.Generator) -> Best:
        """Return the best point of all starts and aims."""
        if not self.aims:
            loss = choice_loss if self.loss == "choice" else ratio_loss
            return in_turn(problem, [lambda part, _: self._once(part, loss, generator)] * self.restarts)
        with torch.no_grad():
            scores = problem.scores(problem.images).scatter(1, problem.targets[:, None], -torch.inf)
        aims = scores.topk(min(self.aims, scores.shape[1] - 1)).indices
        tries = [
            lambda part, rows, column=column: self._once(part, aimed_ratio_loss(aims[rows, column]), generator)
            for column in range(aims.shape[1])
        ]
        return in_turn(problem, tries * self.restarts)

    def _once(self, problem: Problem, loss: Loss, generator: torch.Generator) -> Best:
        x = problem.random_start(generator)
        seen = problem.look(x, loss)
        best = Best(x, seen.margins, seen.fooled)
        climb = _Climb.start(x, seen, 2 * problem.radius)
        checks = set(check_steps(self.steps))
        for number in range(1, self.steps + 1):
            x = climb.ahead(problem, 1.0 if number == 1 else MOMENTUM)
            seen = problem.look(x, loss)
            best = best.better(x, seen)
            climb.arrive(x, seen)
            if number in checks:
                climb.check(number)
        return best


@dataclass(eq=False)
class _Climb:
    """One ascent under way.

    Attributes:
        images: where it is.
        previous: where it was a step ago.
        seen: at ``images``.
        top: the point of the highest loss so far.
        top_seen: its loss and gradient.
        step: the step size ``[n, 1, 1, 1]``.
        rises: how many steps since the last check raised the loss ``[n]``.
        checked_at: the step of the last check.
        checked_loss: the highest loss then ``[n]``.
        halved: whether the step size was halved then ``[n]``.
    """

    images: Tensor
    previous: Tensor
    seen: Seen
    top: Tensor
    top_seen: Seen
    step: Tensor
    rises: Tensor
    checked_at: int
    checked_loss: Tensor
    halved: Tensor

    @classmethod
    def start(cls, images: Tensor, seen: Seen, step: Tensor) -> "_Climb":
        """Return an ascent from here."""
        none = torch.zeros_like(seen.losses)
        return cls(images, images, seen, images, seen, step, none, 0, seen.losses, none.bool())

    def ahead(self, problem: Problem, momentum: float) -> Tensor:
        """Return the next point: a projected step, and some of the last move once more."""
        step = problem.project(self.images + self.step * self.seen.gradient.sign())
        move = momentum * (step - self.images) + (1 - momentum) * (self.images - self.previous)
        return problem.project(self.images + move)

    def arrive(self, images: Tensor, seen: Seen) -> None:
        """Go to a point and remember the highest."""
        self.rises = self.rises + (seen.losses > self.seen.losses)
        higher = seen.losses > self.top_seen.losses
        self.top, self.top_seen = _where(higher, images, seen, self.top, self.top_seen)
        self.images, self.previous, self.seen = images, self.images, seen

    def check(self, number: int) -> None:
        """Where the ascent makes little progress, halve the step and go back to the highest point."""
        few = self.rises < RISING * (number - self.checked_at)
        stuck = ~self.halved & (self.top_seen.losses == self.checked_loss)
        self.halved = few | stuck
        self.step = torch.where(self.halved[:, None, None, None], self.step / 2, self.step)
        self.images, self.seen = _where(self.halved, self.top, self.top_seen, self.images, self.seen)
        self.rises, self.checked_at = torch.zeros_like(self.rises), number
        self.checked_loss = self.top_seen.losses


def _where(take: Tensor, images: Tensor, seen: Seen, others: Tensor, other: Seen) -> tuple[Tensor, Seen]:
    """Return the first points where ``take [n]`` says so, else the others, and what is seen there."""
    pixels = take[:, None, None, None]
    chosen = Seen(
        torch.where(take, seen.margins, other.margins),
        torch.where(take, seen.fooled, other.fooled),
        torch.where(take, seen.losses, other.losses),
        torch.where(pixels, seen.gradient, other.gradient),
    )
    return torch.where(pixels, images, others), chosen


def check_steps(steps: int) -> Iterator[int]:
    """Yield the steps after which progress is checked: rarely at first, then more often."""
    before, now = 0.0, FIRST_CHECK
    while (step := ceil(round(now * steps, 6))) <= steps:
        yield step
        before, now = now, now + max(now - before - CLOSER, CLOSEST)
