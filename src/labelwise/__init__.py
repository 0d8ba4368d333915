"""Image classifiers whose labels are inputs.

A model scores every (image, label) pair. Fix the labels and what is left is a classifier. Every task is a question
about the resulting matrix of scores.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from labelwise import data, evaluate, methods, report
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
    from labelwise.classifier import Classifier
    from labelwise.exactness import exact
    from labelwise.fitting.fit import fit
    from labelwise.labels import Labels
    from labelwise.model import LabelModel, Spec
    from labelwise.scores import Scores
    from labelwise.store import load, save
    from labelwise.tasks.attack import attack
    from labelwise.tasks.imagine import imagine
    from labelwise.training.stages import Run
    from labelwise.view import View

__all__ = [
    "Classifier", "LabelModel", "Labels", "Run", "Scores", "Spec", "View", "ask", "attack", "calibrate", "classify",
    "data", "evaluate", "exact", "explain", "fit", "fit_verification", "forget", "imagine", "load", "methods",
    "outliers", "rank", "report", "retrieve", "save", "teach", "verify",
]  # fmt: skip

# Where public names live that are neither packages nor in api. Nothing is imported before it is used: torch takes a second.
_PLACES = {
    "Classifier": "classifier",
    "LabelModel": "model",
    "Labels": "labels",
    "Run": "training.stages",
    "Scores": "scores",
    "Spec": "model",
    "View": "view",
    "attack": "tasks.attack",
    "exact": "exactness",
    "fit": "fitting.fit",
    "imagine": "tasks.imagine",
    "load": "store",
    "save": "store",
}


def __getattr__(name: str) -> Any:
    """Return a public name, importing where it lives on first use."""
    if name not in __all__:
        raise AttributeError(f"module labelwise has no attribute {name!r}")
    if name in ("data", "evaluate", "methods", "report"):
        return import_module(f"labelwise.{name}")
    return getattr(import_module(f"labelwise.{_PLACES.get(name, 'api')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
