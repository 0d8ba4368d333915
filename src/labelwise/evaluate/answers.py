"""What a model answers before anything is calibrated."""

from dataclasses import replace

from labelwise.scores import Scores


def uncalibrated(scores: Scores) -> Scores:
    """Return the model's own scores: no calibration, though seen labels stay held back."""
    return scores.of(replace(scores.classifier, calibration=scores.classifier.calibration.bare()))
