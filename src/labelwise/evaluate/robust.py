"""The robustness protocol: accuracy under attack, and whether the attack can be trusted.

A model may look robust because its gradients are of no use to an attacker, not because its answers are stable. So every figure comes with
checks: a huge radius must break everything, more steps must not help the defender, and an attacker who sees less must not do better.
"""

from dataclasses import dataclass, replace
from math import sqrt

import torch
from torch import Tensor

from labelwise.classifier import Classifier
from labelwise.errors import UsageError
from labelwise.evaluate.tested import Tested
from labelwise.model import as_float
from labelwise.ops.adaptive_attacks import Apgd
from labelwise.ops.attacks import Attack, Fgsm, Pgd, Problem, choice_loss
from labelwise.tasks.attack import STANDARD, AttackSettings, check_radius, scores_of, worst_of

HUGE = 0.5  # at this radius every picture can become plain grey
LEFT = 0.05  # accuracy at the huge radius, and share of pictures without a gradient, that raise no doubt


@dataclass(frozen=True, kw_only=True)
class RobustSettings:
    """How robustness is measured.

    Attributes:
        epsilon: how far a pixel may move, where pixels lie in [0, 1]; before any normalisation.
        attacks: each is run on all pictures that are answered rightly, so that they can be compared.
        longer: PGD of this many steps checks whether more steps help the defender; None leaves it out.
        surrogate: PGD on another classifier makes pictures that are then shown to this one (transfer).
        seed: of random starts and random search.
        batch: pictures attacked together.
    """

    epsilon: float = 8 / 255
    attacks: tuple[Attack, ...] = STANDARD
    longer: int | None = None
    surrogate: Classifier | None = None
    seed: int = 0
    batch: int = 256

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_radius(self.epsilon)
        if not any(not each.black_box for each in self.attacks):
            raise UsageError("Robustness is measured with at least one attack that sees gradients; add Apgd().")


@dataclass(frozen=True)
class Check:
    """One sanity check: what it is called, whether it passed, and what was seen, in words."""

    name: str
    passed: bool
    words: str


@dataclass(frozen=True, kw_only=True)
class RobustResult:
    """Accuracy under attack.

    Attributes:
        images: how many were tested.
        epsilon: how far a pixel could move.
        clean: accuracy on the pictures as they are.
        attacks: accuracy under each attack alone, by its name.
        worst: share of pictures that are answered rightly as they are and under every attack: the figure to quote.
        error: 1.96 standard errors of ``worst``.
        checks: sanity checks of the attacks.
        warnings: what looks like masked gradients, in words; none where all checks passed.
        leaked: share of the images that the classifier was trained or calibrated on.
    """

    images: int
    epsilon: float
    clean: float
    attacks: dict[str, float]
    worst: float
    error: float
    checks: tuple[Check, ...]
    warnings: tuple[str, ...]
    leaked: float


@dataclass(frozen=True, eq=False)
class _Trial:
    """One attack on all pictures: which of them ``[n]`` stand."""

    name: str
    stands: Tensor
    black_box: bool
    single: bool


def evaluate_robust(tested: Tested, settings: RobustSettings | None = None) -> RobustResult:
    """Return accuracy under attack on test images that have one label each, with sanity checks."""
    settings, classifier = settings or RobustSettings(), tested.classifier
    scores_of(classifier)
    scores, targets = tested.labelled()
    assert scores.images is not None
    images = as_float(scores.images.to(classifier.model.device))
    right = scores.best == targets
    rows = right.nonzero()[:, 0]
    trials = _trials(classifier, images[rows], targets[rows], settings) if len(rows) else []
    checks = _checks(classifier, images[rows], targets[rows], settings, trials) if len(rows) else ()
    share = len(rows) / len(images)
    stands = torch.stack([trial.stands for trial in trials]).all(0) if trials else right[rows]
    worst = int(stands.sum()) / len(images)
    return RobustResult(
        images=len(images),
        epsilon=settings.epsilon,
        clean=share,
        attacks={trial.name: int(trial.stands.sum()) / len(images) for trial in trials},
        worst=worst,
        error=1.96 * sqrt(worst * (1 - worst) / len(images)),
        checks=checks,
        warnings=tuple(f"{check.name}: {check.words}" for check in checks if not check.passed),
        leaked=tested.leaked,
    )


def _trials(classifier: Classifier, images: Tensor, targets: Tensor, settings: RobustSettings) -> list[_Trial]:
    """Return every attack on the same pictures, all answered rightly."""
    ways = list(settings.attacks)
    if settings.longer is not None:
        ways.append(Pgd(steps=settings.longer))
    found = [
        _Trial(way.name, standing(classifier, images, targets, settings, way), way.black_box, isinstance(way, Fgsm))
        for way in ways
    ]
    if settings.surrogate is not None:
        made = _transferred(classifier, images, targets, settings, settings.surrogate)
        found.append(_Trial("transfer", made, black_box=True, single=False))
    return found


def standing(classifier: Classifier, images: Tensor, targets: Tensor, settings: RobustSettings, way: Attack) -> Tensor:
    """Return which pictures are answered rightly after one attack ``[n]``."""
    how = AttackSettings(attacks=(way,), seed=settings.seed, batch=settings.batch)
    radii = torch.full((len(images),), settings.epsilon, device=images.device)
    return ~worst_of(scores_of(classifier), images, targets, how, radii).fooled


def _transferred(
    classifier: Classifier, images: Tensor, targets: Tensor, settings: RobustSettings, surrogate: Classifier
) -> Tensor:
    """Return which pictures are answered rightly after PGD on another classifier of the same labels ``[n]``."""
    if surrogate.shape != classifier.shape:
        raise UsageError(
            f"The other classifier takes images of shape {list(surrogate.shape)}, this one of "
            f"{list(classifier.shape)}; a picture made for one cannot be shown to the other."
        )
    scores, names = scores_of(surrogate.to(images.device)), classifier.labels.names
    places = torch.tensor([surrogate.labels.index(name) for name in names], device=images.device)
    parts = []
    for number, pixels in enumerate(torch.split(images, settings.batch)):
        right = targets[number * settings.batch :][: len(pixels)]
        epsilon = torch.full((len(pixels),), settings.epsilon, device=images.device)
        problem = Problem(scores=scores, images=pixels, targets=places[right], epsilon=epsilon)
        generator = torch.Generator(images.device).manual_seed(settings.seed)
        shown = Pgd()(problem, generator).images
        parts.append(classifier.scores_of(classifier.encode(shown, settings.batch)).best == right)
    return torch.cat(parts)


def _checks(
    classifier: Classifier, images: Tensor, targets: Tensor, settings: RobustSettings, trials: list[_Trial]
) -> tuple[Check, ...]:
    """Return the sanity checks on pictures that are answered rightly."""
    far = replace(settings, epsilon=max(HUGE, settings.epsilon))
    left = float(standing(classifier, images, targets, far, Apgd(steps=40)).double().mean())
    blind = _without_gradient(classifier, images, targets, settings)
    seeing = [trial for trial in trials if not trial.black_box]
    steps = [trial for trial in seeing if not trial.single]
    strongest = min(seeing, key=lambda trial: int(trial.stands.sum()))
    huge = f"{100 * left:.1f} % of the pictures stand at a radius of {far.epsilon:g}, where any picture can become grey"
    none = f"{100 * blind:.1f} % of the pictures have no gradient to follow"
    found = [Check("huge radius", left <= LEFT, huge), Check("gradients", blind <= LEFT, none)]
    for name, weaker, stronger in (
        *(("one step", one, steps[0]) for one in seeing if one.single and steps),
        *(("more steps", short, steps[-1]) for short in steps[:1] if settings.longer and len(steps) > 1),
        *(("black box", blind_one, strongest) for blind_one in trials if blind_one.black_box),
    ):
        found.append(_compared(name, weaker, stronger))
    return tuple(found)


def _compared(name: str, weaker: _Trial, stronger: _Trial) -> Check:
    """Return whether the attack that should be weaker breaks fewer pictures, up to noise (two standard errors, paired)."""
    alone = int((~weaker.stands & stronger.stands).sum())
    other = int((weaker.stands & ~stronger.stands).sum())
    words = f"{weaker.name} breaks {alone} pictures that {stronger.name} does not, and {other} the other way round"
    return Check(name, alone - other <= 2 * sqrt(alone + other), words)


def _without_gradient(classifier: Classifier, images: Tensor, targets: Tensor, settings: RobustSettings) -> float:
    """Return the share of pictures at which the gradient of the cross-entropy is zero or no number."""
    scores, parts = scores_of(classifier), []
    for pixels, right in zip(torch.split(images, settings.batch), torch.split(targets, settings.batch), strict=True):
        problem = Problem(scores=scores, images=pixels, targets=right, epsilon=torch.ones_like(pixels[:, 0, 0, 0]))
        parts.append((problem.look(pixels, choice_loss).gradient == 0).flatten(1).all(1))
    return float(torch.cat(parts).double().mean())
