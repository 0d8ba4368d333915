"""Few-shot episodes: a few classes, a few images of each to learn from, others to ask about."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from labelwise.support.errors import DataError, UsageError


@dataclass(frozen=True, eq=False, kw_only=True)
class Episode:
    """One few-shot question; row i of ``support`` and ``query`` belongs to class i."""

    classes: tuple[int, ...]  # the targets drawn, in the order drawn
    support: Tensor  # rows of the images to learn from ``[ways, shots]``
    query: Tensor  # rows of the images to ask about ``[ways, queries]``; none of them is in ``support``


def episodes(targets: Tensor, ways: int, shots: int, queries: int, count: int, seed: int) -> Iterator[Episode]:
    """Yield ``count`` episodes of some ``ways`` (classes), each with other classes and images.

    ``targets [n]`` are the class of each row, -1 where there is none; classes with too few images for ``shots`` to
    learn from and ``queries`` to ask about are never drawn. The same seed gives the same episodes, and fewer are the
    first of more.
    """
    for name, value, least in (("ways", ways, 2), ("shots", shots, 1), ("queries", queries, 1), ("count", count, 0)):
        if value < least:
            raise UsageError(f'"{name}" of episodes must be at least {least}; given {value}.')
    order = torch.argsort(targets.cpu(), stable=True)
    classes, sizes = torch.unique(targets.cpu(), return_counts=True)
    pools = {
        target: rows
        for target, rows in zip(classes.tolist(), torch.split(order, sizes.tolist()), strict=True)
        if target >= 0 and len(rows) >= shots + queries
    }
    if len(pools) < ways:
        raise DataError(
            f"{len(pools)} classes have the {shots + queries} images that {shots} shots and {queries} queries take, "
            f"but an episode needs {ways}. Ask for fewer ways, shots or queries, or add images."
        )
    return _draw(pools, ways, (shots, queries), count, torch.Generator().manual_seed(seed))


def _draw(
    pools: dict[int, Tensor], ways: int, sizes: tuple[int, int], count: int, generator: torch.Generator
) -> Iterator[Episode]:
    every = list(pools)
    for _ in range(count):
        classes = tuple(every[i] for i in torch.randperm(len(every), generator=generator)[:ways].tolist())
        rows = [pools[c][torch.randperm(len(pools[c]), generator=generator)[: sum(sizes)]] for c in classes]
        support, query = torch.split(torch.stack(rows), list(sizes), 1)
        yield Episode(classes=classes, support=support, query=query)
