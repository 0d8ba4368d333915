"""What a classifier can be asked, found by trying, and its card in plain words."""

from collections.abc import Callable
from typing import Any

import torch

from labelwise.core import Classifier
from labelwise.errors import LabelwiseError, UsageError
from labelwise.server.questions import DRAFT, with_text
from labelwise.server.settings import Service
from labelwise.server.shown import Shown
from labelwise.tasks.explain import heat_maps
from labelwise.tasks.teach import teach

READ_ONLY = "This service is read-only: it was started with --read-only."


def check_pictures(shape: tuple[int, ...]) -> None:
    """Raise an error unless a model of this image shape takes pictures."""
    if len(shape) != 3:
        raise UsageError(
            f"This model takes {shape[0]} precomputed features of each image, and a service is sent pictures. Fit one on "
            "pictures."
        )
    if shape[0] not in (1, 3):
        raise UsageError(f"This model takes images of {shape[0]} channels; pictures have 1 (grey) or 3 (colour).")


def abilities(classifier: Classifier, service: Service, gallery: Shown | None) -> dict[str, str | None]:
    """Return for each question None, or why this classifier cannot answer it."""
    blank = torch.full((2, *classifier.model.spec.shape), 128, dtype=torch.uint8)
    vectors = classifier.model.spec.labels.vectors
    size = 1 if vectors is None else vectors.shape[1]
    teachable = {
        "teach_examples": lambda: teach(classifier, DRAFT, examples=blank),
        "teach_texts": lambda: with_text(classifier, "a bird"),
        "teach_vector": lambda: teach(classifier, DRAFT, vector=torch.ones(size)),
    }
    tried = {name: _why_not(trial) for name, trial in teachable.items()}
    can: dict[str, str | None] = {"classify": None, "ask": None, "ask_text": tried["teach_texts"]}
    can["explain"] = _why_not(lambda: heat_maps(classifier, blank[:1], torch.tensor([0])))
    can["outliers"] = None if classifier.outlier else "This classifier has no rule for outliers: calibrate it first."
    can["verify"] = None if classifier.verification else (
        "This classifier has no threshold for pairs of pictures. Fit one with: labelwise calibrate."
    )  # fmt: skip
    can["retrieve"] = None if gallery else "There is no gallery to search: start the service with --gallery FOLDER."
    can |= tried
    can |= {"forget": None, "undo": None}
    if service.read_only:
        can |= dict.fromkeys((*tried, "forget", "undo"), READ_ONLY)
    return can


def _why_not(trial: Callable[[], object]) -> str | None:
    try:
        trial()
    except LabelwiseError as error:
        return str(error)
    return None


def card(classifier: Classifier, service: Service, can: dict[str, str | None]) -> dict[str, Any]:
    """Return what does not change while a service runs: where the model comes from and what to expect of it."""
    training = classifier.summary.get("training", {})
    calibration = classifier.summary.get("calibration", {})
    kept = ("data", "images", "seconds", "validation_images", "skipped", "seed", "torch")
    vectors = classifier.model.spec.labels.vectors
    return {
        "model": service.model.resolve().name,
        "method": getattr(classifier.method, "name", type(classifier.model).__name__),
        "shape": list(classifier.model.spec.shape),
        "trained": {name: training[name] for name in kept if name in training},
        "figures": _figures(training, calibration),
        "limits": _limits(classifier, can),
        "can": can,
        "read_only": service.read_only,
        "multilabel": classifier.multilabel,
        "vector": {"size": vectors.shape[1]} if vectors is not None and can["teach_vector"] is None else None,
    }


def _figures(training: dict[str, Any], calibration: dict[str, Any]) -> dict[str, float]:
    named = {"accuracy": training.get("validation_accuracy"), "precision": training.get("validation_precision")}
    named |= {
        name: calibration.get(name) for name in ("ece_before", "ece_after", "answer_ece_before", "answer_ece_after")
    }
    return {name: float(value) for name, value in named.items() if isinstance(value, int | float)}


def _limits(classifier: Classifier, can: dict[str, str | None]) -> list[str]:
    channels, height, width = classifier.model.spec.shape
    colour = "colour" if channels == 3 else "grey"
    found = [f"It sees every picture as {width} x {height} pixels in {colour}: the centre, with the short side fitted."]
    keep = classifier.summary.get("calibration", {}).get("keep")
    if classifier.outlier is not None and isinstance(keep, float):
        found.append(
            f"{100 * (1 - keep):.0f} of 100 pictures of known labels are called unknown. Pictures of unknown but similar "
            "things often pass as known."
        )
    if classifier.model.exclusive:
        found.append("Its labels compete: yes or no to one label depends on which others there are.")
    elif not classifier.multilabel:
        found.append("The probability of a yes assumes that each label is asked equally often.")
    if can["teach_examples"] is None:
        found.append(
            "A label taught from five pictures is much weaker than a trained one, above all beside a close relative."
        )
    if classifier.described:
        found.append("Labels known from a description alone are named with more mistakes than those with pictures.")
    if classifier.summary.get("naming"):
        found.append("Its clusters were named without one labelled picture; some names may be wrong.")
    found.append("Figures are of validation pictures of its own data; on other pictures they are usually worse.")
    return found
