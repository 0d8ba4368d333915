"""A classifier with some of its pieces changed, by their names, for tests."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from labelwise.core.calibration import Calibration, Familiarity
from labelwise.core.classifier import Classifier, MethodRecord, Origin, bind
from labelwise.core.load import ABOUT
from labelwise.core.scores import Scores
from labelwise.fitting import rebuild
from labelwise.fitting.rebuild import training_state
from labelwise.fitting.steps import Trained
from labelwise.images.as_images import as_images
from labelwise.images.describe.labels import Labels
from labelwise.train.method import Method
from labelwise.train.model import LabelModel
from tests.torch_head import Flat, head_of

PARTS = {"calibration": Calibration, "familiarity": Familiarity, "origin": Origin}


def changed(classifier: Classifier, **pieces: Any) -> Classifier:
    """Return the classifier with these pieces, be they its own or of its calibration, familiarity or origin."""
    pieces = {name: part.numpy() if isinstance(part, Tensor) else part for name, part in pieces.items()}
    for name, kind in PARTS.items():
        own = {field.name: pieces.pop(field.name) for field in fields(kind) if field.name in pieces}
        if own:
            classifier = replace(classifier, **{name: replace(getattr(classifier, name), **own)})
    return replace(classifier, **pieces)


def description(folder: Path) -> dict[str, Any]:
    """Return what a saved classifier says of itself, without the checksum: to be edited on purpose, or compared."""
    about: dict[str, Any] = json.loads((folder / ABOUT).read_text())
    about.pop("checksum", None)
    return about


def made_from(classifier: Classifier, images: Tensor) -> Classifier:
    """Return the classifier with these images among those it was made from."""
    return replace(classifier, origin=classifier.origin.with_images(as_images(images, classifier.shape)))


def exact(classifier: Classifier, images: Tensor) -> Scores:
    """Return the scores of images as they are: ``classifier.scores`` rounds floats to bytes."""
    return classifier.scores_of(classifier.encode(images))


def known_by_description(classifier: Classifier, *names: str) -> Classifier:
    """Return the classifier with these labels, and no others, known from a description alone."""
    return changed(classifier, unseen=np.isin(classifier.labels.names, names))


def with_penalty(classifier: Classifier, seen_penalty: float) -> Classifier:
    """Return the classifier with seen labels held back by another amount."""
    own, other = classifier.calibration, replace(classifier.calibration, seen_penalty=seen_penalty)
    (factor, shift), (new_factor, new_shift) = own.penalties(), other.penalties()
    scale = own.scale / factor
    offset = own.offset - shift * scale + new_shift * scale
    return replace(classifier, calibration=replace(other, scale=scale * new_factor, offset=offset))


def bind_model(model: LabelModel, labels: Labels, method: Method | None = None) -> Classifier:
    """Return the classifier of a model of torch as it is now; one without a head of its own gets one that asks the model."""
    model.eval()
    if type(model).export_head is LabelModel.export_head:
        return bind(head_of(model), Flat(model.spec.shape), labels)
    record = None if method is None else MethodRecord.of(method)
    return changed(Trained.of(model).bind(labels), method=record, training=training_state(model))


def model_of(classifier: Classifier) -> Any:
    """Return the model of torch of a classifier, of whatever class it is."""
    return rebuild.model_of(classifier)
