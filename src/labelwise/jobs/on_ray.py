"""Process blocks with Ray actors: on this machine, or on a cluster with shared files.

Only block numbers are sent: an actor reads images and writes answers itself. So plain actors are enough. Ray Data would start
three more processes and import pandas without a benefit.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

from labelwise.jobs.parts import AHEAD, TRIES, Done, Parts
from labelwise.support.errors import LabelwiseError, UsageError


@contextmanager
def ray_started(workers: int) -> Iterator[Callable[[Parts, Done], None]]:
    """Process missing blocks with Ray actors; yields a runner while Ray, which takes seconds, starts."""
    try:
        ray = import_module("ray")
    except ImportError:
        raise UsageError('--workers ray:N needs Ray: pip install "labelwise[ray]".') from None
    mine = not ray.is_initialized()
    with ThreadPoolExecutor(1) as thread:  # Ray's processes end with the thread that started them, so this thread stays
        starting = thread.submit(_start, ray, workers) if mine else None
        try:
            yield lambda job, done: _run(ray, starting, job, workers, done)
        finally:
            if starting is not None:
                starting.exception()
                ray.shutdown()


def _start(ray: Any, workers: int) -> None:
    address = os.environ.get("RAY_ADDRESS")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    own: dict[str, Any] = {} if address else {"num_cpus": max(workers, os.cpu_count() or 1), "include_dashboard": False}
    ray.init(address=address, log_to_driver=False, logging_level="ERROR", **own)


def _run(ray: Any, starting: "Future[None] | None", job: Parts, workers: int, advance: Done) -> None:
    missing = job.missing
    if not missing:
        return
    if starting is not None:
        starting.result()
    job, gpus = _resources(job, workers, ray.cluster_resources())
    actor = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=-1, max_task_retries=TRIES - 1)(RayWorker)
    box, waiting, remaining = [ray.put(job)], iter(missing), len(missing)
    # An actor gets blocks once it responds, so actors that do not fit into the cluster get none.
    actors = [actor.remote() for _ in range(workers)]
    running: dict[Any, tuple[Any, int | None]] = {each.answer.remote(box, None): (each, None) for each in actors}
    while remaining:
        ((ready, *_), _) = ray.wait(list(running))
        each, block = running.pop(ready)
        _outcome(ray, ready, job, block)
        if block is not None:
            remaining -= 1
            advance(job.sizes[block])
        for _, following in zip(range(AHEAD if block is None else 1), waiting, strict=False):
            running[each.answer.remote(box, following)] = (each, following)


def _resources(job: Parts, workers: int, cluster: dict[str, float]) -> tuple[Parts, float]:
    """Return the job for the cluster's device, and the GPU share per actor: actors share GPUs if there are fewer."""
    gpus = cluster.get("GPU", 0.0)
    if job.device == "cuda" and not gpus:
        raise UsageError("Device cuda was asked for, but this Ray cluster has no GPU. Use auto or cpu.")
    if job.device == "cpu" or not gpus:
        return replace(job, device="cpu"), 0.0
    return replace(job, device="cuda"), min(1.0, gpus / workers)


def _outcome(ray: Any, result: Any, job: Parts, block: int | None) -> None:
    """Raise the error of a block with a readable message."""
    try:
        ray.get(result)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, LabelwiseError):
            raise error.cause from None
        raise
    except ray.exceptions.RayActorError:
        if block is None:
            raise LabelwiseError("A process of Ray could not open the classifier: it was ended each time.") from None
        raise job.deadly(block) from None


class RayWorker:
    """An actor: opens the classifier once and processes block after block."""

    def __init__(self) -> None:
        self._job: Parts | None = None

    def answer(self, box: list[Any], block: int | None) -> None:
        """Process a missing block; with None, only open the classifier. A box holds the reference to the job."""
        if self._job is None:
            job: Parts = import_module("ray").get(box[0])
            self._opened, self._job = job.open(1), job
        if block is not None and not self._job.is_done(block):
            self._job.answer(self._opened, block)
