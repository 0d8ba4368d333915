"""Outliers: which images are none of the labels? ``core.familiarity`` says how that is measured."""

from dataclasses import dataclass

from labelwise.core.scores import Scores


@dataclass(frozen=True)
class Outlier:
    """How little an image fits: its outlier score, and whether it is above the limit."""

    score: float
    flagged: bool


def outliers(scores: Scores) -> list[Outlier]:
    """Return the outlier score of each image."""
    return [Outlier(*pair) for pair in zip(scores.outlier_score.tolist(), scores.unknown.tolist(), strict=True)]
