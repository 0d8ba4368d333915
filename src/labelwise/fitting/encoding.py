"""Encode a data set once: features that many experiments can train on, without the encoder."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from labelwise.core.classifier import Classifier
from labelwise.encoders.encode import encode
from labelwise.encoders.encoder import Encoder
from labelwise.encoders.features import Features
from labelwise.images.dataset import Dataset
from labelwise.images.images import Array, FeatureRows, Images
from labelwise.images.survey import readable
from labelwise.support.errors import DataError, UsageError
from labelwise.support.writable import check_writable, write_by


def encode_by(dataset: Dataset, encoder: Encoder) -> Dataset:
    """Return the same data with the features ``[n, d]`` that an encoder makes of each image in place of its pixels."""
    return with_features(dataset, partial(encode, encoder))


def encode_with(dataset: Dataset, classifier: Classifier) -> Dataset:
    """Return the same data with the embeddings ``[n, d]`` of a trained classifier in place of the pixels."""
    dataset = readable(dataset, (), classifier.shape)
    splits = {
        name: replace(split, images=FeatureRows(classifier.encode(split.images), split.images.digests()))
        for name, split in dataset.splits.items()
    }
    return replace(dataset, splits=splits)


def with_features(dataset: Dataset, make: Callable[[Images], Features]) -> Dataset:
    """Return the data with features in place of images; those that cannot be read are left out."""
    if dataset.features:
        raise DataError(f'"{dataset.name}" holds features already ({dataset.features} of each image). Give images.')
    splits, skipped = {}, dataset.skipped
    for name, split in dataset.splits.items():
        features = make(split.images)
        skipped += features.skipped
        rows = FeatureRows(features.values, features.digests)
        splits[name] = replace(split.select(features.rows), images=rows)
    return replace(dataset, splits=splits, skipped=skipped)


def write_features(dataset: Dataset, path: str | Path) -> None:
    """Write features and their labels as one ``.npz`` pack, whole or not at all; ``data.pack`` reads it.

    It holds ``features [n, a]``, ``labels [n]`` (positions in ``classes``; or yes and no to each of them ``[n, k]``, where
    several may be true), ``classes [k]`` and, where the data have them, ``split [n]``, ``files [n]`` and ``groups [n]``.
    """
    file = Path(path)
    if not dataset.features:
        raise DataError(f'"{dataset.name}" holds images of shape {dataset.shape}, not features. Encode it first.')
    without = sum(int((~split.labelled).sum()) for split in dataset.splits.values() if not split.multilabel)
    if without:
        raise DataError(f'{without} images of "{dataset.name}" have no label. Leave them out.')
    check_features_file(file)
    columns = _columns(dataset)
    write_by(file, lambda stream: np.savez(stream, allow_pickle=False, **columns))


def check_features_file(file: Path) -> None:
    """Raise an error where features cannot be written to a file: before they are computed."""
    if file.suffix.lower() != ".npz":
        raise UsageError(f'Features are written as an .npz file; given "{file}".')
    check_writable(file)
    if file.is_dir():
        raise UsageError(f'"{file}" is a folder; choose another name.')


def _columns(dataset: Dataset) -> dict[str, Array]:
    """Return what the file holds, all splits one after another; those that the data do not name themselves are not told."""
    splits = {name: split for name, split in dataset.splits.items() if len(split)}
    parts = list(splits.values())
    columns: dict[str, Array] = {
        "features": np.concatenate([split.images.values for split in parts]),
        "labels": np.concatenate([split.targets for split in parts]),
        "classes": np.array(dataset.labels.names),
    }
    if dataset.own_splits:
        named = {"val": "val" if dataset.own_val else "train"}
        columns["split"] = np.array(
            [named.get(name, name) for name, split in splits.items() for _ in range(len(split))]
        )
    if any(group for split in parts for group in split.groups):
        columns["groups"] = np.array([group for split in parts for group in split.groups or [""] * len(split)])
    if all(split.files for split in parts):
        columns["files"] = np.array([file for split in parts for file in split.files])
    return columns
