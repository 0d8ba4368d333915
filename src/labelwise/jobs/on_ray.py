"""A job as a pipeline of Ray Data: on the cores of this machine, or on a cluster whose machines see the same files."""

import logging
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from labelwise.errors import UsageError
from labelwise.jobs.job import Job, answer_block
from labelwise.jobs.local import open_for

CORES = 0.9  # of an actor, so that something is left for what hands out blocks: on two cores two whole ones would wait for ever


def run_on_ray(job: Job, workers: int, done: Callable[[int], None]) -> None:
    """Answer the blocks that are missing; actors that die are started anew by Ray, and their blocks handed out again."""
    try:
        ray, data = import_module("ray"), import_module("ray.data")
    except ImportError:
        raise UsageError('--engine ray needs Ray: pip install "labelwise[ray]".') from None
    missing = job.missing
    if not missing:
        return
    mine = not ray.is_initialized()
    if mine:
        address = os.environ.get("RAY_ADDRESS")
        own: dict[str, Any] = (
            {} if address else {"num_cpus": max(workers, os.cpu_count() or 1), "include_dashboard": False}
        )
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
    try:
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        data.DataContext.get_current().enable_progress_bars = False
        gpus = 1 if job.device == "cuda" else 0
        blocks = data.from_items([{"block": block} for block in missing], override_num_blocks=len(missing))
        answered = blocks.map_batches(
            Answers,
            fn_constructor_args=(job,),
            batch_size=1,
            num_cpus=CORES,
            num_gpus=gpus,
            compute=data.ActorPoolStrategy(size=workers),
        )
        for row in answered.iter_rows():
            done(row["pictures"])
    finally:
        if mine:
            ray.shutdown()


class Answers:
    """An actor: it opens the classifier once, and answers block after block."""

    def __init__(self, job: Job) -> None:
        self.job, self.classifier = job, open_for(job, 1)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Write the files of blocks that are not there yet, and return how many pictures they are about."""
        for block in batch["block"].tolist():
            if not self.job.place(block).exists():
                answer_block(self.job, self.classifier, block)
        return {"pictures": [len(self.job.blocks[block]) for block in batch["block"].tolist()]}
