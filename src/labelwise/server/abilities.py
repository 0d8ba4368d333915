"""What a classifier can be asked, found by trying, and its card in plain words."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from labelwise.classifier import Classifier
from labelwise.errors import LabelwiseError, UsageError
from labelwise.scores import Scores
from labelwise.server.settings import Service
from labelwise.tasks.explain import explain
from labelwise.tasks.teach import teach

DRAFT = "\u0000 asked"  # the name of a label that lives for one question; no client can choose it
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


def abilities(classifier: Classifier, service: Service) -> dict[str, str | None]:
    """Return for each question None, or why this classifier cannot answer it."""
    blank = classifier.scores(torch.full((2, *classifier.shape), 128, dtype=torch.uint8))
    vectors = classifier.model.spec.labels.vectors
    vector = torch.ones(1 if vectors is None else vectors.shape[1])
    texts = _why_not(lambda: with_text(blank, "a bird"))
    changes = {
        "teach_examples": _why_not(lambda: teach(classifier, DRAFT, examples=blank)),
        "teach_texts": texts,
        "teach_vector": _why_not(lambda: teach(classifier, DRAFT, vector=vector)),
        "forget": None,
        "undo": None,
    }
    calibrated, paired = classifier.familiarity.rule, classifier.verifier
    return {
        "classify": None,
        "ask": None,
        "ask_text": texts,
        "explain": _why_not(lambda: explain(blank[:1])),
        "outliers": None if calibrated else "This classifier has no rule for outliers: calibrate it first.",
        "verify": None if paired else "This classifier has no threshold for pairs of pictures. Fit one with: labelwise calibrate.",
        "retrieve": None if service.gallery else "There is no gallery to search: start the service with --gallery FOLDER.",
        **(dict.fromkeys(changes, READ_ONLY) if service.read_only else changes),
    }  # fmt: skip


def with_text(scores: Scores, text: str) -> Scores:
    """Return the scores of the same pictures and of one more label at the end: what a sentence says."""
    return scores.of(teach(scores.classifier, DRAFT, texts=[text]))


def _why_not(trial: Callable[[], object]) -> str | None:
    try:
        trial()
    except LabelwiseError as error:
        return str(error)
    return None


def card(classifier: Classifier, service: Service, can: dict[str, str | None]) -> dict[str, Any]:
    """Return what does not change while a service runs: where the model comes from and what to expect of it."""
    summary = classifier.origin.summary
    training, calibration = summary.get("training", {}), summary.get("calibration", {})
    facts = ("data", "images", "seconds", "validation_images", "skipped", "seed", "torch")
    vectors = classifier.model.spec.labels.vectors
    return {
        "model": service.model.resolve().name,
        "method": getattr(classifier.origin.method, "name", type(classifier.model).__name__),
        "shape": list(classifier.shape),
        "trained": {name: training[name] for name in facts if name in training},
        "figures": _figures(training, calibration),
        "limits": _limits(classifier, can),
        "can": can,
        "read_only": service.read_only,
        "multilabel": classifier.calibration.multilabel,
        "vector": {"size": vectors.shape[1]} if vectors is not None and can["teach_vector"] is None else None,
    }


def _figures(training: dict[str, Any], calibration: dict[str, Any]) -> dict[str, float]:
    figures = {"accuracy": training.get("validation_accuracy"), "precision": training.get("validation_precision")}
    errors = ("ece_before", "ece_after", "answer_ece_before", "answer_ece_after")
    figures |= {name: calibration.get(name) for name in errors}
    return {name: float(value) for name, value in figures.items() if isinstance(value, int | float)}


def _limits(classifier: Classifier, can: dict[str, str | None]) -> list[str]:
    channels, height, width = classifier.shape
    summary, calibration = classifier.origin.summary, classifier.calibration
    keep, rule = summary.get("calibration", {}).get("keep"), classifier.familiarity.rule
    lost = 100 * (1 - keep) if isinstance(keep, float) and rule is not None else None
    colour = "colour" if channels == 3 else "grey"
    view = classifier.view
    how = "both sides stretched" if view.fit == "squash" else "the centre, with the short side fitted"
    _, rows, columns = replace(view, size=None).seen(classifier.shape)
    limits = {
        f"It sees every picture as {width} x {height} pixels in {colour}: {how}.": True,
        f"Of that it looks at the middle {columns} x {rows} pixels.": view.crop is not None,
        f"{lost or 0:.0f} of 100 pictures of known labels are called unknown. Pictures of unknown but similar things often pass as "
        "known.": lost is not None,
        "Its labels compete: yes or no to one label depends on which others there are.": calibration.exclusive,
        "The probability of a yes assumes that each label is asked equally often.": not (
            calibration.exclusive or calibration.multilabel
        ),
        "A label taught from five pictures is much weaker than a trained one, above all beside a close relative.": (
            can["teach_examples"] is None
        ),
        "Labels known from a description alone are named with more mistakes than those with pictures.": calibration.unseen.any(),
        "Its clusters were named without one labelled picture; some names may be wrong.": summary.get("naming"),
        "Figures are of validation pictures of its own data; on other pictures they are usually worse.": True,
    }
    return [text for text, applies in limits.items() if applies]
