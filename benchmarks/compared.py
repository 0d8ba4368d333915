"""``lw.fit`` next to classifiers of scikit-learn in their usual settings, all on the same features: accuracy, calibration and time.

    python benchmarks/compared.py [--sets cub flo] [--seeds 0 1 2]

Features are those of a ResNet-50, published with the sets. No setting is chosen here.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

import labelwise as lw
from labelwise.core.metrics import expected_calibration_error
from labelwise.sklearn import LabelwiseClassifier

LABELS, TESTS = 40, 20  # at most: labels of a set, test images of a label
RIVALS: dict[str, Callable[[], Any]] = {
    "labelwise": LabelwiseClassifier,
    "logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "linear SVM": lambda: make_pipeline(StandardScaler(), LinearSVC()),
    "SVM with RBF kernel": lambda: make_pipeline(StandardScaler(), SVC()),
    "5 nearest neighbours": lambda: KNeighborsClassifier(5, metric="cosine"),
    "LDA, shrinkage": lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
}


def drawn(split: Any, each: int, draw: np.random.Generator) -> tuple[Any, Any]:
    """Return features and targets of at most so many images of each of the first labels."""
    rows = [draw.permutation(np.flatnonzero(split.targets == label))[:each] for label in range(LABELS)]
    chosen = np.concatenate(rows)
    return split.images.select(chosen).values, split.targets[chosen]


def measured(name: str, images: int, seed: int) -> Iterator[tuple[str, float, float, float]]:
    """Yield each classifier with its accuracy and calibration error in per cent, and the processor seconds of its fit."""
    data, draw = lw.data.load(name), np.random.default_rng(seed)
    (train, labels), (test, truth) = drawn(data.split("train"), images, draw), drawn(data.split("test"), TESTS, draw)
    test, truth = test[np.isin(truth, labels)], truth[np.isin(truth, labels)]
    for rival, make in RIVALS.items():
        model, start = make(), time.process_time()
        model.fit(train, labels)
        seconds = time.process_time() - start
        accuracy = float((model.predict(test) == truth).mean())
        error = float("nan")
        if hasattr(model, "predict_proba"):
            chances = model.predict_proba(test)
            error = expected_calibration_error(chances.max(1), np.asarray(model.classes_)[chances.argmax(1)] == truth)
        yield rival, 100 * accuracy, 100 * error, seconds


def main() -> None:
    """Print a row for each classifier: means and standard deviations over sets and seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["cub", "flo"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--images", nargs="+", type=int, default=[5, 20])
    given = parser.parse_args()
    for images in given.images:
        for name in given.sets:
            rows: dict[str, list[tuple[float, ...]]] = {}
            for seed in given.seeds:
                for rival, *figures in measured(name, images, seed):
                    rows.setdefault(rival, []).append(tuple(figures))
            for rival, values in rows.items():
                mean, spread = np.mean(values, 0), np.std(values, 0)
                print(
                    f"{name:14}{images:4} a label  {rival:22}{mean[0]:6.1f} +- {spread[0]:.1f}  ECE {mean[1]:5.1f}  {mean[2]:7.2f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
