"""Few-shot episodes on a test split: a few new labels, a few images of each to learn from, others to name.

Every image is encoded once; what an episode learns and asks is computed from embeddings, many episodes at a time.
"""

from dataclasses import dataclass
from itertools import islice
from math import sqrt

import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.core.capabilities import LEARN
from labelwise.core.model import LabelModel, LearnsFromExamples, cannot
from labelwise.evaluation.episode import episodes
from labelwise.evaluation.evaluation import Evaluation
from labelwise.support.errors import UsageError

CHUNK = 2**22  # numbers of embeddings held at a time


@dataclass(frozen=True, kw_only=True)
class EpisodeSettings:
    """Which episodes."""

    ways: int = 5  # labels of an episode
    shots: int = 1  # images of each to learn from
    queries: int = 15  # images of each to name
    count: int = 600  # how many episodes
    seed: int = 0  # the same seed gives the same episodes, whatever the classifier


@dataclass(frozen=True)
class Estimate:
    """A mean over episodes and 1.96 standard errors of it."""

    mean: float
    error: float

    def __str__(self) -> str:
        return f"{100 * self.mean:.2f} +- {100 * self.error:.2f} %"


@dataclass(frozen=True, kw_only=True)
class EpisodeResult:
    """Accuracy of episodes."""

    settings: EpisodeSettings  # which episodes
    labels: int  # how many labels of the split have enough images to be drawn
    images: int  # how many labelled images there are
    # of taught, labels learnt as teach does; and on the same embeddings and episodes of nearest mean, the label
    # whose examples' mean embedding is nearest, and of cosine, the label whose mean has the largest cosine
    accuracy: dict[str, Estimate]
    leaked: float  # share of the images that the classifier was trained or calibrated on; anything but 0 flatters it


def evaluate_episodes(evaluation: Evaluation, settings: EpisodeSettings | None = None) -> EpisodeResult:
    """Return how well a model learns new labels from a few images; what labels it was bound to is of no account."""
    settings, evaluation = settings or EpisodeSettings(), evaluation.own_labelled()
    targets = torch.from_numpy(evaluation.split.targets)
    hits = episode_accuracies(
        evaluation.classifier.model,
        torch.from_numpy(evaluation.scores.embeddings).to(evaluation.classifier.model.device),
        targets,
        settings,
    )
    return EpisodeResult(
        settings=settings,
        labels=int((torch.bincount(targets.cpu()) >= settings.shots + settings.queries).sum()),
        images=len(evaluation),
        accuracy={name: estimate(values) for name, values in hits.items()},
        leaked=evaluation.leaked,
    )


@torch.no_grad()
def episode_accuracies(
    model: LabelModel, embeddings: Tensor, targets: Tensor, settings: EpisodeSettings
) -> dict[str, Tensor]:
    """Return the accuracy of each episode ``[count]`` by each rule, from image embeddings ``[n, d]`` and targets ``[n]``."""
    if settings.count < 2:
        raise UsageError(f"An error needs at least two episodes; given {settings.count}.")
    draws = episodes(targets, settings.ways, settings.shots, settings.queries, settings.count, settings.seed)
    size = settings.ways * (settings.shots + settings.queries) * embeddings.shape[1]
    hits: dict[str, list[Tensor]] = {}
    while some := list(islice(draws, max(1, CHUNK // size))):
        rows = [torch.stack([each.support for each in some]), torch.stack([each.query for each in some])]
        support, query = (embeddings[part.to(embeddings.device)] for part in rows)
        for name, scores in _scores(model, support, query).items():
            truth = torch.arange(settings.ways, device=scores.device).repeat_interleave(settings.queries)
            hits.setdefault(name, []).append((scores.argmax(2) == truth).double().mean(1).cpu())
    return {name: torch.cat(parts) for name, parts in hits.items()}


def estimate(values: Tensor) -> Estimate:
    """Return the mean of values ``[n]`` and 1.96 standard errors of it."""
    return Estimate(float(values.mean()), 1.96 * float(values.std()) / sqrt(len(values)))


def _scores(model: LabelModel, support: Tensor, query: Tensor) -> dict[str, Tensor]:
    """Return scores ``[b, ways * queries, ways]`` by each rule, of ``[b, ways, shots, d]`` and ``[b, ways, queries, d]``."""
    b, ways, shots, d = support.shape
    groups = torch.arange(b * ways, device=support.device).repeat_interleave(shots)
    if not isinstance(model, LearnsFromExamples):
        raise cannot(model, LEARN)
    labels = model.labels_from_examples(support.reshape(-1, d), groups).view(b, ways, -1)
    asked, means = query.flatten(1, 2), support.mean(2)
    return {
        "taught": torch.stack([model.score(ask, know) for ask, know in zip(asked, labels, strict=True)]),
        "nearest mean": 2 * asked @ means.mT - means.square().sum(2)[:, None],
        "cosine": normalize(asked, dim=2) @ normalize(means, dim=2).mT,
    }
