"""When tuning an encoder pays: the rule, and what is said of it before and after. Measured: ``docs/tune.md``."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from labelwise.core.classifier import Classifier
from labelwise.methods.discriminant.tune import Trial, Tune

WEAK, STRONG = 0.75, 0.85  # accuracy of the closed form on the encoder as it came: tuning pays below, and hardly above
FEWEST = 15  # images of a label from which on it pays
TIMED = 8  # images that are encoded to tell how long training takes
TIMES = 3  # encodings that a step of training is as long as


def before_tuning(frozen: Classifier, tune: Tune) -> Iterator[str]:
    """Yield what there is to say against tuning the encoder of a classifier, a line each, before it begins."""
    about, each = frozen.origin.summary, images_each(frozen)
    if about["training"]["device"] == "cpu":
        yield f"Tuning on a CPU does not pay: the first tries take about {_cost(frozen, tune)} here, seconds on a GPU (docs/tune.md)."
    if each < FEWEST:
        yield f"Tuning seldom helps with {each:.0f} images of a label; {FEWEST} and more are wanted."
    accuracy = about.get("leave_one_out", {}).get("accuracy", 0.0)
    if accuracy >= STRONG:
        yield f"Without tuning about {100 * accuracy:.1f} % are right (leave-one-out): there is little to gain."


def about_trials(trials: tuple[Trial, ...]) -> dict[str, Any]:
    """Return a record of the trials as JSON values: the best learning rate (None: the encoder was not trained further), and all trials."""
    best = max(trials, key=lambda trial: trial.likelihood)
    return {"rate": best.rate, "trials": [vars(trial) for trial in trials]}


def images_each(classifier: Classifier) -> float:
    """Return the mean number of training images of a label."""
    return float(classifier.origin.summary["training"]["images"]) / len(classifier.head.labels)


def _cost(classifier: Classifier, tune: Tune) -> str:
    """Return about how long tuning takes, in words, from how long a few images take to encode."""
    images = np.zeros((TIMED, *classifier.shape), np.uint8)
    begin = time.monotonic()
    classifier.encoder(images)
    pictures = min(tune.batch, classifier.origin.summary["training"]["images"]) * tune.steps * len(tune.rates)
    seconds = (time.monotonic() - begin) / TIMED * TIMES * pictures
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
