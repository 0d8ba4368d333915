"""Merge classifiers of method discriminant into one: it is fitted to the image embeddings that they store, as if on all of their images."""

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
    """Return one classifier with the labels of all; images of a label that several have count together.

    Calibration, the rule for unknown images and the estimated accuracy are those of a fit on the stored embeddings, by leave-one-out. A
    classifier stores those of 5,000 images at most. Thresholds, descriptions, and priors that were stated are not merged.
    """
    if len(classifiers) < 2:
        raise UsageError(f"Merging takes at least two classifiers; given {len(classifiers)}.")
    for place, one in enumerate(classifiers, 1):
        _check(one, classifiers[0], place)
    names = tuple(dict.fromkeys(chain.from_iterable(one.labels.names for one in classifiers)))
    features, targets = zip(*(_images_of(one, names) for one in classifiers), strict=True)
    labels = Labels(names=names, parents=_parents(classifiers, names))
    split = Split(images=as_images(np.concatenate(features)), targets=np.concatenate(targets))
    data = Dataset(name="merged", labels=labels, splits={"train": split}, own_splits=False)
    merged = fit_closed_form(data, Discriminant(), Run(seed=seed))
    method, digests = classifiers[0].origin.method, [one.origin.train_digests for one in classifiers]
    known = [each for each in digests if each is not None]
    summary = {**merged.origin.summary, "merged": [len(each) for each in targets]}
    if runtime := classifiers[0].origin.summary.get("encoder_runtime"):
        summary["encoder_runtime"] = runtime
    record = MethodRecord.of(Discriminant()) if method is None else method
    origin = replace(
        merged.origin, method=record, summary=summary, train_digests=np.concatenate(known) if known else None
    )
    return replace(merged, encoder=classifiers[0].encoder, origin=origin)


def _check(one: Classifier, first: Classifier, place: int) -> None:
    """Raise an error unless a classifier can be merged with the first."""
    which, fit = f"Classifier {place}", "Fit one classifier on all images instead."
    if not isinstance(one.head, DiscriminantHead):
        raise UnsupportedError(f"{which} was made by {one.kind}; only classifiers of discriminant can be merged. {fit}")
    if one.encoder.id != first.encoder.id:
        raise UnsupportedError(
            f"{which} has the encoder {one.encoder.name}, whose features differ from those of classifier 1 ({first.encoder.name}). "
            f"Fit both with one encoder."
        )
    targets = one.familiarity.targets
    known = set() if targets is None else set(targets.tolist())
    missing = [name for row, name in enumerate(one.labels.names) if row not in known]
    if missing:
        raise UnsupportedError(
            f"{which} stores no image of these labels, so they cannot be merged: {listing(missing)}. {fit}"
        )


def _images_of(one: Classifier, names: Sequence[str]) -> tuple[Array, Array]:
    """Return the features ``[m, d]`` of the images that a classifier stores, and their labels among these names ``[m]``."""
    memory, targets, head = one.familiarity.memory, one.familiarity.targets, one.head
    assert memory is not None
    assert targets is not None
    assert isinstance(head, DiscriminantHead)
    rows = targets >= 0
    known = {name: place for place, name in enumerate(names)}
    places = np.array([known[name] for name in one.labels.names])
    features = features_of_roots(memory[rows]) if head.rooted else memory[rows]
    return features, places[targets[rows]]


def _parents(classifiers: Sequence[Classifier], names: Sequence[str]) -> tuple[tuple[str, ...], ...] | None:
    """Return the parents of labels, of the first classifier that has any for a label; None where none has."""
    known: dict[str, tuple[str, ...]] = {}
    for one in classifiers:
        for name, path in zip(one.labels.names, one.labels.parents or (), strict=False):
            known[name] = known.get(name) or path
    return tuple(known.get(name, ()) for name in names) if known else None
