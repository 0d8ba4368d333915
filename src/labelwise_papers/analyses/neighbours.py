"""Which labels are alike to the model: for each label the others whose embeddings are nearest."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from labelwise.classifier import Classifier
from labelwise.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """The labels nearest to one label, nearest first, and their distances."""

    label: str
    nearest: tuple[str, ...]
    distances: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class NearestLabels:
    """The nearest labels of every label.

    Attributes:
        between: what distances are taken between: ``label embeddings``, which a label encoder makes before the predictor
            weighs them (psi of the indicator paper), or ``label codes``, those that are scored, where a model has no others.
        labels: one entry for each label.
    """

    between: str
    labels: tuple[Neighbours, ...]


def nearest_labels(classifier: Classifier, k: int = 3) -> NearestLabels:
    """Return for each label the ``k`` others at the least Euclidean distance, or all others where there are fewer."""
    names = classifier.labels.names
    if k < 1 or len(names) < 2:
        raise UsageError(f"Nearest labels need at least two labels and k of 1; given {len(names)} labels and k = {k}.")
    embeddings = label_embeddings(classifier)
    points = (classifier.label_embeddings if embeddings is None else embeddings).double()
    apart = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(torch.inf)
    distances, places = (part[:, : min(k, len(names) - 1)].tolist() for part in apart.sort(dim=1, stable=True))
    return NearestLabels(
        between="label codes" if embeddings is None else "label embeddings",
        labels=tuple(
            Neighbours(label=name, nearest=tuple(names[i] for i in near), distances=tuple(far))
            for name, near, far in zip(names, places, distances, strict=True)
        ),
    )


def label_embeddings(classifier: Classifier) -> Tensor | None:
    """Return what the model's label encoder makes of each label ``[k, d]``, or None.

    None where there is no label encoder, or where a label was taught later and so has an embedding that it did not make.
    """
    model, labels = classifier.model, classifier.labels
    encoder: Callable[[Tensor], Tensor] | None = getattr(model, "label_encoder", None)
    if encoder is None or not set(labels.names) <= set(model.spec.labels.names):
        return None
    rows = torch.tensor([model.spec.labels.index(name) for name in labels.names], device=model.device)
    with torch.no_grad():
        own = torch.allclose(model.encode_labels(labels).float(), classifier.label_embeddings, rtol=1e-4, atol=1e-6)
        return encoder(rows) if own else None
