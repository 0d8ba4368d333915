"""Outliers: which pictures are none of the labels? ``familiarity`` says how that is told."""

from dataclasses import dataclass

from labelwise.core.scores import Scores


@dataclass(frozen=True)
class Outlier:
    """How little a picture fits: its outlier score, larger is stranger, and whether it is past the limit."""

    score: float
    flagged: bool


def outliers(scores: Scores) -> list[Outlier]:
    """Return the outlier score of each picture."""
    return [Outlier(*pair) for pair in zip(scores.strangeness.tolist(), scores.unknown.tolist(), strict=True)]
