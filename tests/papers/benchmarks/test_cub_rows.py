"""The features of CUB are in the order of its ``images.txt``: shown with the pictures themselves."""

import io
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from labelwise.images.sources.npz_files import read_npz

ROOT = Path(os.environ.get("LABELWISE_DATA", "none"))
CLASSES, SIDE = 30, 6
Matrix = npt.NDArray[np.float64]


def _centred(values: Matrix, labels: npt.NDArray[np.int64]) -> Matrix:
    """Return each row less the mean of its class, so that knowing the class does not help."""
    means = np.stack([values[labels == c].mean(0) for c in range(CLASSES)])
    return np.asarray(values - means[labels])


def _predicted(features: Matrix, pictures: Matrix, labels: npt.NDArray[np.int64]) -> Matrix:
    """Return small pictures as ridge regression reads them from features; each half of the classes from the other."""
    found = np.zeros_like(pictures)
    for half in (0, 1):
        known = labels % 2 != half
        kernel = features[known] @ features[known].T
        weights = np.linalg.solve(kernel + np.trace(kernel) / len(kernel) * np.eye(len(kernel)), pictures[known])
        found[~known] = features[~known] @ (features[known].T @ weights)
    return found


def _likeness(predicted: Matrix, pictures: Matrix) -> Matrix:
    """Return the cosine of each prediction with each picture."""
    one, other = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (predicted, pictures))
    return np.asarray(one @ other.T)


def test_each_feature_belongs_to_the_picture_of_the_same_row() -> None:
    if not all((ROOT / file).is_file() for file in ("cub_res50.npz", "cub200_64.npz")):
        pytest.skip("LABELWISE_DATA does not hold the features and the pictures of CUB")
    packed, shown = read_npz(ROOT / "cub_res50.npz"), read_npz(ROOT / "cub200_64.npz")
    every = packed["labels"].astype(np.int64)
    assert np.array_equal(every, shown["labels"])
    assert [int(str(file)[:3]) - 1 for file in shown["files"]] == every.tolist()
    n = int((every < CLASSES).sum())  # the labels are sorted
    labels, files = every[:n], shown["files"][:n]
    data, ends = shown["data"], shown["offsets"].tolist()
    small = [
        Image.open(io.BytesIO(data[ends[i] : ends[i + 1]].tobytes())).convert("RGB").resize((SIDE, SIDE))
        for i in range(n)
    ]
    pictures = _centred(np.stack([np.asarray(each, np.float64).ravel() for each in small]), labels)
    features = _centred(np.sqrt(packed["q"][:n].astype(np.float64) * packed["scale"].astype(np.float64)), labels)
    by_name = np.lexsort((files, labels))  # another order that someone might expect
    ranks = {}
    for order, rows in (("listed", np.arange(n)), ("by name", by_name)):
        predicted, ranked = _predicted(features, pictures[rows], labels), []
        for c in range(CLASSES):
            alike = _likeness(predicted[labels == c], pictures[rows][labels == c])
            ranked.append(float((alike > np.diag(alike)[:, None]).mean()))
            if order == "listed":  # within each class no shift of the rows fits better
                assert np.argmax([np.trace(np.roll(alike, by, 1)) for by in range(len(alike))]) == 0
        ranks[order] = ranked
    assert max(ranks["listed"]) < 0.3  # where the own picture ranks among those of its class; 0.5 is chance
    assert np.mean(ranks["listed"]) < 0.17
    assert np.mean(ranks["by name"]) > 0.4
