"""What the contract checks run on: every registered method, trained for a moment on easy images."""

import tempfile
from dataclasses import replace
from pathlib import Path

from labelwise.core.checks import Subject
from labelwise.core.classifier import Classifier, KnownState
from labelwise.core.load import load
from labelwise.core.metrics import confusion_matrix
from labelwise.core.store import save
from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset
from labelwise.methods import METHODS, Encoder
from labelwise.methods.zero_label.assignment import best_matching
from labelwise.methods.zero_label.head import NamedHead
from labelwise.methods.zero_label.rename import name_clusters
from labelwise.train.method import Method, Run
from tests.conftest import blobs, colour_weights, quick
from tests.once import once
from tests.pixels_of import px


def roundtrip(classifier: Classifier) -> Classifier:
    with tempfile.TemporaryDirectory() as folder:
        save(classifier, Path(folder) / "model.lw")
        loaded = load(Path(folder) / "model.lw")
        state = loaded.origin.training and KnownState(loaded.origin.training.read())  # the folder will be gone
        return replace(loaded, origin=replace(loaded.origin, training=state))


def pictures(name: str) -> Dataset:
    """Easy images for a method; one that holds labels out in a trial gets enough of them."""
    return blobs(6 if METHODS[name].zero_shot else 4)


def method_for(name: str) -> Method:
    """Settings for a second of training; what a zero-shot method learns of labels does not need an encoder of its own."""
    method = quick(name)
    if not METHODS[name].zero_shot:
        return method
    encoder = Encoder(backbone="convnet", width=8, weights=colour_weights(), frozen=True)
    return replace(method, encoder=encoder)  # type: ignore[call-arg]


def fit_named(data: Dataset, method: Method, run: Run) -> Classifier:
    """Fit; where clusters were found without a label, answer what each of them is, as a person would."""
    classifier = fit(data, method, run)
    if not isinstance(classifier.head, NamedHead):
        return classifier
    train = data.split("train")
    table = confusion_matrix(classifier.scores(train.images).best, train.targets, len(data.labels)).T
    true = best_matching(table)[classifier.head.names].tolist()
    return name_clusters(classifier, {cluster: data.labels.names[label] for cluster, label in enumerate(true)})


def subject_of(name: str) -> Subject:
    data, method = pictures(name), method_for(name)
    return Subject(
        train=lambda: fit_named(data, method, Run(seed=4, device="cpu")),
        roundtrip=roundtrip,
        images=px(data.split("test"))[:12].numpy(),
    )


@once
def trained(name: str) -> Classifier:
    return subject_of(name).train()
