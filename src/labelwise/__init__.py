"""Image classifiers whose labels are inputs.

A model scores every (image, label) pair. Fix the labels and what is left is a classifier. Every task is a question
about the resulting matrix of scores.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from labelwise import evaluation as evaluate
    from labelwise import images as data
    from labelwise import methods
    from labelwise import reporting as report
    from labelwise.api import (
        ask,
        calibrate,
        classify,
        explain,
        fit_verification,
        forget,
        outliers,
        rank,
        retrieve,
        teach,
        verify,
    )
    from labelwise.core.classifier import Classifier
    from labelwise.core.model import LabelModel, Spec
    from labelwise.core.scores import Scores
    from labelwise.core.store import load, save
    from labelwise.fitting.fit import fit
    from labelwise.images.describe.labels import Labels
    from labelwise.images.view import View
    from labelwise.tasks.imagine import imagine
    from labelwise.train.exactness import exact
    from labelwise.train.stages import Run

__all__ = [
    "Classifier", "LabelModel", "Labels", "Run", "Scores", "Spec", "View", "ask", "calibrate", "classify",
    "data", "evaluate", "exact", "explain", "fit", "fit_verification", "forget", "imagine", "load", "methods",
    "outliers", "rank", "report", "retrieve", "save", "teach", "verify",
]  # fmt: skip

# Where public names live that are neither packages nor in api. Nothing is imported before it is used: torch takes a second.
_PLACES = {
    "Classifier": "core.classifier",
    "LabelModel": "core.model",
    "Labels": "images.describe.labels",
    "Run": "train.stages",
    "Scores": "core.scores",
    "Spec": "core.model",
    "View": "images.view",
    "exact": "train.exactness",
    "fit": "fitting.fit",
    "imagine": "tasks.imagine",
    "load": "core.store",
    "save": "core.store",
}
_PACKAGES = {"data": "images", "evaluate": "evaluation", "methods": "methods", "report": "reporting"}


def __getattr__(name: str) -> Any:
    """Return a public name, importing where it lives on first use."""
    if name not in __all__:
        raise AttributeError(f"module labelwise has no attribute {name!r}")
    if name in _PACKAGES:
        return import_module(f"labelwise.{_PACKAGES[name]}")
    return getattr(import_module(f"labelwise.{_PLACES.get(name, 'api')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
