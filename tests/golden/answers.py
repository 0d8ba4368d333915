"""What the Python API answers for each kept classifier, and what it makes of each kind of data."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import labelwise as lw
from labelwise_papers.attacks.attack import attack
from tests.golden import outside
from tests.golden.fits import DATA

SOURCES = {
    "data/shapes.npz": None,
    "data/several.npz": None,
    "data/grades/grades.npz": None,
    "data/described": 8,
    "data/features/features.csv": None,
    "data/gallery": 12,
    "data/other/table.csv": 16,
    "data/other/table.parquet": 16,
    "data/other/several.csv": 16,
    "data/other/encoded.npz": None,
    "data/other/packed-features.npz": None,
    "data/other/rows.npy": None,
    "data/other/sounds": None,
}  # and the side that pictures are brought to
PHOTOS = ("data/photos/0 red square.png", "data/strange/0.png", "data/damaged/whole.png")


def read_all() -> dict[str, Any]:
    """Return every source of data as it is read."""
    found = {source: outside.described(lw.data.load(source, size=size)) for source, size in SOURCES.items()}
    foreign = outside.described(lw.data.features("data/other/foreign-features.npz"))
    return {**found, "data/other/foreign-features.npz": foreign}


def ask(name: str) -> dict[str, Any]:
    """Return all that a kept classifier answers."""
    classifier = lw.load(f"folders/{name}.lw")
    data = lw.data.load(DATA[name], size=8 if DATA[name] == "data/described" else None)
    images, truth = outside.split_of(data, "test")
    images, truth = images[::3], _placed(classifier, data, truth[::3])
    questions = _questions(classifier, images, truth) | _changes(classifier, images, truth) | _kept(classifier, images)
    if tuple(images.shape[1:]) == (3, 16, 16):
        questions["classify files"] = lambda: lw.classify(classifier, [*PHOTOS], top=2)
    if name == "sounds":  # they have maps of features, but no picture to lay a heat map over
        questions = {title: question for title, question in questions.items() if not title.startswith("explain")}
    return {title: outside.refusal(question) for title, question in questions.items()}


def _questions(classifier: Any, images: Tensor, truth: Tensor) -> dict[str, Callable[[], Any]]:
    """Return the questions that leave a classifier as it is."""
    names = classifier.labels.names
    some, first = images[:2], [names[int(i)] for i in (np.asarray(truth).argmax(1) if truth.ndim == 2 else truth)[:2]]
    return {
        "labels": lambda: outside.labels_of(classifier.labels),
        "embeddings": lambda: outside.embeddings(classifier, some),
        "raw scores": lambda: outside.raw_scores(classifier, images),
        "log-odds": lambda: outside.log_odds(classifier, images),
        "classify": lambda: lw.classify(classifier, images, top=3),
        "ask": lambda: [lw.ask(classifier, images, label) for label in (names[0], names[-1])],
        "outliers": lambda: lw.outliers(classifier, images),
        "explain": lambda: _heated(lw.explain(classifier, images[0], names[1])),
        "explain the best": lambda: _heated(lw.explain(classifier, images[1])),
        "verify": lambda: lw.verify(classifier, images[:-1], images[1:]),
        "rank": lambda: lw.rank(classifier, images),
        "rank in an order": lambda: lw.rank(classifier, images[:3], order=names[::-1], coverage=0.5),
        "imagine": lambda: lw.imagine(classifier, names[:2], images, count=3, seed=1),
        "attack": lambda: _attacked(attack(classifier, some, first)),
    }


def _changes(classifier: Any, images: Tensor, truth: Tensor) -> dict[str, Callable[[], Any]]:
    """Return the questions that make another classifier."""

    def after(changed: Any) -> dict[str, Any]:
        told = lw.classify(changed, images[:2], top=len(changed.labels))
        return {
            "labels": changed.labels.names,
            "raw scores": outside.raw_scores(changed, images[:4]),
            "log-odds": outside.log_odds(changed, images[:4]),
            "classify": told,
        }

    vectors = classifier.labels.vectors
    vector = None if vectors is None else vectors[:2].mean(0).tolist()
    return {
        "teach from examples": lambda: after(lw.teach(classifier, "new", examples=images[-3:])),
        "teach from one": lambda: after(lw.teach(classifier, "new", examples=images[-1:])),
        "teach from texts": lambda: after(lw.teach(classifier, "new", texts=["a green cross", "it is green"])),
        "teach from a vector": lambda: after(lw.teach(classifier, "new", vector=vector)),
        "teach and forget": lambda: after(lw.forget(lw.teach(classifier, "new", examples=images[-3:]), "new")),
        "forget": lambda: after(lw.forget(classifier, classifier.labels.names[1])),
        "calibrate": lambda: after(lw.calibrate(classifier, images, truth, keep=0.7)),
    }


def _kept(classifier: Any, images: Tensor) -> dict[str, Callable[[], Any]]:
    def kept() -> dict[str, Any]:
        folder = Path("saved again.lw")
        lw.save(classifier, folder)
        found = outside.saved(folder) | {"raw scores": outside.raw_scores(lw.load(folder), images[:2])}
        shutil.rmtree(folder)
        return found

    return {"save and load": kept}


def _heated(found: Any) -> dict[str, Any]:
    """Return what a heat map says; the picture under it is the one that was given."""
    return {"label": found.label, "probability": found.probability, "heat": found.heat}


def _attacked(found: Any) -> dict[str, Any]:
    """Return what an attack says; pixels that it moves are left out, for a sign may turn with the last digit."""
    return {"wrong": found.wrong, "fooled": found.fooled, "answers": found.answers}


def _placed(classifier: Any, data: Any, truth: Tensor) -> Tensor:
    """Return what is true of images, counted among the classifier's labels."""
    names = list(classifier.labels.names)
    if truth.ndim == 2:
        return truth[:, [data.labels.names.index(name) for name in names]]
    places = [names.index(name) if name in names else -1 for name in data.labels.names]
    return torch.tensor(places)[truth]
