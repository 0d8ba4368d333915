"""Balance: hold back labels with training images against labels known from descriptions, see ``ops.balance``."""

from dataclasses import replace

import torch
from torch import Tensor

from labelwise.core import Classifier


def seen_labels(classifier: Classifier) -> Tensor:
    """Return ``[k]`` whether images of each label were at hand."""
    return torch.tensor([name not in classifier.described for name in classifier.labels.names])


def raw_scores(classifier: Classifier, codes: Tensor) -> Tensor:
    """Return scores ``[n, k]`` of image codes before any gap or calibration."""
    return classifier.model.score(codes.float(), classifier.codes)


def with_gap(classifier: Classifier, gap: float) -> Classifier:
    """Return the classifier with another gap; the rest of its calibration stays."""
    factor, shift = classifier.handicap()
    scale = classifier.scale / factor
    offset = classifier.offset - shift * scale
    changed = replace(classifier, gap=gap)
    factor, shift = changed.handicap()
    return replace(changed, scale=scale * factor, offset=offset + shift * scale)
