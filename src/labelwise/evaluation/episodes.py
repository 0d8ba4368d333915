"""Few-shot episodes: a few new labels, a few images of each to learn from (support), others to name (queries).

Every image is encoded once; what an episode learns and asks is computed from embeddings, many episodes at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelwise.core.head import Head, LearnsFromExamples, cannot
from labelwise.evaluation.evaluation import Evaluation
from labelwise.support.errors import DataError, UsageError
from labelwise.support.rows import Draws
from labelwise.support.text import LEARN

CHUNK = 2**22  # numbers of embeddings held at a time
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Episode:
    """One few-shot question; row i of ``support`` and ``query`` belongs to label i."""

    labels: tuple[int, ...]  # the targets drawn, in the order drawn
    support: Rows  # rows of the images to learn from [ways, shots]
    query: Rows  # rows of the images to ask about [ways, queries]; none of them is in ``support``


@dataclass(frozen=True, kw_only=True)
class EpisodeSettings:
    """Which episodes."""

    ways: int = 5  # labels of an episode
    shots: int = 1  # images of each to learn from
    queries: int = 15  # images of each to name
    count: int = 600  # how many episodes
    seed: int = 0  # the same seed gives the same episodes for every classifier


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
    # by rule: taught, where labels are learnt as teach does; and on the same embeddings and episodes nearest mean and cosine,
    # the label whose examples' mean embedding is nearest or has the largest cosine
    accuracy: dict[str, Estimate]
    leaked: float  # share of the images that the classifier was trained or calibrated on; anything but 0 flatters it


def evaluate_episodes(evaluation: Evaluation, settings: EpisodeSettings | None = None) -> EpisodeResult:
    """Return how well a model learns new labels from a few images; the labels that it is bound to do not matter."""
    settings, evaluation = settings or EpisodeSettings(), evaluation.own_labelled()
    targets = np.asarray(evaluation.split.targets)
    hits = episode_accuracies(evaluation.classifier.head, evaluation.scores.embeddings, targets, settings)
    return EpisodeResult(
        settings=settings,
        labels=int((np.bincount(targets) >= settings.shots + settings.queries).sum()),
        images=len(evaluation),
        accuracy={name: estimate(values) for name, values in hits.items()},
        leaked=evaluation.leaked,
    )


def episode_accuracies(
    head: Head, embeddings: ArrayLike, targets: ArrayLike, settings: EpisodeSettings
) -> dict[str, NDArray[np.float64]]:
    """Return the accuracy of each episode ``[count]`` by each rule, from image embeddings ``[n, d]`` and targets ``[n]``."""
    if settings.count < 2:
        raise UsageError(f"The standard error needs at least two episodes; given {settings.count}.")
    draws = episodes(targets, settings.ways, settings.shots, settings.queries, settings.count, settings.seed)
    embeddings = np.asarray(embeddings)
    size = settings.ways * (settings.shots + settings.queries) * embeddings.shape[1]
    truth = np.arange(settings.ways).repeat(settings.queries)
    hits: dict[str, list[NDArray[np.float64]]] = {}
    while some := list(islice(draws, max(1, CHUNK // size))):
        support, query = (embeddings[np.stack([getattr(one, kind) for one in some])] for kind in ("support", "query"))
        for name, scores in _scores(head, support, query).items():
            hits.setdefault(name, []).append((scores.argmax(2) == truth).mean(1))
    return {name: np.concatenate(parts) for name, parts in hits.items()}


def estimate(values: ArrayLike) -> Estimate:
    """Return the mean of values ``[n]`` and 1.96 standard errors of it."""
    values = np.asarray(values)
    return Estimate(float(values.mean()), 1.96 * float(values.std(ddof=1)) / sqrt(len(values)))


def episodes(targets: ArrayLike, ways: int, shots: int, queries: int, count: int, seed: int) -> Iterator[Episode]:
    """Yield ``count`` episodes of ``ways`` labels, each with other labels and images.

    ``targets [n]`` are the label of each row, -1 if there is none; labels with too few images for ``shots`` and ``queries``
    are never drawn. The same seed gives the same episodes, and fewer are the first of more.
    """
    for name, value, least in (("ways", ways, 2), ("shots", shots, 1), ("queries", queries, 1), ("count", count, 0)):
        if value < least:
            raise UsageError(f'"{name}" of episodes must be at least {least}; given {value}.')
    labels = np.asarray(targets)
    order = np.argsort(labels, kind="stable")
    values, sizes = np.unique(labels, return_counts=True)
    pools = {
        label: rows
        for label, rows in zip(values.tolist(), np.split(order, sizes.cumsum()[:-1]), strict=True)
        if label >= 0 and len(rows) >= shots + queries
    }
    if len(pools) < ways:
        raise DataError(
            f"Only {len(pools)} labels have {shots + queries} images for {shots} shots and {queries} queries, "
            f"but an episode needs {ways}. Use fewer ways, shots or queries, or add images."
        )
    return _draw(pools, ways, (shots, queries), count, Draws(seed))


def _draw(pools: dict[int, Rows], ways: int, sizes: tuple[int, int], count: int, draws: Draws) -> Iterator[Episode]:
    every = list(pools)
    for _ in range(count):
        labels = tuple(every[i] for i in draws.permutation(len(every))[:ways].tolist())
        rows = np.stack([pools[label][draws.permutation(len(pools[label]))[: sum(sizes)]] for label in labels])
        yield Episode(labels=labels, support=rows[:, : sizes[0]], query=rows[:, sizes[0] :])


def _scores(head: Head, support: NDArray[Any], query: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return scores ``[b, ways * queries, ways]`` by each rule, of ``[b, ways, shots, d]`` and ``[b, ways, queries, d]``."""
    asked, means = query.reshape(len(query), -1, query.shape[-1]), support.mean(2)
    squares = (means**2).sum(2)[:, None]
    return {
        "taught": _taught(head, support, asked),
        "nearest mean": 2 * asked @ means.swapaxes(1, 2) - squares,
        "cosine": asked
        @ means.swapaxes(1, 2)
        / np.maximum(squares**0.5, 1e-12),  # as the length of a query does not matter
    }


def _taught(head: Head, support: NDArray[Any], asked: NDArray[Any]) -> NDArray[Any]:
    """Return scores ``[b, q, ways]`` of labels learnt from ``[b, ways, shots, d]``, of queries ``[b, q, d]``."""
    if not isinstance(head, LearnsFromExamples):
        raise cannot(head, LEARN)
    b, ways, shots, d = support.shape
    learn, score = head.labels_from_examples, head.score
    labels = learn(support.reshape(-1, d), np.arange(b * ways).repeat(shots)).reshape(b, ways, -1)
    return np.stack([score(ask, know) for ask, know in zip(asked, labels, strict=True)])
