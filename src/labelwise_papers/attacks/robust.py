"""The robustness protocol: accuracy under attack, and whether the attack can be trusted.

A model may look robust because its gradients are of no use to an attacker, not because its answers are stable. So every figure comes with
checks: a huge radius must break everything, more steps must not help the defender, and an attacker who sees less must not do better.
"""

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from labelwise.core.classifier import Classifier
from labelwise.evaluation.evaluation import Evaluation
from labelwise.fitting.rebuild import model_of
from labelwise.support.errors import UsageError
from labelwise.train.model import LabelModel, as_float
from labelwise_papers.attacks.apgd import Apgd
from labelwise_papers.attacks.attack import (
    BATCH,
    STANDARD,
    AttackSettings,
    answers_of,
    batches,
    check_radius,
    scores_of,
    worst_of,
)
from labelwise_papers.attacks.pgd import Attack, Fgsm, Pgd, Problem, choice_loss

HUGE = 0.5  # at this radius every image can become plain grey
LEFT = 0.05  # accuracy at the huge radius, and share of images without a gradient, that raise no doubt


@dataclass(frozen=True, kw_only=True)
class RobustSettings:
    """How robustness is measured."""

    epsilon: float = 8 / 255  # how far a pixel may move, where pixels are in [0, 1]; before any normalisation
    # each is run on all images that are answered rightly, so that they can be compared
    attacks: tuple[Attack, ...] = STANDARD
    longer: int | None = None  # PGD of this many steps checks whether more steps help the defender; None leaves it out
    # PGD on another classifier makes images that are then shown to this one (transfer)
    surrogate: Classifier | None = None
    seed: int = 0  # of random starts and random search
    batch: int = BATCH  # images attacked together

    def __post_init__(self) -> None:
        check_radius(self.epsilon)
        if all(each.black_box for each in self.attacks):
            raise UsageError("Robustness is measured with at least one attack that sees gradients; add Apgd().")


@dataclass(frozen=True)
class Check:
    """One sanity check: what it is called, whether it passed, and what was seen, in words."""

    name: str
    passed: bool
    words: str


@dataclass(frozen=True, kw_only=True)
class RobustResult:
    """Accuracy under attack."""

    images: int  # how many were evaluation
    epsilon: float  # how far a pixel could move
    clean: float  # accuracy on the unchanged images
    attacks: dict[str, float]  # accuracy under each attack alone, by its name
    worst: float  # share of images that are answered rightly as they are and under every attack: the figure to quote
    error: float  # 1.96 standard errors of worst
    checks: tuple[Check, ...]  # sanity checks of the attacks
    warnings: tuple[str, ...]  # what looks like masked gradients, in words; none where all checks passed
    leaked: float  # share of the images that the classifier was trained or calibrated on


@dataclass(frozen=True, eq=False)
class _Trial:
    """One attack on all images: which of them ``[n]`` stand."""

    name: str
    stands: Tensor
    black_box: bool
    single: bool = False


def evaluate_robust(
    evaluation: Evaluation, settings: RobustSettings | None = None, model: LabelModel | None = None
) -> RobustResult:
    """Return accuracy under attack on test images that have one label each, with sanity checks.

    ``model`` is the model of a classifier that was not saved with its training, or on a GPU, where attacks then run.
    """
    settings, classifier = settings or RobustSettings(), evaluation.classifier
    attacked = scores_of(classifier, model)
    scores, targets = evaluation.labelled()
    assert scores.images is not None
    images = as_float(torch.from_numpy(classifier.batch(scores.images)).to("cpu" if model is None else model.device))
    count, epsilon = len(images), torch.full((len(images),), settings.epsilon, device=images.device)
    whole = Problem(scores=attacked, images=images, targets=torch.as_tensor(targets).to(images.device), epsilon=epsilon)
    rows = torch.from_numpy(np.flatnonzero(scores.best == np.asarray(targets))).to(images.device)
    trials, checks, stands = list[_Trial](), list[Check](), rows >= 0
    if len(rows):
        problem = whole.select(rows)
        trials = _trials(problem, settings, classifier)
        checks = _checks(problem, settings, trials)
        stands = torch.stack([trial.stands for trial in trials]).all(0)
    worst = int(stands.sum()) / count
    return RobustResult(
        images=count,
        epsilon=settings.epsilon,
        clean=len(rows) / count,
        attacks={trial.name: int(trial.stands.sum()) / count for trial in trials},
        worst=worst,
        error=1.96 * sqrt(worst * (1 - worst) / count),
        checks=tuple(checks),
        warnings=tuple(f"{check.name}: {check.words}" for check in checks if not check.passed),
        leaked=evaluation.leaked,
    )


def _trials(problem: Problem, settings: RobustSettings, classifier: Classifier) -> list[_Trial]:
    """Return every attack on the same images, all answered rightly."""
    ways = [*settings.attacks, *([] if settings.longer is None else [Pgd(steps=settings.longer)])]
    trials = [_Trial(way.name, _standing(problem, way, settings), way.black_box, isinstance(way, Fgsm)) for way in ways]
    if settings.surrogate is not None:
        stands = _transferred(problem, settings.surrogate, settings, classifier)
        trials.append(_Trial("transfer", stands, black_box=True))
    return trials


def _standing(problem: Problem, way: Attack, settings: RobustSettings) -> Tensor:
    """Return which images are answered rightly after one attack ``[n]``."""
    return ~worst_of(problem, AttackSettings(attacks=(way,), seed=settings.seed, batch=settings.batch)).fooled


def _transferred(problem: Problem, surrogate: Classifier, settings: RobustSettings, classifier: Classifier) -> Tensor:
    """Return which images are answered rightly after PGD on another classifier of the same labels ``[n]``."""
    if surrogate.shape != classifier.shape:
        raise UsageError(
            f"The other classifier takes images of shape {list(surrogate.shape)}, this one of "
            f"{list(classifier.shape)}; an image made for one cannot be shown to the other."
        )
    device = problem.images.device
    columns = torch.tensor([surrogate.labels.index(name) for name in classifier.labels.names], device=device)
    other = replace(problem, scores=scores_of(surrogate, model_of(surrogate, device)), targets=columns[problem.targets])
    answers = list[Tensor]()
    for part in batches(other, settings.batch):
        images = Pgd()(part, torch.Generator(device).manual_seed(settings.seed)).images
        answers.append(answers_of(problem.scores, images, settings.batch))
    return torch.cat(answers) == problem.targets


def _checks(problem: Problem, settings: RobustSettings, trials: list[_Trial]) -> list[Check]:
    """Return the sanity checks on images that are answered rightly."""
    radius = max(HUGE, settings.epsilon)
    far = replace(problem, epsilon=torch.full_like(problem.epsilon, radius))
    left = float(_standing(far, Apgd(steps=40), settings).double().mean())
    parts = batches(problem, settings.batch)
    flat = [(part.look(part.images, choice_loss).gradient == 0).flatten(1).all(1) for part in parts]
    blind = float(torch.cat(flat).double().mean())
    seeing = [trial for trial in trials if not trial.black_box]
    steps = [trial for trial in seeing if not trial.single]
    strongest = min(seeing, key=lambda trial: int(trial.stands.sum()))
    huge = f"{100 * left:.1f} % of the images stand at a radius of {radius:g}, where any image can become grey"
    none = f"{100 * blind:.1f} % of the images have no gradient to follow"
    return [
        Check("huge radius", left <= LEFT, huge),
        Check("gradients", blind <= LEFT, none),
        *(_compared("one step", one, steps[0]) for one in seeing if one.single and steps),
        *(_compared("more steps", one, steps[-1]) for one in steps[:1] if settings.longer and len(steps) > 1),
        *(_compared("black box", one, strongest) for one in trials if one.black_box),
    ]


def _compared(name: str, weaker: _Trial, stronger: _Trial) -> Check:
    """Return whether the attack that should be weaker breaks fewer images, up to noise (two standard errors, paired)."""
    alone = int((~weaker.stands & stronger.stands).sum())
    other = int((weaker.stands & ~stronger.stands).sum())
    words = f"{weaker.name} breaks {alone} images that {stronger.name} does not, and {other} the other way round"
    return Check(name, alone - other <= 2 * sqrt(alone + other), words)
