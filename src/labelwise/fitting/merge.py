"""Merge discriminant classifiers into one, fitted to the embeddings they store, as if to all of their images."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from labelwise.core.arrays import Array, features_of_roots
from labelwise.core.classifier import Classifier, MethodRecord
from labelwise.fitting.closed_form import fit_closed_form
from labelwise.images.as_images import as_images
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.methods.discriminant.head import DiscriminantHead
from labelwise.methods.discriminant.method import Discriminant
from labelwise.support.errors import UnsupportedError, UsageError, listing
from labelwise.train.method import Run


def merge(classifiers: Sequence[Classifier], *, seed: int = 0) -> Classifier:
    """Merge classifiers; images of shared labels count together.

    Calibration, the rule for unknown images and the estimated accuracy are those of a fit on the stored embeddings, by leave-one-out. A
    classifier stores those of 5,000 images at most. Thresholds, descriptions, and priors that were stated are not merged.
    """
    if len(classifiers) < 2:
        raise UsageError(f"Merging takes at least two classifiers; given {len(classifiers)}.")
    for place, classifier in enumerate(classifiers, 1):
        _check(classifier, classifiers[0], place)
    names = tuple(dict.fromkeys(chain.from_iterable(classifier.labels.names for classifier in classifiers)))
    features, targets = zip(*(_images_of(classifier, names) for classifier in classifiers), strict=True)
    labels = Labels(names=names, parents=_parents(classifiers, names))
    split = Split(images=as_images(np.concatenate(features)), targets=np.concatenate(targets))
    data = Dataset(name="merged", labels=labels, splits={"train": split}, own_splits=False)
    result = fit_closed_form(data, Discriminant(), Run(seed=seed))
    method, digests = classifiers[0].origin.method, [classifier.origin.train_digests for classifier in classifiers]
    present_digests = [part for part in digests if part is not None]
    summary = {**result.origin.summary, "merged": [len(part) for part in targets]}
    if runtime := classifiers[0].origin.summary.get("encoder_runtime"):
        summary["encoder_runtime"] = runtime
    record = MethodRecord.of(Discriminant()) if method is None else method
    origin = replace(
        result.origin,
        method=record,
        summary=summary,
        train_digests=np.concatenate(present_digests) if present_digests else None,
    )
    return replace(result, encoder=classifiers[0].encoder, origin=origin)


def _check(classifier: Classifier, first: Classifier, place: int) -> None:
    """Raise an error unless a classifier can be merged with the first."""
    subject, advice = f"Classifier {place}", "Fit one classifier on all images instead."
    if not isinstance(classifier.head, DiscriminantHead):
        raise UnsupportedError(
            f"{subject} was made by {classifier.kind}; only classifiers of discriminant can be merged. {advice}"
        )
    if classifier.encoder.id != first.encoder.id:
        raise UnsupportedError(
            f"{subject} has the encoder {classifier.encoder.name}, whose features differ from those of classifier 1 ({first.encoder.name}). "
            f"Fit both with one encoder."
        )
    targets = classifier.familiarity.targets
    labels_used = set() if targets is None else set(targets.tolist())
    missing = [name for row, name in enumerate(classifier.labels.names) if row not in labels_used]
    if missing:
        raise UnsupportedError(
            f"{subject} stores no image of these labels, so they cannot be merged: {listing(missing)}. {advice}"
        )


def _images_of(classifier: Classifier, names: Sequence[str]) -> tuple[Array, Array]:
    """Return the stored features ``[m, d]`` of a classifier, and their positions among these names ``[m]``."""
    memory, targets, head = classifier.familiarity.memory, classifier.familiarity.targets, classifier.head
    assert memory is not None
    assert targets is not None
    assert isinstance(head, DiscriminantHead)
    rows = targets >= 0
    columns = {name: place for place, name in enumerate(names)}
    places = np.array([columns[name] for name in classifier.labels.names])
    features = features_of_roots(memory[rows]) if head.rooted else memory[rows]
    return features, places[targets[rows]]


def _parents(classifiers: Sequence[Classifier], names: Sequence[str]) -> tuple[tuple[str, ...], ...] | None:
    """Return the parents of labels, from the first classifier that has them; None if none does."""
    parents: dict[str, tuple[str, ...]] = {}
    for classifier in classifiers:
        for name, path in zip(classifier.labels.names, classifier.labels.parents or (), strict=False):
            parents[name] = parents.get(name) or path
    return tuple(parents.get(name, ()) for name in names) if parents else None
