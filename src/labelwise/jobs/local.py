"""Process blocks in local processes; a process that dies is replaced, and its block is retried."""

import multiprocessing
import os
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from labelwise.jobs.parts import AHEAD, TRIES, Done, Parts
from labelwise.support.processes import cancel_on_error, leave_to_parent


def run_here(job: Parts, workers: int, advance: Done) -> None:
    """Process missing blocks; ``advance`` gets the number of images of each finished one."""
    missing, tries = job.missing, dict.fromkeys(job.missing, 0)
    while missing:
        lost_blocks = _run(job, workers, missing, advance)
        for block in lost_blocks:
            tries[block] += 1
            if tries[block] == TRIES:
                raise job.deadly(block)
        missing = job.missing


def _run(job: Parts, workers: int, blocks: list[int], advance: Done) -> list[int]:
    """Process blocks; return those in progress when a process died."""
    context = multiprocessing.get_context("spawn")
    threads = max(1, (os.cpu_count() or 1) // workers)
    running: dict[Future[None], int] = {}
    waiting = iter(blocks)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_open, initargs=(job, threads))
    with cancel_on_error(pool):
        try:
            for block in waiting:
                running[pool.submit(_answer, block)] = block
                if len(running) >= AHEAD * workers:
                    _collect(running, job, advance)
            while running:
                _collect(running, job, advance)
        except BrokenProcessPool:
            return [block for block in running.values() if not job.is_done(block)]
    return []


def _collect(running: "dict[Future[None], int]", job: Parts, advance: Done) -> None:
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        future.result()
        advance(job.sizes[running.pop(future)])


class _Open:
    """State of a pool process between blocks."""

    job: Parts
    value: Any


def _open(job: Parts, threads: int) -> None:
    leave_to_parent()
    _Open.job, _Open.value = job, job.open(threads)


def _answer(block: int) -> None:
    _Open.job.answer(_Open.value, block)
