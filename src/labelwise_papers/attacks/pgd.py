"""Attacks on a function from images to scores: small changes of pixels that make a wrong label win.

Images are in [0, 1] and stay there; no pixel moves further than epsilon (an L-infinity ball). Every attack returns the best
point it has seen: the one where the best wrong label leads the true one by most. The losses are computed from scores unchanged,
never from probabilities: a saturated softmax has no gradient, and hides a weak model from its attacker. By hand, because the
libraries need torchvision.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from labelwise.support.settings import check_range

Scores = Callable[[Tensor], Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]


class Points(NamedTuple):
    """A point near each image, and what an attack sees there."""

    images: Tensor  # the points [n, c, h, w]
    margins: Tensor  # how far the best wrong label leads the true one [n]
    fooled: Tensor  # whether another label than the true one wins [n]
    losses: Tensor  # what the attack raises [n]
    gradient: Tensor  # of these, of the images' shape; zeros where only scores were seen

    def where(self, take: Tensor, others: "Points") -> "Points":
        """Return the others where ``take [n]`` says so."""
        pixels = take[:, None, None, None]
        return Points(*(torch.where(pixels if a.ndim == 4 else take, b, a) for a, b in zip(self, others, strict=True)))

    def better(self, others: "Points") -> "Points":
        """Return the better of these points and those."""
        return self.where(others.margins > self.margins, others)

    def merged(self, rows: Tensor, others: "Points") -> "Points":
        """Return the same with better points of the images at ``rows`` taken over."""
        best = Points(*(own[rows] for own in self)).better(others)
        return Points(*(old.index_copy(0, rows, new) for old, new in zip(self, best, strict=True)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """What is attacked."""

    scores: Scores  # images in [0, 1] [n, c, h, w] to scores [n, k], as they are before any softmax
    images: Tensor  # where to start from
    targets: Tensor  # the true label of each [n]
    epsilon: Tensor  # how far a pixel of each image may move [n]

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
        uniform = torch.rand(self.images.shape, generator=generator, device=self.images.device)
        return self.project(self.images + (2 * uniform - 1) * self.radius)

    def look(self, images: Tensor, loss: Loss) -> Points:
        """Return what is seen at some points, with the gradient of a loss; where that is no number, it counts as zero."""
        with torch.enable_grad():
            points = images.detach().requires_grad_()
            scores = self.scores(points)
            losses = loss(scores.double(), self.targets)
            (gradient,) = torch.autograd.grad(losses.sum(), points)
        seen = self._seen(images, scores.detach())
        return seen._replace(losses=losses.detach(), gradient=gradient.nan_to_num(0, 0, 0))

    @torch.no_grad()
    def glance(self, images: Tensor) -> Points:
        """Return what is seen at some points from scores alone."""
        return self._seen(images, self.scores(images))

    def _seen(self, images: Tensor, scores: Tensor) -> Points:
        margins = margin(scores.double(), self.targets)
        return Points(images, margins, scores.argmax(1) != self.targets, margins, torch.zeros_like(images))


class Attack(Protocol):
    """A way to attack, with its settings; the same generator gives the same points."""

    black_box: ClassVar[bool]

    @property
    def name(self) -> str:
        """What tables call it."""
        ...

    def __call__(self, problem: Problem, generator: torch.Generator) -> Points:
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


@dataclass(frozen=True, kw_only=True)
class Fgsm:
    """One step of the full radius along the sign of the gradient (Goodfellow et al. 2015)."""

    black_box: ClassVar[bool] = False
    name: ClassVar[str] = "fgsm"

    def __call__(self, problem: Problem, generator: torch.Generator) -> Points:
        """Return the better of the image itself and the step."""
        return Pgd(steps=1, step_size=1.0, random_start=False)(problem, generator)


@dataclass(frozen=True, kw_only=True)
class Pgd:
    """Projected gradient ascent on the cross-entropy (Madry et al. 2018)."""

    black_box: ClassVar[bool] = False

    steps: int = 20
    step_size: float | None = None  # as a share of epsilon; None is 2.5 / steps
    random_start: bool = True  # start at a random point of the ball, else at the image

    def __post_init__(self) -> None:
        check_range(self, "at least 1", "steps")
        check_range(self, "above 0", "step_size")

    @property
    def name(self) -> str:
        """The name and the steps."""
        return f"pgd-{self.steps}"

    def __call__(self, problem: Problem, generator: torch.Generator) -> Points:
        """Return the best point on the way."""
        step = (self.step_size or 2.5 / self.steps) * problem.radius
        here = problem.look(problem.random_start(generator) if self.random_start else problem.images, choice_loss)
        best = here
        for number in range(1, self.steps + 1):
            x = problem.project(here.images + step * here.gradient.sign())
            here = problem.look(x, choice_loss) if number < self.steps else problem.glance(x)
            best = best.better(here)
        return best
