"""The questions that a classifier can answer (found by trying), and its model card."""

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

READ_ONLY = "This service is read-only (--read-only)."
NO_RULE = "This classifier has no outlier threshold: calibrate it first."
NO_PROMISE = "This classifier cannot promise how often it is right: fit it again, or calibrate it."
NO_PAIRS = "This classifier has no threshold for pairs of images. Fit one with: labelwise calibrate."
NO_GALLERY = "There is no gallery. Start the service with --gallery FOLDER."
CALLED = {"precision": "mean_average_precision"} | {
    f"{key}_{when}": key for key in ("ece", "answer_ece") for when in ("before", "after")
}  # figures of the card by the keys of their words
CHANGES = ("teach_examples", "teach_texts", "teach_vector", "correct", "forget", "undo")


def check_takes_images(shape: tuple[int, ...]) -> None:
    """Raise an error unless a model with this input shape takes images."""
    if len(shape) != 3:
        raise UsageError(
            f"This model takes {shape[0]} precomputed features per image, but a service receives images. Fit one on "
            "images."
        )
    if shape[0] not in (1, 3):
        raise UsageError(f"This model takes images of {shape[0]} channels; images have 1 (grey) or 3 (colour).")


def capabilities(classifier: Classifier, service: Service) -> dict[str, str | None]:
    """Return None for each question, or why this classifier cannot answer it.

    Some answers depend on more than the kind of model (``can``) and are tried: a backbone may have no feature maps, a text reader no words.
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
        "promise": None if classifier.calibration.mistakes is not None else NO_PROMISE,
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
    """Return the scores of the same images with a sentence as an additional last label."""
    return scores.of(reading(scores.classifier, text))


def _why_not(task: Callable[..., object], *values: object, **more: object) -> str | None:
    try:
        task(*values, **more)
    except LabelwiseError as error:
        return str(error)
    return None


def card(classifier: Classifier, service: Service, can: dict[str, str | None]) -> dict[str, Any]:
    """Return the constant part of the card: the origin of the model, its figures and limits."""
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
    """Return the size of the image area that an encoder uses, in rows and columns."""
    return encoder.window if isinstance(encoder, Locates) else (slice(None), slice(None))


def _limits(classifier: Classifier, can: dict[str, str | None]) -> Iterator[str]:
    channels, height, width = classifier.shape
    summary, calibration, encoder = classifier.origin.summary, classifier.calibration, classifier.encoder
    how = "both sides stretched" if encoder.fit.startswith("stretch") else "the centre, with the short side fitted"
    yield f"It sees every image as {width} x {height} pixels in {'colour' if channels == 3 else 'grey'}: {how}."
    rows, columns = (len(range(side)[part]) for side, part in zip((height, width), seen_window(encoder), strict=True))
    if (rows, columns) != (height, width):
        yield f"It uses the central {columns} x {rows} pixels of that."
    keep = summary.get("calibration", {}).get("keep")
    if isinstance(keep, float) and classifier.familiarity.rule is not None:
        lost = f"It calls {100 * (1 - keep):.0f} of 100 images of known labels unknown."
        yield f"{lost} It often takes images of unknown but similar things as known."
    if calibration.exclusive:
        yield "Its labels compete: yes or no for one label depends on the other labels."
    elif not calibration.multilabel:
        yield "The probability of a yes assumes that each label is asked equally often."
    if can["teach_examples"] is None:
        yield "A label taught from five images is much less accurate than a trained one, above all next to a similar label."
    if calibration.unseen.any():
        yield "Labels with only a description get more mistakes than labels with images."
    if summary.get("naming"):
        yield "Its clusters were named without any labelled image; some names may be wrong."
    if summary.get("labels_by"):
        yield "No person chose its labels, so its accuracy is not known."
    how = "training images, by leave-one-out"
    told = how if "leave_one_out" in summary else "validation images"
    yield f"Its figures come from {told} of its own data; other images usually give lower figures."
