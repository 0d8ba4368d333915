"""Snapshots of weights during training, and the accuracy of the model with each."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from labelwise.core.classifier import Classifier
from labelwise.evaluation.evaluation import align_targets
from labelwise.images.dataset import Split
from labelwise.images.describe.labels import Labels
from labelwise.support.files import read_tensors, with_prefix
from labelwise.train.model import LabelModel


def through_snapshots(model: LabelModel, folder: Path) -> Iterator[int]:
    """Yield numbers of epochs of the last stage, in order, while the model has the weights that were kept after them; it keeps the last."""
    files = {tuple(map(int, file.stem.split("-")[1:])): file for file in folder.glob("snapshot-*-*.safetensors")}
    last = max(files, default=(0,))[0]
    for stage, epochs in sorted(files):
        if stage == last:
            model.load_state_dict(with_prefix("model", read_tensors(files[stage, epochs])[0]))
            yield epochs


def accuracy(classifier: Classifier, split: Split, labels: Labels) -> float:
    """Return how many images of the classifier's labels are answered rightly, as a share; targets count through ``labels``."""
    targets = np.asarray(align_targets(classifier, split, labels))
    answers = classifier.scores(split.images.select(targets >= 0)).best
    return float((answers == targets[targets >= 0]).mean())
