"""Ask: whether an image shows a label, yes or no with a probability, independent of the other labels."""

from dataclasses import dataclass

from labelwise.core.calibration import HALF
from labelwise.core.classifier import Classifier
from labelwise.core.scores import Scores
from labelwise.support.errors import LabelwiseError, UnsupportedError, listing
from labelwise.tasks.teach import DRAFT as DRAFT
from labelwise.tasks.teach import teach


@dataclass(frozen=True)
class Answer:
    """A yes or no, and the probability of a yes."""

    label: str  # or the sentence
    yes: bool
    probability: float


def ask(scores: Scores, label: str) -> list[Answer]:
    """Return one answer per image to "is it a ``label``?"."""
    column = scores.classifier.labels.index(label)
    several, limits = scores.classifier.calibration.multilabel, scores.classifier.thresholds
    least = limits.get(label, HALF) if several else HALF  # thresholds apply to the reported probability
    return [Answer(label, p >= least, p) for p in scores.yes[:, column].tolist()]


def reading(classifier: Classifier, text: str) -> Classifier:
    """Return the classifier with one more label, ``DRAFT``, at the end, for a sentence."""
    return teach(classifier, DRAFT, texts=[text])


def check_text(classifier: Classifier, text: str) -> Classifier:
    """Call ``reading``; if it fails, raise an error that says what can be asked instead."""
    try:
        return reading(classifier, text)
    except LabelwiseError as error:
        raise UnsupportedError(
            f"This classifier cannot be asked about a sentence. Ask about one of its labels: {listing(classifier.labels.names)}. "
            f"Reason: {error}"
        ) from None
