"""Ask: is this picture a y? Yes or no, with a probability, whatever the other labels are."""

from dataclasses import dataclass

from labelwise.scores import Scores


@dataclass(frozen=True)
class Answer:
    """A yes or no and how probable a yes is."""

    label: str
    yes: bool
    probability: float


def ask(scores: Scores, label: str) -> list[Answer]:
    """Return one answer per picture to "is it a ``label``?"."""
    column = scores.classifier.labels.index(label)
    return [Answer(label, p >= 0.5, p) for p in scores.yes[:, column].tolist()]
