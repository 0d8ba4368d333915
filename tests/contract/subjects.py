"""What the contract checks run on: every registered method, trained for a moment on easy pictures."""

import tempfile
from functools import cache
from pathlib import Path

from labelwise.checks import Subject
from labelwise.core import Classifier, LabelModel, as_float
from labelwise.data.dataset import Dataset
from labelwise.fitting import fit, training_data
from labelwise.methods import METHODS
from labelwise.store import load, save
from labelwise.training import Method, Run
from labelwise.zero_shot import plan_runs
from tests.conftest import blobs, quick


def roundtrip(classifier: Classifier) -> Classifier:
    with tempfile.TemporaryDirectory() as folder:
        save(classifier, Path(folder) / "model.lw")
        return load(Path(folder) / "model.lw")


def pictures(name: str) -> Dataset:
    """Easy pictures for a method; one that holds labels out in a trial gets enough of them."""
    return blobs(6 if METHODS[name].zero_shot else 4)


def subject_of(name: str) -> Subject:
    data, method = pictures(name), quick(name)

    def build() -> LabelModel:
        settled = trained(name).method
        assert isinstance(settled, Method)
        return settled.build((plan_runs(data, method, 4).final if method.zero_shot else training_data(data)).spec)

    return Subject(
        train=lambda: fit(data, method, Run(seed=4, device="cpu")),
        build=build,
        roundtrip=roundtrip,
        images=as_float(data.split("test").images[:12]),
    )


@cache
def trained(name: str) -> Classifier:
    return subject_of(name).train()
