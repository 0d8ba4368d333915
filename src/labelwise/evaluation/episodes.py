"""Few-shot episodes: learn new labels from a few images each (support), then classify others (query).

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

CHUNK = 2**22  # numbers in memory at a time
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Episode:
    """One episode; row i of ``support`` and ``query`` belongs to label i."""

    labels: tuple[int, ...]  # targets in sampling order
    support: Rows  # rows of the example images [ways, shots]
    query: Rows  # rows of the query images [ways, queries], disjoint from ``support``


@dataclass(frozen=True, kw_only=True)
class EpisodeSettings:
    """The size and number of episodes."""

    ways: int = 5  # labels per episode
    shots: int = 1  # example images per label
    queries: int = 15  # query images per label
    count: int = 600  # number of episodes
    seed: int = 0  # same seed, same episodes, for every classifier


@dataclass(frozen=True)
class Estimate:
    """A mean over episodes with 1.96 standard errors."""

    mean: float
    error: float

    def __str__(self) -> str:
        return f"{100 * self.mean:.2f} +- {100 * self.error:.2f} %"


@dataclass(frozen=True, kw_only=True)
class EpisodeResult:
    """Accuracy of episodes."""

    settings: EpisodeSettings  # the episodes
    labels: int  # labels of the split with enough images
    images: int  # labelled images
    # by rule: ``taught`` learns labels as teach does; for comparison, nearest mean and largest cosine to the mean,
    # on the same embeddings and episodes
    accuracy: dict[str, Estimate]
    leaked: float  # share of test images seen in training or calibration; should be 0


def evaluate_episodes(evaluation: Evaluation, settings: EpisodeSettings | None = None) -> EpisodeResult:
    """Return the accuracy on new labels learned from a few images; the classifier's own labels do not matter."""
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
    """Return the accuracy per episode ``[count]`` by rule, from embeddings ``[n, d]`` and targets ``[n]``."""
    if settings.count < 2:
        raise UsageError(f"The standard error needs at least two episodes; given {settings.count}.")
    draws = episodes(targets, settings.ways, settings.shots, settings.queries, settings.count, settings.seed)
    embeddings = np.asarray(embeddings)
    size = settings.ways * (settings.shots + settings.queries) * embeddings.shape[1]
    truth = np.arange(settings.ways).repeat(settings.queries)
    hits: dict[str, list[NDArray[np.float64]]] = {}
    while some := list(islice(draws, max(1, CHUNK // size))):
        support, query = (
            embeddings[np.stack([getattr(episode, kind) for episode in some])] for kind in ("support", "query")
        )
        for name, scores in _scores(head, support, query).items():
            hits.setdefault(name, []).append((scores.argmax(2) == truth).mean(1))
    return {name: np.concatenate(parts) for name, parts in hits.items()}


def estimate(values: ArrayLike) -> Estimate:
    """Return the mean of values ``[n]`` with 1.96 standard errors."""
    values = np.asarray(values)
    return Estimate(float(values.mean()), 1.96 * float(values.std(ddof=1)) / sqrt(len(values)))


def episodes(targets: ArrayLike, ways: int, shots: int, queries: int, count: int, seed: int) -> Iterator[Episode]:
    """Yield ``count`` episodes of ``ways`` labels, each with different labels and images.

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
    """Return scores ``[b, ways * queries, ways]`` by rule, from ``[b, ways, shots, d]`` and ``[b, ways, queries, d]``."""
    queries, means = query.reshape(len(query), -1, query.shape[-1]), support.mean(2)
    squares = (means**2).sum(2)[:, None]
    return {
        "taught": _scores_of_taught(head, support, queries),
        "nearest mean": 2 * queries @ means.swapaxes(1, 2) - squares,
        "cosine": queries
        @ means.swapaxes(1, 2)
        / np.maximum(squares**0.5, 1e-12),  # the length of a query does not matter
    }


def _scores_of_taught(head: Head, support: NDArray[Any], queries: NDArray[Any]) -> NDArray[Any]:
    """Return scores ``[b, q, ways]`` of queries ``[b, q, d]`` for labels learned from ``[b, ways, shots, d]``."""
    if not isinstance(head, LearnsFromExamples):
        raise cannot(head, LEARN)
    b, ways, shots, d = support.shape
    learn, score = head.labels_from_examples, head.score
    labels = learn(support.reshape(-1, d), np.arange(b * ways).repeat(shots)).reshape(b, ways, -1)
    return np.stack([score(ask, know) for ask, know in zip(queries, labels, strict=True)])
