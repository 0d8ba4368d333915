"""Image classifiers whose labels are inputs.

A model scores every (image, label) pair. Fix the labels and what is left is a classifier. Every task is a question
about the resulting matrix of scores.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from labelwise import data, evaluate, methods, report
    from labelwise.core import Classifier, LabelModel, Labels, Spec
    from labelwise.fitting import fit
    from labelwise.store import load, save
    from labelwise.tasks.ask import ask
    from labelwise.tasks.attack import attack
    from labelwise.tasks.calibrate import calibrate
    from labelwise.tasks.classify import classify
    from labelwise.tasks.explain import explain
    from labelwise.tasks.imagine import imagine
    from labelwise.tasks.outliers import outliers
    from labelwise.tasks.rank import rank
    from labelwise.tasks.retrieve import retrieve
    from labelwise.tasks.teach import forget, teach
    from labelwise.tasks.verify import verify
    from labelwise.training import Run

# Where each public name lives. Nothing is imported before it is used: torch alone takes a second.
_PLACES = {
    "Classifier": "core",
    "LabelModel": "core",
    "Labels": "core",
    "Run": "training",
    "Spec": "core",
    "ask": "tasks.ask",
    "attack": "tasks.attack",
    "calibrate": "tasks.calibrate",
    "classify": "tasks.classify",
    "explain": "tasks.explain",
    "fit": "fitting",
    "forget": "tasks.teach",
    "imagine": "tasks.imagine",
    "load": "store",
    "outliers": "tasks.outliers",
    "rank": "tasks.rank",
    "retrieve": "tasks.retrieve",
    "save": "store",
    "teach": "tasks.teach",
    "verify": "tasks.verify",
}

__all__ = [
    "Classifier",
    "LabelModel",
    "Labels",
    "Run",
    "Spec",
    "ask",
    "attack",
    "calibrate",
    "classify",
    "data",
    "evaluate",
    "explain",
    "fit",
    "forget",
    "imagine",
    "load",
    "methods",
    "outliers",
    "rank",
    "report",
    "retrieve",
    "save",
    "teach",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Return a public name, importing where it lives on first use."""
    if name in ("data", "evaluate", "methods", "report"):
        return import_module(f"labelwise.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module labelwise has no attribute {name!r}")
    return getattr(import_module(f"labelwise.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
