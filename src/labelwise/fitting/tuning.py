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
    about, each = frozen.origin.summary, _pictures_each(frozen)
    if about["training"]["device"] == "cpu":
        yield f"Tuning on a CPU does not pay: the first tries take about {_cost(frozen, tune)} here, seconds on a GPU (docs/tune.md)."
    if each < FEWEST:
        yield f"Tuning seldom helps with {each:.0f} images of a label; {FEWEST} and more are wanted."
    accuracy = about.get("leave_one_out", {}).get("accuracy", 0.0)
    if accuracy >= STRONG:
        yield f"Without tuning about {100 * accuracy:.1f} % are right (leave-one-out): there is little to gain."


def tuning_lines(classifier: Classifier) -> Iterator[str]:
    """Yield what came of tuning; or, where it was not asked for and would pay, that it would."""
    summary, method = classifier.origin.summary, classifier.origin.method
    if "tuning" in summary:
        yield _result(summary["tuning"])
    elif method is not None and method.name == "discriminant" and len(classifier.shape) == 3:
        accuracy, each = summary.get("leave_one_out", {}).get("accuracy", 1.0), _pictures_each(classifier)
        if summary["training"]["device"] == "cuda" and accuracy < WEAK and each >= FEWEST:
            yield f"--tune will probably pay here: {each:.0f} images of a label, a GPU, and less than {100 * WEAK:.0f} % right (docs/tune.md)"


def about_trials(trials: tuple[Trial, ...]) -> dict[str, Any]:
    """Return what is told of trials, plain JSON values: the learning rate of the best (None: the encoder as it came), and all of them."""
    best = max(trials, key=lambda trial: trial.likelihood)
    return {"rate": best.rate, "trials": [vars(trial) for trial in trials]}


def _result(about: dict[str, Any]) -> str:
    """Return what came of tuning, in a line."""
    frozen, *tuned = about["trials"]
    best = max(tuned, key=lambda trial: float(trial["likelihood"]))
    figures = (
        f"validation accuracy {100 * best['accuracy']:.1f} % against {100 * frozen['accuracy']:.1f} % without, log-likelihood "
        f"{best['likelihood']:.3f} against {frozen['likelihood']:.3f}"
    )
    if about["rate"] is None:
        return f"tuning did not pay, and the encoder stays as it came: {figures}"
    return f"encoder tuned (learning rate {about['rate']:g}, {best['steps']} steps): {figures}"


def _pictures_each(classifier: Classifier) -> float:
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
