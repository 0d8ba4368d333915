"""Fit: from data and a method to a calibrated classifier. Closed forms need no torch, see ``closed_form``."""

from dataclasses import replace

from labelwise.core.classifier import Classifier
from labelwise.fitting.choice import CLOSED, decide, encoder_of
from labelwise.fitting.closed_form import fit_closed_form, takes
from labelwise.fitting.encoding import fit_on_features
from labelwise.images.dataset import Dataset
from labelwise.images.describe.labels import unfit_name
from labelwise.methods.registry import METHODS, needs_of
from labelwise.support.errors import UsageError, listing, needs_torch
from labelwise.train.method import Method, Run


def fit(data: Dataset, method: Method | None = None, run: Run | None = None) -> Classifier:
    """Train a classifier on the train split and calibrate it; the test split is never read.

    Without a validation split, a tenth of the training images is held out, at most as many as calibration needs. Methods
    with leave-one-out train and calibrate on all images instead. Methods that read label descriptions fit as in ``zero_shot``.
    Methods without supervision see no targets. Files are read at the size of the encoder, see ``View``.

    Args:
        data: labels and splits.
        method: the method with its settings; None: ``choice.decide`` chooses it, as in the shell.
        run: seed, device, folder for checkpoints; the default keeps nothing on disk.
    """
    classifier = _fit(data, method or decide(data).method, run or Run())
    if not data.labels_by:
        return classifier
    summary = {**classifier.origin.summary, "labels_by": data.labels_by}
    return replace(classifier, origin=replace(classifier.origin, summary=summary))


def _fit(data: Dataset, method: Method, run: Run) -> Classifier:
    """Fit a method to data."""
    _check_method(data, method)
    if takes(method, data, run):
        return fit_closed_form(data, method, run)
    if not data.features and encoder_of(method).by_onnx:
        return fit_on_features(data, method, run, fit)
    if any(split.weights for split in data.splits.values()):
        raise UsageError(f"Only method {CLOSED} on a frozen encoder uses weights of images. Leave them out.")
    try:
        from labelwise.fitting.training import train_classifier
    except ModuleNotFoundError as error:
        raise needs_torch(f"To train method {method.name}", error) from None
    return train_classifier(data, method, run)


def _check_method(data: Dataset, method: Method) -> None:
    """Raise an error if a method cannot train on this data: label names alone, multi-label data, attacks on features."""
    for name in data.labels.names:
        if unfit := unfit_name(name):
            raise UsageError(f'"{data.name}" has a label that could not be saved: {unfit}. Rename it.')
    if data.features and getattr(method, "adversarial", None) is not None:
        raise UsageError(
            f'Adversarial training changes the pixels of images, and "{data.name}" holds precomputed features. '
            "Leave adversarial out, or give images."
        )
    if data.multilabel and not method.multilabel:
        able = listing(name for name in METHODS if "one_label" not in needs_of(name))
        raise UsageError(
            f'Several labels may be true of one image of "{data.name}", and method {method.name} takes one label for each. '
            f"Methods that can: {able}."
        )
