"""A gallery on disk (LanceDB) beside one in memory, searched exactly and by its index (faiss): recall, ms a query, memory.

    python benchmarks/gallery_disk.py [--codes 2000000] [--size 128] [--queries 200] [--ways disk exact faiss mapped] [--json FILE]

Codes are random, in clusters, as in ``gallery.py``. Each way is built in a process of its own and searched in another one that
opens what was written, torch and faiss on one thread, LanceDB as it comes: seconds until it is open, wall and processor milliseconds of one query after another (``lw.retrieve``, k = 10),
the share of the ten best found, and memory of that process, before and after (less what an idle one takes that has imported the
same). The gallery on disk is also searched with a filter that a tenth of the codes passes, and a thousand codes are added and
removed. "mapped" is exact search in a plain file of numbers that is read part by part for each query, what a gallery beyond memory costs without any store; its
queries are twenty. ``--ways disk mapped`` leaves out what has to fit in memory: the right answers come from a stream.
"""

import argparse
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from gallery import Plain, clustered, recall, resident
from rich.console import Console
from rich.table import Table
from torch import Tensor

from labelwise.api import retrieve
from labelwise.core.classifier import Classifier, bind
from labelwise.encoders.encoder import Precomputed
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import UsageError
from labelwise.tasks.gallery import Gallery, load_gallery, probe_embeddings
from labelwise.tasks.gallery_index import need_faiss
from labelwise.tasks.gallery_store import StoredGallery, create_gallery, need_lancedb, open_gallery
from labelwise.tasks.retrieve import Match

K, STEP, SHARES = 10, 100_000, 10
MAPPED = 20  # queries of which each reads all codes
Figures = dict[str, float]


def plain_classifier(size: int) -> Classifier:
    labels = Labels(names=("any",))
    return bind(Plain(width=size, labels=labels), Precomputed(size), labels)


def parts(count: int, size: int) -> Iterator[tuple[int, Tensor]]:
    """Yield codes ``[STEP, size]`` and the number of the first: clusters of their own in each part, all drawn alike."""
    for start in range(0, count, STEP):
        yield start, clustered(min(STEP, count - start), size, seed=start)[0]


def queries(count: int, size: int, most: int) -> Tensor:
    """Return queries of the clusters of several parts."""
    starts = range(0, count, max(STEP, count // 4 // STEP * STEP))
    drawn = [clustered(min(STEP, count - start), size, seed=start)[1] for start in starts]
    return torch.stack(drawn, 1).flatten(0, 1)[:most]


def truth(count: int, size: int, asked: Tensor) -> Tensor:
    """Return the rows of the ten best ``[n, 10]``, exactly, a part at a time."""
    best, rows = torch.full((len(asked), 0), 0.0), torch.empty(len(asked), 0, dtype=torch.int64)
    for start, codes in parts(count, size):
        here = (asked @ codes.T).topk(min(K, len(codes)))
        best, rows = torch.cat([best, here.values], 1), torch.cat([rows, here.indices + start], 1)
        best, order = best.topk(min(K, best.shape[1]))
        rows = rows.gather(1, order)
    return rows


def name(row: int) -> str:
    return f"/photos/{row // 1000}/{row}.jpg"


def build_memory(folder: Path, count: int, size: int, *, index: bool) -> None:
    codes = torch.cat([codes for _, codes in parts(count, size)])
    probe = probe_embeddings(plain_classifier(size))
    gallery = Gallery(embeddings=codes.numpy(), files=tuple(map(name, range(count))), probe=probe)
    (gallery.with_index() if index else gallery).save(folder / "gallery.safetensors")


def build_disk(folder: Path, count: int, size: int) -> None:
    classifier, begun = plain_classifier(size), time.perf_counter()
    gallery = create_gallery(folder / "gallery.lance", classifier)
    probe = probe_embeddings(classifier)
    for start, codes in parts(count, size):
        rows = range(start, start + len(codes))
        labels = tuple(f"label {row % SHARES}" for row in rows)
        gallery.add(
            classifier, Gallery(embeddings=codes.numpy(), files=tuple(map(name, rows)), labels=labels, probe=probe)
        )
        if rows.stop % (10 * STEP) == 0:
            print(f"  {rows.stop:,} codes added after {time.perf_counter() - begun:.0f} s", flush=True)
    gallery.tidy()
    print(f"  tidy after {time.perf_counter() - begun:.0f} s", flush=True)


def build_mapped(folder: Path, count: int, size: int) -> None:
    with (folder / "gallery.bin").open("wb") as file:
        for _, codes in parts(count, size):
            file.write(codes.numpy().tobytes())


WAYS: dict[str, tuple[Callable[..., None], dict[str, bool]]] = {
    "disk": (build_disk, {}),
    "exact": (build_memory, {"index": False}),
    "faiss": (build_memory, {"index": True}),
    "mapped": (build_mapped, {}),
}


def search(folder: Path, way: str, size: int, asked: Tensor, right: Tensor) -> Figures:
    """Return what one way to search is found to do."""
    classifier = plain_classifier(size)
    if way == "disk":
        need_lancedb()
    if way == "mapped":
        return search_mapped(folder / "gallery.bin", asked[:MAPPED], right[:MAPPED])
    idle, begun = resident(), time.perf_counter()
    gallery = open_gallery(folder / "gallery.lance") if way == "disk" else load_gallery(folder / "gallery.safetensors")
    approximate = way != "exact"
    if isinstance(gallery, Gallery) and approximate:
        _ = gallery.lists
    figures = {"open_s": time.perf_counter() - begun, "open_mb": resident() - idle}
    ask = lambda query: retrieve(classifier, query[None], gallery, K, approximate=approximate)  # noqa: E731
    rows, wall, processor = timed(ask, asked)
    figures |= {"ms": wall, "cpu_ms": processor, "recall_10": recall(rows, right, K)}
    figures |= {"mb": resident() - idle}
    if isinstance(gallery, StoredGallery):
        figures |= changed(gallery, classifier, asked)
    return figures


def search_mapped(file: Path, asked: Tensor, right: Tensor) -> Figures:
    """Return what exact search costs that reads all codes from disk for each query."""
    idle, size = resident(), asked.shape[1]
    codes = np.memmap(file, np.float32, "r").reshape(-1, size)

    def ask(query: Tensor) -> list[list[Match]]:
        best, rows = torch.empty(0), torch.empty(0, dtype=torch.int64)
        for start in range(0, len(codes), STEP):
            here = (torch.from_numpy(np.array(codes[start : start + STEP])) @ query).topk(K)
            best, rows = torch.cat([best, here.values]), torch.cat([rows, here.indices + start])
        best, order = best.topk(K)
        found = zip(rows[order].tolist(), best.tolist(), strict=True)
        return [[Match(file=name(row), score=score, label=None) for row, score in found]]

    rows, wall, processor = timed(ask, asked)
    return {
        "open_s": 0.0,
        "ms": wall,
        "cpu_ms": processor,
        "recall_10": recall(rows, right, K),
        "mb": resident() - idle,
    }


def timed(ask: Callable[[Tensor], Any], asked: Tensor) -> tuple[Tensor, float, float]:
    """Return the rows that were found ``[n, 10]``, and the median of wall and of processor milliseconds of one query."""
    rows, walls, processors = [], [], []
    for query in asked:
        wall, processor = time.perf_counter(), time.process_time()
        (matches,) = ask(query)
        walls.append(1e3 * (time.perf_counter() - wall))
        processors.append(1e3 * (time.process_time() - processor))
        rows.append([int(Path(match.file).stem) for match in matches])
    return torch.tensor(rows), median(walls), median(processors)


def changed(gallery: StoredGallery, classifier: Classifier, asked: Tensor) -> Figures:
    """Return milliseconds of a query with a filter, and seconds to add and to remove a thousand codes."""
    asked = asked[:50]
    ask = lambda query: retrieve(classifier, query[None], gallery, K, where="label = 'label 3'")  # noqa: E731
    rows, wall, _ = timed(ask, asked)
    assert (rows % SHARES == 3).all(), "a filter let others pass"
    new = clustered(1_000, asked.shape[1], seed=1)[0]
    part = Gallery(embeddings=new.numpy(), files=tuple(f"/new/{i}.jpg" for i in range(1_000)), probe=gallery.probe)
    begun = time.perf_counter()
    gallery.add(classifier, part)
    added = time.perf_counter() - begun
    begun = time.perf_counter()
    assert gallery.remove("folder = '/new'") == len(part)
    return {"filter_ms": wall, "add_s": added, "remove_s": time.perf_counter() - begun}


def apart(work: Callable[..., Any], *args: Any, **more: Any) -> tuple[Any, float, float, float]:
    """Return the result of a call in a process of its own, its wall seconds, its largest memory in megabytes and processor seconds."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measured, (work, args, more))


def _measured(work: Callable[..., Any], args: Any, more: Any) -> tuple[Any, float, float, float]:
    torch.set_num_threads(1)
    with suppress(UsageError):
        need_faiss().omp_set_num_threads(1)
    begun, processor = time.perf_counter(), time.process_time()
    result = work(*args, **more)
    wall, most = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return result, wall, most, time.process_time() - processor


def size_of(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20


def rows(count: int, chosen: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    asked = queries(count, chosen.size, chosen.queries)
    right, out = apart(truth, count, chosen.size, asked)[0], []
    print(f"  the right answers for {len(asked)} queries are known", flush=True)
    for way in chosen.ways:
        build, how = WAYS[way]
        here = folder / way
        here.mkdir()
        _, built, most, processor = apart(build, here, count, chosen.size, **how)
        figures, *_ = apart(search, here, way, chosen.size, asked, right)
        about = {"build_s": built, "build_cpu_s": processor, "build_mb": most, "file_mb": size_of(here)}
        out.append({"codes": count, "way": way, **about, **figures})
        print(out[-1], flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codes", type=int, nargs="+", default=[2_000_000])
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}, lancedb {need_lancedb().__version__}"
    )
    out = []
    for count in chosen.codes:
        with tempfile.TemporaryDirectory() as folder:
            out += rows(count, chosen, Path(folder))
    heads = list(dict.fromkeys(head for row in out for head in row))
    table = Table(*heads)
    for row in out:
        table.add_row(
            *(f"{row[head]:.3g}" if isinstance(row.get(head), float) else str(row.get(head, "")) for head in heads)
        )
    Console(width=180).print(table)
    if chosen.json:
        chosen.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
