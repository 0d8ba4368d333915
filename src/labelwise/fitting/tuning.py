"""When tuning an encoder pays: the rule, and messages before and after. Measured: ``docs/results/tune.md``."""

from collections.abc import Iterator
from typing import Any

from labelwise.core.classifier import Classifier
from labelwise.methods.discriminant.tune import Trial

WEAK = 0.75  # accuracy of the closed form on the original encoder: tuning pays below
FEWEST = 15  # images of a label from which on it pays


def before_tuning(device: str, images_each: float) -> Iterator[str]:
    """Yield warnings before tuning an encoder, one per line, by device and number of images per label."""
    if device == "cpu":
        yield "Tuning on a CPU does not pay: what takes seconds on a GPU takes many minutes (docs/tune.md)."
    if images_each < FEWEST:
        yield f"Tuning seldom helps with {images_each:.0f} images of a label; {FEWEST} and more are wanted."


def about_trials(trials: tuple[Trial, ...]) -> dict[str, Any]:
    """Return a record of the trials as JSON values: the best learning rate (None: the encoder was not trained further), and all trials."""
    best = max(trials, key=lambda trial: trial.likelihood)
    return {"rate": best.rate, "trials": [vars(trial) for trial in trials]}


def images_each(classifier: Classifier) -> float:
    """Return the mean number of training images of a label."""
    return float(classifier.origin.summary["training"]["images"]) / len(classifier.head.labels)
