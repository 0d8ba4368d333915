"""Compare `fit` with what a person would do instead, on everyday sets of photos, with label frequencies unchanged, 1:10 and 1:50.

    python benchmarks/everyday.py FOLDER NAME=DATA [NAME=DATA ...] [--seeds 3] [--keep docs/results/measured/everyday.jsonl]

Each DATA is anything that `labelwise fit` reads. Images are encoded once with the default encoder; FOLDER/NAME.npz keeps the features and the groups of
lookalikes. From a set of more than ``WHOLE`` images, ``MOST_LABELS`` labels are drawn, with the same number of images each, ``MOST_IMAGES`` in all. A third of the
images is the test set, divided image by image ("random") or with lookalikes on one side ("lookalike"). All methods get the same features.

For 1:10 and 1:50, training images are drawn so that label i of k, by size, is r^(-i/(k-1)) times as frequent as the largest. All test images are used,
weighted by the frequency of their label in training, which has less noise than a smaller test set. The seed draws two labels, which a second fit does not see. Their
test images are the strangers of the AUROC.

Every line of FOLDER/NAME.jsonl has the figures of one method in one cell. Existing cells are not measured again.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import labelwise as lw
from labelwise.encoders.encode import encode
from labelwise.encoders.registry import DEFAULT, open_encoder
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.split.divide import pool
from labelwise.images.split.lookalikes import lookalike_groups
from labelwise.images.split.make import Shares, divide_groups
from labelwise.train.method import Run

Array = np.ndarray[Any, Any]
MOST_LABELS, MOST_IMAGES, WHOLE = 30, 1_200, 2_600
RATIOS = {"as they are": 0, "1:10": 10, "1:50": 50}
SPLITS = ("lookalike", "random")
STRANGERS = 2  # labels held out
BINS = 15  # of the calibration error
GRID = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # of C
NEIGHBOURS = 5
FOLDS = 3


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One set of images, how frequent labels are, and how it is divided."""

    name: str
    frequencies: str
    split: str
    seed: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Photos:
    """Features of images with their labels and groups of lookalikes."""

    features: Array  # [n, d]
    targets: Array  # [n]
    groups: tuple[str, ...]

    def select(self, rows: Array) -> "Photos":
        """Return these rows only."""
        return Photos(
            features=self.features[rows], targets=self.targets[rows], groups=tuple(self.groups[row] for row in rows)
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Answers:
    """Probabilities and outlier scores of test images."""

    chances: Array  # [n, k] of the labels of training, in their order
    outlier_scores: Array | None  # [n]


Rival = Callable[[Photos, Array], Answers]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for features and results")
    parser.add_argument("sets", nargs="*", metavar="NAME=DATA")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--splits", nargs="+", choices=SPLITS, default=list(SPLITS))
    parser.add_argument("--frequencies", nargs="+", choices=RATIOS, default=list(RATIOS))
    parser.add_argument("--rivals", nargs="+", choices=RIVALS, default=list(RIVALS))
    parser.add_argument("--root", type=Path, help="where paths in tables start")
    parser.add_argument("--minutes", type=float, default=1e6, help="start no cell after this time")
    parser.add_argument("--keep", type=Path, help="write all results into this file, for results_pages.py")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * options.minutes
    for name, source in (word.split("=", 1) for word in options.sets):
        photos = photos_of(options.folder / f"{name}.npz", source, options.root)
        for cell in cells(name, options):
            if time.monotonic() < until:
                measure(photos, cell, options)
    if options.keep:
        keep(options.folder, options.keep)


def cells(name: str, options: argparse.Namespace) -> Iterator[Cell]:
    for seed in range(options.seeds):
        for split in options.splits:
            for frequencies in options.frequencies:
                yield Cell(name=name, frequencies=frequencies, split=split, seed=seed)


def measure(photos: Photos, cell: Cell, options: argparse.Namespace) -> None:
    """Measure the methods of a cell that have no line yet, and write a line for each."""
    file = options.folder / f"{cell.name}.jsonl"
    known = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {line["rival"] for line in known if all(line[key] == value for key, value in asdict(cell).items())}
    for rival in (rival for rival in options.rivals if rival not in done):
        began = time.process_time()
        figures = figures_of(RIVALS[rival], photos, cell)
        line = {**asdict(cell), "rival": rival, **figures, "seconds": round(time.process_time() - began, 1)}
        with file.open("a") as stream:
            stream.write(json.dumps(line) + "\n")
        print(*(f"{value:.3f}" if isinstance(value, float) else value for value in line.values()), flush=True)


def figures_of(rival: Rival, photos: Photos, cell: Cell) -> dict[str, Any]:
    """Return the figures of one method in one cell."""
    groups = photos.groups if cell.split == "lookalike" else [""] * len(photos.groups)
    parts = divide_groups(groups, photos.targets, Shares(train=2 / 3, val=0, test=1 / 3), cell.seed)
    rng = np.random.default_rng(cell.seed)
    train = photos.select(drawn(photos.targets, parts["train"], RATIOS[cell.frequencies], rng))
    test = photos.select(parts["test"])
    shares = np.bincount(train.targets) / len(train.targets)
    weights = (shares / np.bincount(test.targets, minlength=len(shares)))[test.targets]
    if not RATIOS[cell.frequencies]:
        weights = np.ones(len(weights))
    figures = figures_of_answers(rival(train, test.features).chances, test.targets, weights)
    strangers = rng.permutation(len(shares))[:STRANGERS]
    inside = ~np.isin(train.targets, strangers)
    scores = rival(among_these(train.select(np.flatnonzero(inside))), test.features).outlier_scores
    if scores is not None:
        strange = np.isin(test.targets, strangers)
        figures["auroc"] = float(roc_auc_score(strange, scores, sample_weight=weights))
    return {**figures, "images": len(train.targets), "tested": len(test.targets)}


def among_these(photos: Photos) -> Photos:
    """Return the same images with targets from 0 without gaps."""
    return replace(photos, targets=np.unique(photos.targets, return_inverse=True)[1])


def drawn(targets: Array, rows: Array, ratio: int, rng: np.random.Generator) -> Array:
    """Draw rows so that the largest label has ``ratio`` times as many as the smallest; 0 returns all."""
    if not ratio:
        return rows
    counts = np.bincount(targets[rows])
    order = (-counts).argsort(kind="stable")
    shares = np.empty(len(counts))
    shares[order] = ratio ** (-np.arange(len(counts)) / (len(counts) - 1))
    wanted = np.maximum(2, np.round(shares * (counts / shares).min())).astype(int)
    return np.concatenate(
        [rng.permutation(rows[targets[rows] == label])[: wanted[label]] for label in range(len(counts))]
    )


def figures_of_answers(chances: Array, targets: Array, weights: Array) -> dict[str, float]:
    """Return accuracy, balanced accuracy, mean average precision of labels and calibration error."""
    right, sure = (chances.argmax(1) == targets).astype(float), chances.max(1)
    labels = range(chances.shape[1])
    total = weights.sum()
    place = np.minimum((sure * BINS).astype(int), BINS - 1)
    gaps = np.bincount(place, weights * (right - sure), minlength=BINS)
    return {
        "accuracy": float(weights @ right / total),
        "balanced_accuracy": float(np.mean([right[targets == label].mean() for label in labels])),
        "average_precision": float(
            np.mean(
                [
                    average_precision_score(targets == label, chances[:, label], sample_weight=weights)
                    for label in labels
                ]
            )
        ),
        "ece": float(np.abs(gaps).sum() / total),
    }


def own(train: Photos, images: Array) -> Answers:
    """Answer with ``lw.fit`` without options."""
    labels = Labels(names=tuple(f"label {i}" for i in range(int(train.targets.max()) + 1)))
    split = Split(images=train.features, targets=train.targets, groups=train.groups if any(train.groups) else ())
    classifier = lw.fit(Dataset(name="photos", labels=labels, splits={"train": split}), None, Run(device="cpu"))
    scores = classifier.scores(images)
    return Answers(chances=scores.probabilities, outlier_scores=scores.outlier_score)


def largest(train: Photos, images: Array) -> Answers:
    shares = np.bincount(train.targets) / len(train.targets)
    return Answers(chances=np.tile(shares, (len(images), 1)), outlier_scores=None)


def regression(train: Photos, images: Array, balance: str | None = None) -> Answers:
    """Answer with logistic regression on scaled features, C chosen by cross-validation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = GridSearchCV(
            make_pipeline(StandardScaler(), LogisticRegression(max_iter=300, tol=1e-3, class_weight=balance)),
            {"logisticregression__C": GRID},
            cv=StratifiedKFold(FOLDS, shuffle=True, random_state=0),
            scoring="accuracy" if balance is None else "balanced_accuracy",
        ).fit(train.features, train.targets)
        chances = model.predict_proba(images)
    return Answers(chances=chances, outlier_scores=1 - chances.max(1))


def neighbours(train: Photos, images: Array, count: int) -> Answers:
    """Answer with the nearest training images by cosine; the outlier score is the distance to the farthest of them."""
    model = KNeighborsClassifier(count, weights="distance", metric="cosine").fit(train.features, train.targets)
    distances, _ = model.kneighbors(images)
    return Answers(chances=model.predict_proba(images), outlier_scores=distances[:, -1])


def photos_of(file: Path, source: str, root: Path | None) -> Photos:
    """Return the features of a data set; the file caches them."""
    if not file.exists():
        data = lw.data.load(source, root=root, group="none")
        whole = pool(data)
        whole = whole.select(some_rows(whole.targets))
        known = encode(open_encoder(DEFAULT), whole.images)
        whole = whole.select(known.rows)
        groups = lookalike_groups(whole.images)
        np.savez(file, features=known.values, labels=whole.targets, groups=np.array(groups))
        print(f"{file.stem}: {len(whole)} images, {sum(map(bool, groups))} with lookalikes", flush=True)
    stored = np.load(file)
    return among_these(
        Photos(features=stored["features"], targets=stored["labels"], groups=tuple(stored["groups"].tolist()))
    )


def some_rows(targets: Array) -> Array:
    """Draw the rows of a set that are used, see the head of this file."""
    rng = np.random.default_rng(0)
    if len(targets) <= WHOLE:
        return np.flatnonzero(targets >= 0)
    labels = np.sort(rng.permutation(np.unique(targets[targets >= 0]))[:MOST_LABELS])
    most = MOST_IMAGES // len(labels)
    return np.sort(np.concatenate([rng.permutation(np.flatnonzero(targets == label))[:most] for label in labels]))


def keep(folder: Path, file: Path) -> None:
    """Write all results into one file, rounded."""
    lines = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    rounded = [{key: round(v, 5) if isinstance(v, float) else v for key, v in line.items()} for line in lines]
    file.write_text("".join(json.dumps(line) + "\n" for line in rounded))


RIVALS: dict[str, Rival] = {
    "labelwise": own,
    "largest label": largest,
    "logistic regression": regression,
    "logistic regression, balanced": partial(regression, balance="balanced"),
    "5 nearest": partial(neighbours, count=NEIGHBOURS),
    "nearest": partial(neighbours, count=1),
}

if __name__ == "__main__":
    main()
