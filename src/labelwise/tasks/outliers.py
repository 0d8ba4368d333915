"""Outliers: find images that show none of the labels. See ``core.calibration``."""

from dataclasses import dataclass

from labelwise.core.scores import Scores


@dataclass(frozen=True)
class Outlier:
    """The outlier score of an image, and whether it is above the limit."""

    score: float
    flagged: bool


def outliers(scores: Scores) -> list[Outlier]:
    """Return the outlier score of each image."""
    return [Outlier(*pair) for pair in zip(scores.outlier_score.tolist(), scores.unknown.tolist(), strict=True)]
