"""Coarser answers: promised against measured shares of wrong answers, on CUB, Pets and CIFAR-100, against a threshold on the top label.

    python benchmarks/coarser.py --features FOLDER --out coarser.json

CUB reads ``cub_res50.npz`` (ResNet-50 features); its parents are the last words of the names (70). Pets and CIFAR-100 read
``pets37_64.npz`` and ``cifar100.npz`` from the folder: ``features`` of the default encoder, ``labels``, ``classes`` and ``species`` or
``coarse``; their parents are cat and dog, and the 20 superclasses. Each seed draws the training images; all others are tested.
"""

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import labelwise as lw
from labelwise.calls import as_dataset

PROMISES = (0.02, 0.05, 0.1, 0.2)


@dataclass(frozen=True)
class Set:
    """A data set of features."""

    name: str
    features: np.ndarray
    labels: np.ndarray
    names: list[str]
    parents: list[str]


def sets(folder: Path) -> Iterator[Set]:
    """Yield the data sets."""
    data = Path(os.environ["LABELWISE_DATA"])
    packed = np.load(data / "cub_res50.npz")
    names = [str(name) for name in np.load(data / "cub200_64.npz")["classes"]]
    yield Set("CUB", packed["q"] * packed["scale"], packed["labels"], names, [n.split("_")[-1] for n in names])
    pets = np.load(folder / "pets37_64.npz")
    species = [("cat", "dog")[int(pets["species"][pets["labels"] == k][0] != 1)] for k in range(37)]
    yield Set("Pets", pets["features"], pets["labels"], [str(name) for name in pets["classes"]], species)
    cifar = np.load(folder / "cifar100.npz")
    coarse = [str(cifar["superclasses"][cifar["coarse"][cifar["labels"] == k][0]]) for k in range(100)]
    yield Set("CIFAR-100", cifar["features"], cifar["labels"], [str(name) for name in cifar["classes"]], coarse)


def fitted(one: Set, train: np.ndarray, parents: bool) -> lw.Classifier:
    """Return the classifier of the training images, whose labels have parents or not."""
    names = np.array(one.names)[one.labels[train]]
    dataset = as_dataset((one.features[train], names.tolist()))
    above = tuple((one.parents[one.names.index(name)],) for name in dataset.labels.names) if parents else None
    return lw.fit(replace(dataset, labels=replace(dataset.labels, parents=above)))


def measured(classifier: lw.Classifier, one: Set, test: np.ndarray, promise: float) -> dict[str, float]:
    """Return shares of answers, and how many of them are wrong."""
    answers = classifier.scores(one.features[test]).coarser(promise)
    kinds, wrong = np.zeros(len(test), np.int64), np.zeros(len(test), bool)
    for row, ((path, _), label) in enumerate(zip(answers, one.labels[test], strict=True)):
        if path:
            is_label = path[-1] in one.names
            kinds[row] = 2 if is_label else 1
            wrong[row] = path[-1] != (one.names[label] if is_label else one.parents[label])
    shares = {name: float((kinds == kind).mean()) for kind, name in enumerate(("unsure", "parent", "label"))}
    right = {f"right_{name}": float(((kinds == kind) & ~wrong).mean()) for kind, name in ((1, "parent"), (2, "label"))}
    return {**shares, **right, "wrong": float(wrong.mean())}


def cells_of(one: Set, examples: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the figures of one draw of training images, with parents and without."""
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(np.flatnonzero(one.labels == k))[:examples] for k in range(len(one.names))]
    train = np.concatenate(rows)
    test = np.setdiff1d(np.arange(len(one.labels)), train)
    for parents in (True, False):
        classifier = fitted(one, train, parents)
        names = np.array(classifier.labels.names)[classifier.scores(one.features[test]).best]
        accuracy = float((names == np.array(one.names)[one.labels[test]]).mean())
        about = {"set": one.name, "examples": examples, "seed": seed, "parents": parents, "accuracy": accuracy}
        for promise in PROMISES:
            yield {**about, "promise": promise, **measured(classifier, one, test, promise)}


def table(cells: list[dict[str, Any]]) -> str:
    """Return the means over seeds as a table, with the standard deviation of what is promised."""
    lines = [
        "| set, images a label | promise | wrong | label / parent / unsure | the same without parents |",
        "|---|---:|---:|---:|---:|",
    ]
    for key in dict.fromkeys((one["set"], one["examples"], one["promise"]) for one in cells):
        some = [one for one in cells if (one["set"], one["examples"], one["promise"]) == key]
        with_parents, flat = ([one for one in some if one["parents"] == each] for each in (True, False))
        shares = [
            " / ".join(f"{100 * np.mean([one[name] for one in part]):.1f}" for name in ("label", "parent", "unsure"))
            for part in (with_parents, flat)
        ]
        wrong = [
            f"{100 * np.mean([one['wrong'] for one in part]):.1f} +- {100 * np.std([one['wrong'] for one in part]):.1f}"
            for part in (with_parents, flat)
        ]
        flat_share = shares[1].replace(" / 0.0 / ", " / - / ")
        lines.append(f"| {key[0]}, {key[1]} | {100 * key[2]:g} | {wrong[0]} | {shares[0]} | {wrong[1]}: {flat_share} |")
    return "\n".join(lines)


def main() -> None:
    """Measure all sets, and write each cell as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--examples", type=int, nargs="+", default=[5, 20])
    options = parser.parse_args()
    cells: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        for one in sets(options.features):
            for examples in options.examples:
                for cell in cells_of(one, examples, seed):
                    cells.append(cell)
                    print({key: round(v, 4) if isinstance(v, float) else v for key, v in cell.items()}, flush=True)
                    options.out.write_text(json.dumps(cells, indent=1))
    print(table(cells))


if __name__ == "__main__":
    main()
