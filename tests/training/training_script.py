"""Trains on easy pictures and saves; run as a process of its own by the training tests."""

import sys
from pathlib import Path

from labelwise.errors import Interrupted
from labelwise.fitting.fit import fit
from labelwise.store import save
from labelwise.training.distribution import is_main_process
from labelwise.training.stages import Run
from tests.conftest import blobs, quick

if __name__ == "__main__":
    out, method, epochs, resume = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), "resume" in sys.argv
    run = Run(seed=5, device="cpu", folder=out.with_suffix(".run"), resume=resume, checkpoint_seconds=0.05)
    try:
        classifier = fit(blobs(per_label=48), quick(method, epochs), run)
    except Interrupted as stop:
        print(stop)
        sys.exit(7)
    if is_main_process():
        save(classifier, out)
