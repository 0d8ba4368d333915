"""What a classifier can be asked (found by trying), and its card."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from labelwise.core.classifier import Classifier
from labelwise.core.scores import Scores
from labelwise.encoders.encoder import Encoder, Locates
from labelwise.server.settings import Service
from labelwise.support.errors import LabelwiseError, UsageError
from labelwise.support.text import FACTS, FIGURES
from labelwise.tasks.ask import DRAFT, reading
from labelwise.tasks.explain import explain
from labelwise.tasks.teach import teach

READ_ONLY = "This service is read-only: it was started with --read-only."
NO_RULE = "This classifier has no rule for outliers: calibrate it first."
NO_PAIRS = "This classifier has no threshold for pairs of images. Fit one with: labelwise calibrate."
NO_GALLERY = "There is no gallery to search: start the service with --gallery FOLDER."
CALLED = {"precision": "mean_average_precision"} | {
    f"{key}_{when}": key for key in ("ece", "answer_ece") for when in ("before", "after")
}  # figures of the card by the keys of their words
CHANGES = ("teach_examples", "teach_texts", "teach_vector", "correct", "forget", "undo")


def check_takes_images(shape: tuple[int, ...]) -> None:
    """Raise an error unless a model of this image shape takes images."""
    if len(shape) != 3:
        raise UsageError(
            f"This model takes {shape[0]} precomputed features of each image, and a service is sent images. Fit one on "
            "images."
        )
    if shape[0] not in (1, 3):
        raise UsageError(f"This model takes images of {shape[0]} channels; images have 1 (grey) or 3 (colour).")


def capabilities(classifier: Classifier, service: Service) -> dict[str, str | None]:
    """Return for each question None, or why this classifier cannot answer it.

    What depends on more than the kind of model (``can``) is tried: a backbone may have no feature maps, a reader of texts no words.
    """
    blank = classifier.scores(np.full((2, *classifier.shape), 128, np.uint8))
    vectors = classifier.head.labels.vectors
    vector = np.ones(1 if vectors is None else vectors.shape[1], np.float32)
    texts = _why_not(with_text, blank, "a bird")
    can: dict[str, str | None] = {
        "classify": None,
        "ask": None,
        "ask_text": texts,
        "explain": _why_not(explain, blank[:1]),
        "outliers": None if classifier.familiarity.rule else NO_RULE,
        "verify": None if classifier.verifier else NO_PAIRS,
        "retrieve": None if service.gallery else NO_GALLERY,
        "teach_examples": _why_not(teach, classifier, DRAFT, examples=blank),
        "teach_texts": texts,
        "teach_vector": _why_not(teach, classifier, DRAFT, vector=vector),
        "correct": _why_not(teach, classifier, classifier.labels.names[0], examples=blank),
        "forget": None,
        "undo": None,
    }
    return can | dict.fromkeys(CHANGES, READ_ONLY) if service.read_only else can


def with_text(scores: Scores, text: str) -> Scores:
    """Return the scores of the same images with one more label at the end: a sentence."""
    return scores.of(reading(scores.classifier, text))


def _why_not(task: Callable[..., object], *values: object, **more: object) -> str | None:
    try:
        task(*values, **more)
    except LabelwiseError as error:
        return str(error)
    return None


def card(classifier: Classifier, service: Service, can: dict[str, str | None]) -> dict[str, Any]:
    """Return what does not change while a service runs: the origin of the model, its figures and limits."""
    summary = classifier.origin.summary
    training = summary.get("training", {})
    facts = ("data", "images", "seconds", "validation_images", "skipped", "seed", "torch")
    vectors = classifier.head.labels.vectors
    trained, figures = {name: training[name] for name in facts if name in training}, _figures(summary)
    return {
        "model": service.model.resolve().name,
        "method": classifier.kind,
        "shape": list(classifier.shape),
        "trained": trained,
        "figures": figures,
        "words": {key: FIGURES[CALLED.get(key, key)] for key in figures}
        | {f"trained_{key}": FACTS[key] for key in trained},
        "limits": list(_limits(classifier, can)),
        "can": can,
        "read_only": service.read_only,
        "multilabel": classifier.calibration.multilabel,
        "vector": {"size": vectors.shape[1]} if vectors is not None and can["teach_vector"] is None else None,
    }


def _figures(summary: Mapping[str, Any]) -> dict[str, float]:
    training, calibration = summary.get("training", {}), summary.get("calibration", {})
    estimated = None if summary.get("labels_by") else summary.get("leave_one_out", {}).get("accuracy")
    figures = {
        "accuracy": training.get("validation_accuracy", estimated),
        "precision": training.get("validation_precision"),
    }
    errors = ("ece_before", "ece_after", "answer_ece_before", "answer_ece_after")
    figures |= {name: calibration.get(name) for name in errors}
    return {name: float(value) for name, value in figures.items() if isinstance(value, int | float)}


def seen_window(encoder: Encoder) -> tuple[slice, slice]:
    """Return the rows and columns of an image that an encoder looks at."""
    return encoder.window if isinstance(encoder, Locates) else (slice(None), slice(None))


def _limits(classifier: Classifier, can: dict[str, str | None]) -> Iterator[str]:
    channels, height, width = classifier.shape
    summary, calibration, encoder = classifier.origin.summary, classifier.calibration, classifier.encoder
    how = "both sides stretched" if encoder.fit.startswith("stretch") else "the centre, with the short side fitted"
    yield f"It sees every image as {width} x {height} pixels in {'colour' if channels == 3 else 'grey'}: {how}."
    rows, columns = (len(range(side)[part]) for side, part in zip((height, width), seen_window(encoder), strict=True))
    if (rows, columns) != (height, width):
        yield f"Of that it looks at the middle {columns} x {rows} pixels."
    keep = summary.get("calibration", {}).get("keep")
    if isinstance(keep, float) and classifier.familiarity.rule is not None:
        lost = f"{100 * (1 - keep):.0f} of 100 images of known labels are called unknown."
        yield f"{lost} Images of unknown but similar things often pass as known."
    if calibration.exclusive:
        yield "Its labels compete: yes or no to one label depends on which others there are."
    elif not calibration.multilabel:
        yield "The probability of a yes assumes that each label is asked equally often."
    if can["teach_examples"] is None:
        yield "A label taught from five images is much weaker than a trained one, above all beside a close relative."
    if calibration.unseen.any():
        yield "Labels known from a description alone are named with more mistakes than those with images."
    if summary.get("naming"):
        yield "Its clusters were named without one labelled image; some names may be wrong."
    if summary.get("labels_by"):
        yield "Its labels were not chosen by a person, so nothing says how accurate it is."
    how = "training images, by leave-one-out"
    told = how if "leave_one_out" in summary else "validation images"
    yield f"Figures are of {told}, of its own data; on other images they are usually worse."
