"""Attacks on a function from images to scores: small changes of pixels that make a wrong label win.

Images lie in [0, 1] and stay there; no pixel moves further than epsilon (an L-infinity ball). Every attack returns the best
point it has seen: the one where the best wrong label leads the true one by most. The losses are computed from scores as they are,
never from probabilities: a saturated softmax has no gradient, and hides a weak model from its attacker.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from labelwise.errors import UsageError

Scores = Callable[[Tensor], Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Seen:
    """What an attack sees at one point of each image.

    Attributes:
        margins: how far the best wrong label leads the true one ``[n]``; above zero the image is fooled.
        fooled: whether another label than the true one wins ``[n]``.
        losses: what the attack raises ``[n]``.
        gradient: of these, of the images' shape; without one, zeros of no size.
    """

    margins: Tensor
    fooled: Tensor
    losses: Tensor
    gradient: Tensor


@dataclass(frozen=True, eq=False)
class Best:
    """The best point seen of each image: ``images [n, c, h, w]``, ``margins [n]`` and ``fooled [n]``."""

    images: Tensor
    margins: Tensor
    fooled: Tensor

    def better(self, images: Tensor, seen: Seen) -> "Best":
        """Return the better of these points and those."""
        return self._where(seen.margins > self.margins, Best(images, seen.margins, seen.fooled))

    def merged(self, rows: Tensor, others: "Best") -> "Best":
        """Return the same with better points of the images at ``rows`` taken over."""
        mine = Best(self.images[rows], self.margins[rows], self.fooled[rows])
        made = mine._where(others.margins > mine.margins, others)
        pairs = ((self.images, made.images), (self.margins, made.margins), (self.fooled, made.fooled))
        return Best(*(old.index_copy(0, rows, new) for old, new in pairs))

    def _where(self, take: Tensor, other: "Best") -> "Best":
        return Best(
            torch.where(take[:, None, None, None], other.images, self.images),
            torch.where(take, other.margins, self.margins),
            torch.where(take, other.fooled, self.fooled),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """What is attacked.

    Attributes:
        scores: images in [0, 1] ``[n, c, h, w]`` to scores ``[n, k]``, as they are before any softmax.
        images: where to start from.
        targets: the true label of each ``[n]``.
        epsilon: how far a pixel of each image may move ``[n]``.
    """

    scores: Scores
    images: Tensor
    targets: Tensor
    epsilon: Tensor

    @cached_property
    def radius(self) -> Tensor:
        """How far pixels may move ``[n, 1, 1, 1]``."""
        return self.epsilon.to(self.images)[:, None, None, None]

    @cached_property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """The lowest and the highest value of every pixel."""
        return (self.images - self.radius).clamp_min(0), (self.images + self.radius).clamp_max(1)

    def project(self, images: Tensor) -> Tensor:
        """Return the nearest images within the bounds."""
        return images.clamp(*self.bounds)

    def select(self, rows: Tensor) -> "Problem":
        """Return the problem of some images only."""
        return replace(self, images=self.images[rows], targets=self.targets[rows], epsilon=self.epsilon[rows])

    def random_start(self, generator: torch.Generator) -> Tensor:
        """Return a random point within reach of each image."""
        drawn = torch.rand(self.images.shape, generator=generator, device=self.images.device)
        return self.project(self.images + (2 * drawn - 1) * self.radius)

    def look(self, images: Tensor, loss: Loss) -> Seen:
        """Return what is seen at some points, with the gradient of a loss; where that is no number, it counts as zero."""
        with torch.enable_grad():
            points = images.detach().requires_grad_()
            scores = self.scores(points)
            losses = loss(scores.double(), self.targets)
            (gradient,) = torch.autograd.grad(losses.sum(), points)
        return replace(self._seen(scores.detach()), losses=losses.detach(), gradient=gradient.nan_to_num(0, 0, 0))

    @torch.no_grad()
    def glance(self, images: Tensor) -> Seen:
        """Return what is seen at some points from scores alone."""
        return self._seen(self.scores(images))

    def _seen(self, scores: Tensor) -> Seen:
        margins = margin(scores.double(), self.targets)
        return Seen(margins, scores.argmax(1) != self.targets, margins, scores.new_zeros(0))


class Attack(Protocol):
    """A way to attack, with its settings; the same generator gives the same points."""

    black_box: ClassVar[bool]

    @property
    def name(self) -> str:
        """What tables call it."""
        ...

    def __call__(self, problem: Problem, generator: torch.Generator) -> Best:
        """Return the best point found for each image."""
        ...


def margin(scores: Tensor, targets: Tensor) -> Tensor:
    """Return how far the best wrong label leads the true one ``[n]``, from scores ``[n, k]``."""
    right = scores.gather(1, targets[:, None])
    return (scores.scatter(1, targets[:, None], -torch.inf).amax(1, keepdim=True) - right)[:, 0]


def choice_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Return what the cross-entropy of each image rises with ``[n]``: the wrong scores' log-sum-exp minus the true score.

    The cross-entropy is log(1 + exp(this)), so both have the same order of points and the same signs of gradients. But this one
    does not saturate: a lead of a hundred, at which the gradient of a cross-entropy is zero to the last digit, hides nothing.
    """
    right = scores.gather(1, targets[:, None])[:, 0]
    return scores.scatter(1, targets[:, None], -torch.inf).logsumexp(1) - right


def in_turn(problem: Problem, tries: Sequence[Callable[[Problem, Tensor], Best]]) -> Best:
    """Return the best point of several tries, each on the images that those before left standing, given with their rows."""
    best = tries[0](problem, torch.arange(len(problem.images), device=problem.images.device))
    for attempt in tries[1:]:
        rows = (~best.fooled).nonzero()[:, 0]
        if not len(rows):
            break
        best = best.merged(rows, attempt(problem.select(rows), rows))
    return best


@dataclass(frozen=True, kw_only=True)
class Fgsm:
    """One step of the full radius along the sign of the gradient (Goodfellow et al. 2015)."""

    black_box: ClassVar[bool] = False
    name: ClassVar[str] = "fgsm"

    def __call__(self, problem: Problem, generator: torch.Generator) -> Best:
        """Return the better of the image itself and the step."""
        return Pgd(steps=1, step_size=1.0, random_start=False)(problem, generator)


@dataclass(frozen=True, kw_only=True)
class Pgd:
    """Projected gradient ascent on the cross-entropy (Madry et al. 2018).

    Attributes:
        steps: of each start.
        step_size: as a share of epsilon; None is 2.5 / steps.
        restarts: how many starts; later ones attack the images that are left standing.
        random_start: start at a random point of the ball, else at the image.
    """

    black_box: ClassVar[bool] = False

    steps: int = 20
    step_size: float | None = None
    restarts: int = 1
    random_start: bool = True

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_counts({"steps": self.steps, "restarts": self.restarts})
        if self.step_size is not None and self.step_size <= 0:
            raise UsageError(f"The step size must be above 0; given {self.step_size}.")

    @property
    def name(self) -> str:
        """The name and the steps."""
        return f"pgd-{self.steps}" + (f" x{self.restarts}" if self.restarts > 1 else "")

    def __call__(self, problem: Problem, generator: torch.Generator) -> Best:
        """Return the best point of all starts."""
        return in_turn(problem, [lambda part, _: self._once(part, generator)] * self.restarts)

    def _once(self, problem: Problem, generator: torch.Generator) -> Best:
        step = (self.step_size or 2.5 / self.steps) * problem.radius
        x = problem.random_start(generator) if self.random_start else problem.images
        seen = problem.look(x, choice_loss)
        best = Best(x, seen.margins, seen.fooled)
        for number in range(self.steps):
            x = problem.project(x + step * seen.gradient.sign())
            seen = problem.look(x, choice_loss) if number + 1 < self.steps else problem.glance(x)
            best = best.better(x, seen)
        return best


def check_counts(counts: Mapping[str, int]) -> None:
    """Raise an error unless every count is at least 1."""
    for name, count in counts.items():
        if count < 1:
            raise UsageError(f'Setting "{name}" of an attack must be at least 1; given {count}.')
