"""Answers with a promise: promised against measured shares of wrong answers and of lists that hold the right label, on seven sets.

    for SET in monkeys trash tiles pets cifar100; do labelwise data encode FOLDER/$SET --out FEATURES/$SET.npz; done
    python benchmarks/promises.py --features FEATURES --out promises.json

CUB and Flowers are the ResNet-50 features of ``LABELWISE_DATA``; the other sets are features of the default encoder. Each draw takes some
images of each label to train on ("all": four fifths) and tests the others, where after few images each label counts alike, as in training. Images that look alike stay on one side.
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
from labelwise.core.coarser import Tree
from labelwise.images.split.make import split_off

ERRORS = (0.02, 0.05, 0.1, 0.2)
COVERAGES = (0.8, 0.9, 0.95)
ALL = 0  # images of a label to train on: four fifths
MONKEYS = (  # n0 to n9, and their families
    "Atelidae Cercopithecidae Pitheciidae Cercopithecidae Callitrichidae Cebidae Callitrichidae Cebidae Aotidae Cercopithecidae"
)


@dataclass(frozen=True)
class Set:
    """A data set of features; parents are none where nothing is known that holds its labels."""

    name: str
    features: np.ndarray
    labels: np.ndarray
    names: list[str]
    parents: list[str]
    groups: tuple[str, ...]


def sets(folder: Path) -> Iterator[Set]:
    """Yield the data sets that are there."""
    data = Path(os.environ["LABELWISE_DATA"])
    coarse = np.load(data / "cifar100.npz")
    superclass = {
        int(k): str(coarse["superclasses"][c]) for k, c in zip(coarse["labels"], coarse["coarse"], strict=True)
    }
    names = [str(name) for name in np.load(data / "cub200_64.npz")["classes"]]
    yield _packed("CUB", data / "cub_res50.npz", names, [name.split("_")[-1] for name in names])
    yield _packed("Flowers", data / "flo_res50.npz", [f"flower {k + 1}" for k in range(102)], [])
    for name, file in (
        ("Monkeys", "monkeys"),
        ("Trash", "trash"),
        ("Tiles", "tiles"),
        ("Pets", "pets"),
        ("CIFAR-100", "cifar100"),
    ):
        if not (folder / f"{file}.npz").is_file():
            continue
        arrays = np.load(folder / f"{file}.npz")
        names = [str(one) for one in arrays["classes"]]
        parents = {
            "Monkeys": MONKEYS.split(),
            "Tiles": ["intact" if one == "free" else "defect" for one in names],
            "Pets": ["cat" if one[0].isupper() else "dog" for one in names],
            "CIFAR-100": list(map(superclass.__getitem__, range(len(names)))),
        }.get(name, [])
        groups = tuple(map(str, arrays["groups"])) if "groups" in arrays else ()
        yield Set(name, arrays["features"], arrays["labels"], names, parents, groups)


def _packed(name: str, file: Path, names: list[str], parents: list[str]) -> Set:
    arrays = np.load(file)
    return Set(name, arrays["q"] * arrays["scale"], arrays["labels"], names, parents, ())


def drawn(one: Set, examples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to train on and to test."""
    if examples == ALL:
        train, test = split_off(one.labels, 0.2, seed, one.groups)
        return np.asarray(train), np.asarray(test)
    rng = np.random.default_rng(seed)
    train = np.concatenate([rng.permutation(np.flatnonzero(one.labels == k))[:examples] for k in range(len(one.names))])
    test = np.setdiff1d(np.arange(len(one.labels)), train)
    if one.groups:
        near = {one.groups[row] for row in train} - {""}
        test = np.array([row for row in test if one.groups[row] not in near])
    return train, test


def fitted(one: Set, train: np.ndarray) -> lw.Classifier:
    """Return the classifier of the training images."""
    dataset = as_dataset((one.features[train], np.array(one.names)[one.labels[train]].tolist()))
    if one.parents:
        above = tuple((one.parents[one.names.index(name)],) for name in dataset.labels.names)
        dataset = replace(dataset, labels=replace(dataset.labels, parents=above))
    if one.groups:
        split = replace(dataset.splits["train"], groups=tuple(one.groups[row] for row in train))
        dataset = replace(dataset, splits={"train": split})
    return lw.fit(dataset)


def cell_of(one: Set, examples: int, seed: int) -> dict[str, Any]:
    """Return the figures of one draw; images that are called unknown count like others here."""
    train, test = drawn(one, examples, seed)
    classifier = fitted(one, train)
    scores, tree = classifier.scores(one.features[test]), Tree.of(classifier.labels)
    place = [classifier.labels.names.index(name) if name in classifier.labels.names else -1 for name in one.names]
    targets = np.array(place)[one.labels[test]]
    weights = np.ones(len(test)) if examples == ALL else 1 / np.bincount(targets)[targets]  # as frequent as in training
    steps, mistakes = tree.steps(scores.probabilities), tree.mistakes(scores.probabilities, targets)
    about = {"set": one.name, "examples": examples, "seed": seed, "train": len(train), "test": len(test)}
    cell: dict[str, Any] = {**about, "accuracy": _share(scores.best == targets, weights)}
    for promise in ERRORS:
        limit = classifier.error_limit(promise)
        depth = (steps.probabilities > limit).sum(1)
        shares = [_share(depth == at, weights) for at in range(len(tree.groups), -1, -1)]
        cell[f"error {promise}"] = {"wrong": _share(mistakes > limit, weights), "shares": shares}
    for promise in COVERAGES:
        within = scores.covering(promise)
        covered = _share(within[np.arange(len(test)), targets], weights)
        cell[f"coverage {promise}"] = {"covered": covered, "size": float(within.sum(1).mean())}
    return cell


def _share(true: np.ndarray, weights: np.ndarray) -> float:
    return float(np.average(true, weights=weights))


def table(cells: list[dict[str, Any]]) -> str:
    """Return the means over draws as a table, with standard deviations of what is promised."""
    wrong = [f"wrong, {100 * promise:g} promised" for promise in ERRORS]
    covered = [f"listed, {100 * promise:g} promised" for promise in COVERAGES]
    lines = [f"| set, images a label | {' | '.join(['accuracy', *wrong, *covered])} |", "|---|" + "---:|" * 8]
    for name, examples in dict.fromkeys((one["set"], one["examples"]) for one in cells):
        some = [one for one in cells if (one["set"], one["examples"]) == (name, examples)]
        columns = [[one["accuracy"] for one in some]]
        columns += [[one[f"error {promise}"]["wrong"] for one in some] for promise in ERRORS]
        columns += [[one[f"coverage {promise}"]["covered"] for one in some] for promise in COVERAGES]
        words = [f"{100 * np.mean(column):.1f} +- {100 * np.std(column):.1f}" for column in columns]
        lines.append(f"| {name}, {examples or 'all'} | {' | '.join(words)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure all sets, and write each cell as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="*", default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--examples", type=int, nargs="+", default=[5, ALL])
    options = parser.parse_args()
    cells: list[dict[str, Any]] = json.loads(options.out.read_text()) if options.out.exists() else []
    known = {(one["set"], one["examples"], one["seed"]) for one in cells}
    for one in sets(options.features):
        for examples in options.examples if not options.sets or one.name in options.sets else []:
            for seed in range(options.seeds):
                if (one.name, examples, seed) not in known:
                    cells.append(cell_of(one, examples, seed))
                    print(cells[-1], flush=True)
                    options.out.write_text(json.dumps(cells, indent=1))
    print(table(cells))


if __name__ == "__main__":
    main()
