"""Nearest neighbours among labels, by label embeddings."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from labelwise.core.classifier import Classifier
from labelwise.fitting.rebuild import model_of
from labelwise.support.errors import UsageError


def nearest_labels(classifier: Classifier, k: int = 3) -> dict[str, Any]:
    """Return for each label the ``k`` others at the least Euclidean distance, or all others where there are fewer.

    Distances are taken ``between`` label embeddings, which a label encoder makes before the predictor weighs them (psi of the
    indicator paper), or label codes, those that are scored, where a model has no others.
    """
    names = classifier.labels.names
    if k < 1 or len(names) < 2:
        raise UsageError(f"Nearest labels need at least two labels and k of 1; given {len(names)} labels and k = {k}.")
    embeddings = label_embeddings(classifier)
    points = (torch.from_numpy(classifier.label_embeddings) if embeddings is None else embeddings).double()
    apart = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(torch.inf)
    distances, places = (part[:, : min(k, len(names) - 1)].tolist() for part in apart.sort(dim=1, stable=True))
    rows = [
        {"label": name, "nearest": [names[i] for i in near], "distances": far}
        for name, near, far in zip(names, places, distances, strict=True)
    ]
    return {"between": "label codes" if embeddings is None else "label embeddings", "labels": rows}


def label_embeddings(classifier: Classifier) -> Tensor | None:
    """Return what the model's label encoder makes of each label ``[k, d]``, or None.

    None where there is no label encoder, or where a label was taught later and so has an embedding that it did not make.
    """
    labels = classifier.labels
    if classifier.kind != "indicator" or not set(labels.names) <= set(classifier.head.labels.names):
        return None
    model: Any = model_of(classifier)
    rows = torch.tensor([model.spec.labels.index(name) for name in labels.names], device=model.device)
    with torch.no_grad():
        own = np.allclose(classifier.head.embed_labels(labels), classifier.label_embeddings, rtol=1e-4, atol=1e-6)
        return model.label_encoder(rows) if own else None
