"""Searching a gallery by its index against searching it exactly: speed, recall, time to build, memory.

    python benchmarks/gallery.py [--codes 100000 1000000] [--size 128] [--rounds 5] [--graph] [--json FILE]

Codes are random, in clusters: 100 to a label, drawn around the centre of their label, with a spectrum that falls off (the i-th
direction has the standard deviation i ** -0.5, within a label 0.6 times that), of unit length. Queries are others of the same
labels. They are no codes of a network, for which recall may differ, and no plain noise, whose neighbours mean little. The
similarity is the cosine, k is 10. Each round searches exactly and by the index in turn, on one thread; the median
over the rounds of the ratio of processor times counts, for 256 queries at once and for one query at a time. "pays" is the number
of single queries after which reading the index has paid for itself. --graph adds an HNSW graph of faiss, as one would use
it alone. Memory is what the process gains (Linux).
"""

import argparse
import ctypes
import json
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import ClassVar

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.core.head import Array, Head, HeadDefaults
from labelwise.images.describe.labels import Labels
from labelwise.tasks.gallery_index import Lists, make_index, need_faiss
from labelwise.tasks.retrieve import search

QUERIES, SINGLE, K, GROUP = 256, 8, 10, 100
Search = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to search: the ten best, a hundred candidates, and what it took to get there."""

    name: str
    ten: Search
    hundred: Search
    build_s: float
    ready_s: float
    memory_mb: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Plain(HeadDefaults):
    """A head whose similarity is the cosine of codes; nothing else of it is used."""

    kind: ClassVar[str] = "plain"
    labels: Labels
    width: int

    def embed_labels(self, labels: Labels) -> Array:
        """Return codes of no meaning."""
        return np.zeros((len(labels), self.width), np.float32)

    def score(self, embeddings: Array, label_embeddings: Array) -> Array:
        """Return inner products."""
        return np.asarray(embeddings @ label_embeddings.T)


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one way to search was found to do, beside exact search."""

    codes: int
    way: str
    times_many: float
    times_one: float
    recall_1: float
    recall_10: float
    recall_100: float
    build_s: float
    ready_s: float
    pays: int
    memory_mb: float
    codes_mb: float


def clustered(count: int, size: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return codes ``[count, size]`` and queries, of unit length."""
    drawn = torch.Generator().manual_seed(seed)
    spectrum = torch.arange(1, size + 1) ** -0.5
    centres = torch.randn(max(1, count // GROUP), size, generator=drawn) * spectrum
    labels = torch.randint(len(centres), (count + QUERIES,), generator=drawn)
    codes = torch.randn(count + QUERIES, size, generator=drawn).mul_(0.6 * spectrum).add_(centres[labels])
    codes = normalize(codes, dim=1)
    return codes[:count].clone(), codes[count:].clone()


def seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def resident() -> float:
    """Return the megabytes this process holds now, after giving back what it has freed."""
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def recall(found: Tensor, right: Tensor, k: int) -> float:
    """Return the share of the k best of each query that are among the k found."""
    hits = (found[:, :k, None] == right[:, None, :k]).any(1)
    return float(hits.float().mean())


def by_index(model: Head, tensor: Tensor) -> Way:
    """Return the search by the index of this package."""
    codes = tensor.numpy()
    begun = time.process_time()
    index = make_index(codes)
    built, before = time.process_time() - begun, resident()
    begun = time.process_time()
    lists = Lists(index, codes)
    return Way(
        name="index",
        ten=lambda queries: torch.from_numpy(search(model, queries.numpy(), codes, K, lists=lists)[1]),
        hundred=lambda queries: torch.from_numpy(lists.near(queries.numpy(), 100)),
        build_s=built,
        ready_s=time.process_time() - begun,
        memory_mb=resident() - before,
    )


def by_graph(codes: Tensor) -> Way:
    """Return the search by an HNSW graph of faiss."""
    faiss, before = need_faiss(), resident()
    graph = faiss.IndexHNSWFlat(codes.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction, graph.hnsw.efSearch = 80, 256
    built = seconds(lambda: graph.add(codes.numpy()))
    return Way(
        name="HNSW graph",
        ten=lambda queries: torch.from_numpy(graph.search(queries.numpy(), K)[1]),
        hundred=lambda queries: torch.from_numpy(graph.search(queries.numpy(), 100)[1]),
        build_s=built,
        ready_s=0.0,
        memory_mb=resident() - before,
    )


def ratios(exact: Search, way: Way, queries: Tensor, rounds: int) -> tuple[float, float, float]:
    """Return how many times as fast as exact search a way is, for many queries and for one, and the seconds one saves."""

    def singly(find: Search) -> Callable[[], object]:
        return lambda: [find(query[None]) for query in queries[:SINGLE]]

    many, one = list[tuple[float, float]](), list[tuple[float, float]]()
    for _ in range(rounds):
        many.append((seconds(partial(exact, queries)), seconds(partial(way.ten, queries))))
        one.append((seconds(singly(exact)), seconds(singly(way.ten))))
    print(f"{way.name}, {QUERIES} queries, each round:", [round(a / b, 1) for a, b in many], flush=True)
    saved = median((a - b) / SINGLE for a, b in one)
    return median(a / b for a, b in many), median(a / b for a, b in one), saved


def rows(count: int, chosen: argparse.Namespace) -> list[Row]:
    codes, queries = clustered(count, chosen.size)
    model = Plain(width=chosen.size, labels=Labels(names=("any",)))
    right, out = torch.from_numpy(search(model, queries.numpy(), codes.numpy(), 100)[1]), []

    def exact(asked: Tensor) -> Tensor:
        return torch.from_numpy(search(model, asked.numpy(), codes.numpy(), K)[1])

    for make in (partial(by_index, model), by_graph)[: 1 + chosen.graph]:
        way = make(codes)
        many, one, saved = ratios(exact, way, queries, chosen.rounds)
        row = Row(
            codes=count,
            way=way.name,
            times_many=many,
            times_one=one,
            recall_1=recall(way.ten(queries), right, 1),
            recall_10=recall(way.ten(queries), right, 10),
            recall_100=recall(way.hundred(queries), right, 100),
            build_s=way.build_s,
            ready_s=way.ready_s,
            pays=round(way.ready_s / saved),
            memory_mb=way.memory_mb,
            codes_mb=codes.nbytes / 2**20,
        )
        print(row, flush=True)
        out.append(row)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    need_faiss().omp_set_num_threads(1)
    found = [row for count in chosen.codes for row in rows(count, chosen)]
    table = Table(title=f"against exact search; codes of {chosen.size}, one thread; torch {torch.__version__}")
    heads = (
        "codes",
        "way",
        "x, 256 at once",
        "x, one",
        "R@1",
        "R@10",
        "R@100",
        "build, s",
        "ready, s",
        "pays",
        "MB",
        "codes, MB",
    )
    for head in heads:
        table.add_column(head)
    for row in found:
        table.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in asdict(row).values()))
    Console(width=140).print(table)
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(row) for row in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
