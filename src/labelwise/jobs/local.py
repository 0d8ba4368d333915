"""A job in processes of this machine; one that dies is replaced, and its block is tried again."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING

from labelwise.errors import LabelwiseError
from labelwise.interruption import leave_to_parent, stoppable
from labelwise.jobs.job import Job, answer_block

if TYPE_CHECKING:
    from labelwise.classifier import Classifier

TRIES = 3  # of a block whose process dies
AHEAD = 2  # blocks that wait for each process


def run_here(job: Job, workers: int, done: Callable[[int], None]) -> None:
    """Answer the blocks that are missing; ``done`` is told how many pictures each had."""
    missing, tries = job.missing, dict.fromkeys(job.missing, 0)
    while missing:
        lost = _run(job, workers, missing, done)
        for block in lost:
            tries[block] += 1
            if tries[block] == TRIES:
                first, last = job.blocks[block][0], job.blocks[block][-1]
                raise LabelwiseError(
                    f"A process that read the pictures from {first} to {last} was ended {TRIES} times, perhaps for want of memory. The other "
                    "answers are kept: take fewer --workers, or leave these pictures out, and run the same command again."
                )
        missing = job.missing


def _run(job: Job, workers: int, blocks: list[int], done: Callable[[int], None]) -> list[int]:
    """Answer blocks, and return those that were being worked on when a process died."""
    context = multiprocessing.get_context("spawn")
    threads = max(1, (os.cpu_count() or 1) // workers)
    running: dict[Future[int], int] = {}
    waiting = iter(blocks)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_open, initargs=(job, threads))
    with stoppable(pool):
        try:
            for block in waiting:
                running[pool.submit(_answer, block)] = block
                if len(running) >= AHEAD * workers:
                    _collect(running, job, done)
            while running:
                _collect(running, job, done)
        except BrokenProcessPool:
            return [block for block in running.values() if not job.place(block).exists()]
    return []


def _collect(running: "dict[Future[int], int]", job: Job, done: Callable[[int], None]) -> None:
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        future.result()
        done(len(job.blocks[running.pop(future)]))


class _Open:
    """What a process of the pool keeps between blocks."""

    job: Job
    classifier: "Classifier"


def _open(job: Job, threads: int) -> None:
    leave_to_parent()
    _Open.job, _Open.classifier = job, open_for(job, threads)


def open_for(job: Job, threads: int) -> "Classifier":
    """Return the classifier of a job in a process of its own, which keeps no features: they are in the answers, or of no use."""
    os.environ["LABELWISE_CACHE"] = "off"
    import torch

    from labelwise.store import load

    torch.set_num_threads(threads)
    return load(job.model, device=torch.device(job.device))


def _answer(block: int) -> int:
    return answer_block(_Open.job, _Open.classifier, block)
