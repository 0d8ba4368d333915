"""Teach: add a label from a few example pictures, without training; forget: remove one."""

import torch

from labelwise.core import UNKNOWN, Classifier, as_float
from labelwise.data.fingerprints import with_seen
from labelwise.data.pictures import Pictures, as_batch
from labelwise.errors import UsageError
from labelwise.tasks.outliers import remember


def teach(classifier: Classifier, name: str, *, examples: Pictures) -> Classifier:
    """Return the classifier with one more label; the scores of the others stay exactly as they are.

    Args:
        classifier: a classifier whose model can make a label code from examples.
        name: the new label.
        examples: pictures of it; five are enough to be useful, more are better.
    """
    if name.strip() in ("", UNKNOWN):
        raise UsageError(f'"{name}" cannot be the name of a label.')
    labels = classifier.labels.add(name)
    images = as_batch(examples, classifier.model.spec.shape).to(classifier.model.device)
    groups = torch.zeros(len(images), dtype=torch.int64, device=images.device)
    with torch.no_grad():
        codes = classifier.model.encode_examples(as_float(images), groups)
    return with_seen(remember(classifier.add(labels, codes[0]), images), images)


def forget(classifier: Classifier, name: str) -> Classifier:
    """Return the classifier without one label."""
    return classifier.remove(name)
