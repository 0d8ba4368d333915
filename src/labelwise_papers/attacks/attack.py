"""Attack: how little must an image change for a wrong answer? Perturbed images within a ball around the given ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from labelwise.core.classifier import Classifier
from labelwise.fitting.rebuild import model_of
from labelwise.images.as_images import ImagesLike
from labelwise.support.errors import UnsupportedError, UsageError
from labelwise.support.rows import mix
from labelwise.support.settings import brief
from labelwise.train.model import LabelModel, as_float
from labelwise_papers.attacks.apgd import Apgd
from labelwise_papers.attacks.pgd import Attack, Fgsm, Pgd, Points, Problem, Scores
from labelwise_papers.attacks.square import Square

QUICK: tuple[Attack, ...] = (Fgsm(), Apgd(), Apgd(loss="ratio"))
GRADIENTS: tuple[Attack, ...] = (Fgsm(), Pgd(), Apgd(), Apgd(loss="ratio"))
BATCH = 256  # images attacked together
STANDARD: tuple[Attack, ...] = (*GRADIENTS, Square())


@dataclass(frozen=True, kw_only=True)
class AttackSettings:
    """How to attack."""

    epsilon: float = 8 / 255  # how far a pixel may move, where pixels are in [0, 1]; before any normalisation
    attacks: tuple[Attack, ...] = QUICK  # one after another, each on the images that those before left standing
    bisections: int = 0  # how often to halve the interval of the smallest radius that fools; 0 does not look for it
    seed: int = 0  # of random starts and random search
    batch: int = BATCH  # images attacked together

    def __post_init__(self) -> None:
        check_radius(self.epsilon)
        if not self.attacks:
            raise UsageError("No attack was given; give at least one, such as Pgd().")
        if self.bisections < 0 or self.batch < 1:
            raise UsageError(
                f"bisections must be 0 or more and batch at least 1; given {self.bisections} and {self.batch}."
            )


@dataclass(frozen=True, eq=False, kw_only=True)
class Attacked:
    """What an attack found."""

    clean: Tensor  # the images as the model takes them, floats in [0, 1] [n, c, h, w]
    images: Tensor  # perturbed ones, the worst found; an image that is answered wrongly as it is does not change
    wrong: Tensor  # whether the answer to the clean image is wrong already [n]
    fooled: Tensor  # whether the answer to the perturbed image is wrong [n]; true where wrong is
    answers: tuple[str, ...]  # what is said of the perturbed images
    # the smallest radius that was found to fool each image [n]: 0 where wrong, infinite where none within
    # epsilon did. A bound from above: a better attack may need less. None unless bisections were asked for
    radii: Tensor | None

    __repr__ = brief

    @property
    def accuracy(self) -> float:
        """The share of images that no attack fooled."""
        return float((~self.fooled).double().mean())


def attack(
    classifier: Classifier,
    pictures: ImagesLike,
    targets: Tensor | Sequence[str] | None = None,
    settings: AttackSettings | None = None,
    model: LabelModel | None = None,
) -> Attacked:
    """Return perturbed images that the classifier answers wrongly, as far as they were found.

    ``targets`` are the true labels, by name or as positions among the classifier's ``[n]``; None takes what the classifier says
    of the clean images. ``model`` is the model of a classifier that was not saved with its training.
    """
    settings = settings or AttackSettings()
    scores = scores_of(classifier, model)
    clean = as_float(torch.from_numpy(classifier.batch(pictures)))
    before = answers_of(scores, clean, settings.batch)
    right = before if targets is None else _positions(classifier, len(clean), targets).to(clean.device)
    problem = Problem(
        scores=scores,
        images=clean,
        targets=right,
        epsilon=torch.full_like(right, settings.epsilon, dtype=torch.float32),
    )
    best, radii = worst_of(problem, settings), None
    if settings.bisections:
        best, radii = _smallest(problem, settings, best)
    after = answers_of(scores, best.images, settings.batch)
    names = tuple(classifier.labels.names[column] for column in after.tolist())
    return Attacked(
        clean=clean, images=best.images, wrong=before != right, fooled=after != right, answers=names, radii=radii
    )


def scores_of(classifier: Classifier, model: LabelModel | None = None) -> Scores:
    """Return the function from images in [0, 1] to the scores that decide, ``[n, k]``, through which gradients flow."""
    if len(classifier.shape) != 3:
        raise UnsupportedError(
            "This model takes precomputed features, not images, so there are no pixels to change. Train it on images."
        )
    if classifier.calibration.multilabel:
        raise UnsupportedError(
            "Several labels may be true of one image, and an attack is on the one that is. Train with one label per image."
        )
    if len(classifier.labels) < 2:
        raise UnsupportedError("There is one label only, so no answer is wrong. An attack needs a second label.")
    model, calibration = model or model_of(classifier), classifier.calibration
    embeddings, scale, offset = (
        torch.from_numpy(array).to(model.device)
        for array in (classifier.label_embeddings, calibration.scale, calibration.offset)
    )
    return lambda images: model.score(model.encode_images(images).float(), embeddings) * scale + offset


def check_radius(epsilon: float) -> None:
    """Raise an error unless a pixel can move that far."""
    if not 0 < epsilon <= 1:
        hint = " (divide by 255?)" if epsilon > 1 else ""
        raise UsageError(f"epsilon lies above 0 and at most at 1, as pixels lie in [0, 1]; given {epsilon:g}{hint}.")


def worst_of(problem: Problem, settings: AttackSettings) -> Points:
    """Return the best point found for each image within its epsilon; those already answered wrongly do not change."""
    parts = []
    for number, part in enumerate(batches(problem, settings.batch)):
        best = part.glance(part.images)
        for place, way in enumerate(settings.attacks):
            rows = (~best.fooled).nonzero()[:, 0]
            if len(rows):
                generator = torch.Generator(rows.device).manual_seed(mix(settings.seed, number, place))
                best = best.merged(rows, way(part.select(rows), generator))
        parts.append(best)
    return Points(*(torch.cat(fields) for fields in zip(*parts, strict=True)))


def batches(problem: Problem, size: int) -> Iterator[Problem]:
    """Yield the problem of so many images at a time."""
    rows = torch.arange(len(problem.images), device=problem.images.device)
    return (problem.select(some) for some in torch.split(rows, size))


def _smallest(problem: Problem, settings: AttackSettings, best: Points) -> tuple[Points, Tensor]:
    """Return the points of the smallest radius found by bisection, and these radii ``[n]``."""
    moved = (best.images - problem.images).abs().flatten(1).amax(1)
    high = torch.where(best.fooled, moved, torch.inf)
    low = torch.zeros_like(high)
    for number in range(settings.bisections):
        rows = (best.fooled & (high > 0)).nonzero()[:, 0]
        if not len(rows):
            break
        middle = (low[rows] + high[rows]) / 2
        again = replace(settings, seed=mix(settings.seed, number))
        closer = worst_of(replace(problem.select(rows), epsilon=middle), again)
        high[rows] = torch.where(closer.fooled, middle, high[rows])
        low[rows] = torch.where(closer.fooled, low[rows], middle)
        nearer = rows[closer.fooled]
        best.images[nearer], best.margins[nearer] = closer.images[closer.fooled], closer.margins[closer.fooled]
    return best, high


@torch.no_grad()
def answers_of(scores: Scores, images: Tensor, batch: int) -> Tensor:
    """Return the position of the answered label ``[n]`` for images in [0, 1], which are taken unchanged."""
    return torch.cat([scores(part).argmax(1) for part in torch.split(images, batch)])


def _positions(classifier: Classifier, count: int, targets: Tensor | Sequence[str]) -> Tensor:
    """Return the position of each image's label among the classifier's ``[n]``."""
    if not isinstance(targets, Tensor):
        targets = torch.tensor([classifier.labels.index(name) for name in targets])
    if targets.shape != (count,):
        raise UsageError(f"Give one label for each of the {count} images; given {list(targets.shape)}.")
    if not bool(((targets >= 0) & (targets < len(classifier.labels))).all()):
        raise UsageError(f"Targets are places among the {len(classifier.labels)} labels of the classifier, from 0 on.")
    return targets
