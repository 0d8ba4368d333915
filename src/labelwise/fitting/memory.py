"""What a classifier remembers of its training images."""

from dataclasses import replace

from torch import Tensor

from labelwise.classifier import Classifier
from labelwise.familiarity import memorable
from labelwise.model import prepared


def remembering(classifier: Classifier, images: Tensor) -> Classifier:
    """Return the classifier with these training images among the familiar ones; of many, some."""
    embeddings = classifier.encode(memorable(prepared(classifier.model, images)))
    return replace(classifier, familiarity=classifier.familiarity.remember(embeddings))
