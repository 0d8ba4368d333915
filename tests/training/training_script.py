"""Trains on easy pictures; run as a process of its own by the training tests, to be killed on the way."""

import sys
from pathlib import Path

from labelwise.classifier import Classifier
from labelwise.errors import Interrupted
from labelwise.fitting.fit import fit
from labelwise.training.stages import Run
from tests.conftest import blobs, quick


def train_on_blobs(folder: Path, epochs: int, resume: bool = False) -> Classifier:
    run = Run(seed=5, device="cpu", folder=folder, resume=resume, checkpoint_seconds=0.05)
    return fit(blobs(per_label=48), quick("indicator", epochs), run)


if __name__ == "__main__":
    try:
        train_on_blobs(Path(sys.argv[1]), int(sys.argv[2]))
    except Interrupted:
        sys.exit(7)
