"""Merged halves against one fit on all images: accuracy, calibration error and AUROC of labels left out, on CUB, Pets and CIFAR-100.

    python benchmarks/merge.py --features FOLDER --out merge.json

The folder is that of ``benchmarks/promises.py``. Images of a label are divided at random; "labels" divides the labels instead, so that each
classifier knows half of them. A fifth of the labels is left out, as strangers.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

import labelwise as lw
from labelwise.core.metrics import auroc, expected_calibration_error

sys.path.insert(0, str(Path(__file__).parent))
from promises import Set, sets


def fitted(one: Set, rows: np.ndarray) -> lw.Classifier:
    """Return the classifier of some images."""
    return lw.fit((one.features[rows], np.array(one.names)[one.labels[rows]].tolist()))


def figures(classifier: lw.Classifier, one: Set, test: np.ndarray, strangers: np.ndarray) -> dict[str, float]:
    """Return accuracy, calibration error and AUROC."""
    scores, odd = classifier.scores(one.features[test]), classifier.scores(one.features[strangers])
    right = np.array(classifier.labels.names)[scores.best] == np.array(one.names)[one.labels[test]]
    return {
        "accuracy": float(right.mean()),
        "ece": float(expected_calibration_error(scores.probabilities.max(1), right)),
        "auroc": float(auroc(odd.outlier_score, scores.outlier_score)),
    }


def main() -> None:
    """Measure all sets, and write each cell as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--examples", type=int, default=10)
    options = parser.parse_args()
    cells = []
    for seed in range(options.seeds):
        for one in sets(options.features):
            rng = np.random.default_rng(seed)
            labels = rng.permutation(len(one.names))
            strange, known = np.split(labels, [len(labels) // 5])
            rows = {k: rng.permutation(np.flatnonzero(one.labels == k)) for k in labels.tolist()}
            train = np.concatenate([rows[k][: options.examples] for k in known.tolist()])
            test = np.concatenate([rows[k][options.examples :][:40] for k in known.tolist()])
            strangers = np.concatenate([rows[k][:40] for k in strange.tolist()])
            images = rng.random(len(train)) < 0.5
            of_labels = np.isin(one.labels[train], known[: len(known) // 2])
            ways = {"all": [train], "images": [train[images], train[~images]]}
            ways["labels"] = [train[of_labels], train[~of_labels]]
            for way, parts in ways.items():
                some = [fitted(one, part) for part in parts]
                classifier = some[0] if way == "all" else lw.merge(some)
                cell = {"set": one.name, "seed": seed, "way": way, **figures(classifier, one, test, strangers)}
                cells.append(cell)
                print(cell, flush=True)
                options.out.write_text(json.dumps(cells, indent=1))


if __name__ == "__main__":
    main()
