"""Encode a data set once, and train on its features."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.core.classifier import Classifier, MethodRecord
from labelwise.encoders.encode import Features, encode
from labelwise.encoders.encoder import Encoder, Precomputed
from labelwise.fitting.choice import TRAINS, encoder_of
from labelwise.images.dataset import Dataset
from labelwise.images.images import Array, FeatureRows, Images, skipped_lines
from labelwise.images.sources.build import readable
from labelwise.images.view import WHOLE
from labelwise.support.errors import DataError, UnsupportedError, UsageError
from labelwise.support.writable import check_writable, write_by
from labelwise.train.method import Method, Run
from labelwise.train.networks.encoder import Encoder as EncoderSettings


def encode_by(dataset: Dataset, encoder: Encoder) -> Dataset:
    """Return the data with the features ``[n, d]`` of an encoder instead of pixels."""
    return with_features(dataset, partial(encode, encoder))


def encode_with(dataset: Dataset, classifier: Classifier) -> Dataset:
    """Return the data with the embeddings ``[n, d]`` of a trained classifier instead of pixels."""
    dataset = readable(dataset, (), classifier.shape)
    splits = {
        name: replace(split, images=FeatureRows(classifier.encode(split.images), split.images.digests()))
        for name, split in dataset.splits.items()
    }
    return replace(dataset, splits=splits)


def with_features(dataset: Dataset, make: Callable[[Images], Features]) -> Dataset:
    """Return the data with features instead of images, without unreadable images."""
    if dataset.features:
        raise DataError(f'"{dataset.name}" already has features ({dataset.features} per image). Give images.')
    splits, skipped = {}, dataset.skipped
    for name, split in dataset.splits.items():
        features = make(split.images)
        skipped += features.skipped
        rows = FeatureRows(features.values, features.digests)
        splits[name] = replace(split.select(features.rows), images=rows)
    return replace(dataset, splits=splits, skipped=skipped)


def write_features(dataset: Dataset, path: str | Path) -> None:
    """Write features and their labels atomically as one ``.npz`` pack; ``data.pack`` reads it.

    It holds ``features [n, a]``, ``labels [n]`` (positions in ``classes``; a boolean table ``[n, k]`` for multi-label data),
    ``classes [k]`` and, if the data have them, ``split [n]``, ``files [n]`` and ``groups [n]``.
    """
    file = Path(path)
    if not dataset.features:
        raise DataError(f'"{dataset.name}" holds images of shape {dataset.shape}, not features. Encode it first.')
    unlabelled = sum(int((~split.labelled).sum()) for split in dataset.splits.values() if not split.multilabel)
    if unlabelled:
        raise DataError(f'{unlabelled} images of "{dataset.name}" have no label. Leave them out.')
    check_features_file(file)
    columns = _columns(dataset)
    write_by(file, lambda stream: np.savez(stream, allow_pickle=False, **columns))


def check_features_file(file: Path) -> None:
    """Raise an error if features cannot be written to this file; called before they are computed."""
    if file.suffix.lower() != ".npz":
        raise UsageError(f'Features are written as an .npz file; given "{file}".')
    check_writable(file)
    if file.is_dir():
        raise UsageError(f'"{file}" is a folder; choose another name.')


def _columns(dataset: Dataset) -> dict[str, Array]:
    """Return the arrays of the file, all splits joined; only splits that the data name are recorded."""
    splits = {name: split for name, split in dataset.splits.items() if len(split)}
    parts = list(splits.values())
    columns: dict[str, Array] = {
        "features": np.concatenate([split.images.values for split in parts]),
        "labels": np.concatenate([split.targets for split in parts]),
        "classes": np.array(dataset.labels.names),
    }
    if dataset.own_splits:
        split_names = {"val": "val" if dataset.own_val else "train"}
        columns["split"] = np.array(
            [split_names.get(name, name) for name, split in splits.items() for _ in range(len(split))]
        )
    if any(group for split in parts for group in split.groups):
        columns["groups"] = np.array([group for split in parts for group in split.groups or [""] * len(split)])
    if all(split.files for split in parts):
        columns["files"] = np.array([file for split in parts for file in split.files])
    return columns


Fit = Callable[[Dataset, Method, Run], Classifier]


def fit_on_features(data: Dataset, method: Method, run: Run, fit: Fit) -> Classifier:
    """Fit a method whose encoder is an ONNX file: ``fit`` gets features instead of images."""
    if any(getattr(method, name, None) is not None for name in TRAINS):
        encoder_of(method).build((), method.view)  # raises the error that it cannot be trained
    encoder = encoder_of(method).open_encoder(method.view)
    overrides: Any = {"encoder": EncoderSettings(), "view": WHOLE}  # every method with an encoder has both
    plain: Method = replace(method, **overrides)
    classifier = fit(_encode_dataset(data.below_home(), encoder, run), plain, run)
    if not isinstance(classifier.encoder, Precomputed):
        raise UnsupportedError(
            f"Method {method.name} with these settings trains layers of its own on the features of {encoder.name}, and such a "
            "classifier cannot be saved. Leave out encoder.code_size, or use method discriminant."
        )
    origin = replace(classifier.origin, method=MethodRecord.of(method), training=None)
    origin = replace(origin, summary={**origin.summary, "encoder_runtime": encoder.runtime})
    return replace(classifier, encoder=encoder, origin=origin)


def _encode_dataset(data: Dataset, encoder: Encoder, run: Run) -> Dataset:
    """Return data with features instead of training images; unreadable images are left out and reported."""
    splits, skipped = {}, data.skipped
    for name in ("train", "val"):
        if name in data.splits:
            features = encode(encoder, data.splits[name].images)
            rows = FeatureRows(features.values, features.digests)
            splits[name] = replace(data.splits[name].select(features.rows), images=rows)
            skipped += features.skipped
    if run.tell is not None:
        for line in skipped_lines(skipped[len(data.skipped) :]):
            run.tell(f"Skipped {line}")
    return replace(data, splits=splits, skipped=skipped)
