"""Ask: is this picture a y? Yes or no, with a probability, whatever the other labels are."""

from dataclasses import dataclass

from labelwise.core import Classifier
from labelwise.data.pictures import Pictures, as_batch


@dataclass(frozen=True)
class Answer:
    """A yes or no and how probable a yes is."""

    label: str
    yes: bool
    probability: float


def ask(classifier: Classifier, pictures: Pictures, label: str) -> list[Answer]:
    """Return one answer per picture to "is it a ``label``?"."""
    column = classifier.labels.index(label)
    scores = classifier.scores(as_batch(pictures, classifier.model.spec.shape))
    return [Answer(label, p >= 0.5, p) for p in classifier.answers(scores)[:, column].tolist()]
