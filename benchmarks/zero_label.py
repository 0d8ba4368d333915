"""zero_label on features of CIFAR-10: the paper's pipeline and its ablations, structure naming and its variants, answers, time.

    python benchmarks/zero_label.py FEATURES.npz LABELS.npz --out zero_label.jsonl [--only time paper structure answers]

FEATURES holds ``f`` (train) and ``ft`` (test), LABELS holds ``labels`` and ``split`` (0 train, 1 test) in the same order. Labels
are read to report accuracy and for nothing else. Every line of the output is one measurement; those already there are not
made again.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labelwise.core import Classifier, Labels
from labelwise.data.batches import Batch
from labelwise.data.dataset import Dataset, Split
from labelwise.data.draws import Draws
from labelwise.fitting import fit
from labelwise.methods import ZeroLabel
from labelwise.methods.label_prior import LabelPrior, Source, word_similarity
from labelwise.methods.naming import name_clusters, uncertain_clusters
from labelwise.methods.transport import Clustering, Matching, Restarts, clustering_losses, matching_losses
from labelwise.methods.zero_label import NamedModel
from labelwise.ops.assignment import best_matching
from labelwise.training import Run

NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
Figures = dict[str, Any]
ABLATIONS = {
    "E all stages": Matching(),
    "D all stages, random start": Matching(initial="random"),
    "B not guided": Matching(guided=False),
    "C not guided, random start": Matching(guided=False, initial="random"),
}


def read(features: Path, labels: Path) -> Dataset:
    """Return features with labels, which only the report reads."""
    with np.load(features) as pack, np.load(labels) as told:
        parts = {name: torch.from_numpy(pack[key].astype(np.float32)) for name, key in (("train", "f"), ("test", "ft"))}
        targets = {
            name: torch.from_numpy(told["labels"][told["split"] == i].astype(np.int64))
            for i, name in enumerate(("train", "test"))
        }
    splits = {name: Split(images=parts[name], targets=targets[name]) for name in parts}
    return Dataset(name="cifar10 features", labels=Labels(names=NAMES), splits=splits)


def accuracies(classifier: Classifier, test: Split) -> Figures:
    """Return the accuracy of the chosen restart, of all restarts, and of the chosen clusters under the best naming."""
    model = classifier.model
    assert isinstance(model, NamedModel)
    codes = classifier.encode(test.images)
    own = (codes @ model.opinions[:, :, :-1].mT + model.opinions[:, None, :, -1]).argmax(-1)
    every = [float((answers == test.targets).double().mean()) for answers in own]
    chosen = classifier.scores_of_codes(codes).argmax(1)
    table = torch.zeros(100).index_add_(0, chosen * 10 + test.targets, torch.ones(len(chosen))).view(10, 10)
    best = table[torch.arange(10), best_matching(table)].sum() / len(chosen)
    return {
        "accuracy": float((chosen == test.targets).double().mean()),
        "restarts": every,
        "mean": mean(every),
        "deviation": pstdev(every),
        "clusters": float(best),
        "naming": dict(classifier.summary["naming"]),
    }


def measure_fit(data: Dataset, method: ZeroLabel, seed: int) -> Figures:
    """Return the figures of one fit."""
    begun = time.monotonic()
    classifier = fit(data, method, Run(seed=seed, device="cpu"))
    return {**accuracies(classifier, data.split("test")), "seconds": time.monotonic() - begun}


def measure_answers(data: Dataset, method: ZeroLabel, seed: int) -> Figures:
    """Return the accuracy after 0, 1, 2 ... answers, asked for in the order of uncertainty, and in a fixed order."""
    classifier = fit(data, method, Run(seed=seed, device="cpu"))
    train, test = data.split("train"), data.split("test")
    truth = _true_names(classifier, train)
    found: dict[str, list[float]] = {"uncertain first": [], "fixed order": []}
    for order, curve in found.items():
        now, answers = classifier, dict[int, str]()
        for _ in range(len(NAMES) + 1):
            curve.append(float((now.scores(test.images).argmax(1) == test.targets).double().mean()))
            doubts = [doubt.cluster for doubt in uncertain_clusters(now) if doubt.cluster not in answers]
            if not doubts:
                break
            cluster = doubts[0] if order == "uncertain first" else min(doubts)
            answers[cluster] = NAMES[int(truth[cluster])]
            now = name_clusters(classifier, answers)
    return {**found}


def _true_names(classifier: Classifier, split: Split) -> Tensor:
    """Return what a person would call each cluster ``[k]``, each label once."""
    model = classifier.model
    assert isinstance(model, NamedModel)
    answers = classifier.scores(split.images).argmax(1)
    table = torch.zeros(100).index_add_(0, answers * 10 + split.targets, torch.ones(len(answers))).view(10, 10)
    return best_matching(table)[model.names]


def measure_time(data: Dataset, restarts: int, steps: int = 10) -> Figures:
    """Return the seconds of a step of stage II and of stage III, all restarts together; the best of three."""
    torch.manual_seed(0)
    images = torch.nn.functional.normalize(data.split("train").images, dim=1)
    prior = LabelPrior.of(word_similarity(NAMES))
    model = Restarts(restarts, len(NAMES), images.shape[1])
    with torch.no_grad():
        model.centres.mul_(0.1)
    optimizer = torch.optim.SGD([model.centres, model.heads], 1e-5)

    def second() -> Tensor:
        return clustering_losses(model, images[torch.randint(len(images), (1000,))], Clustering()).sum()

    def third() -> Tensor:
        rows = torch.randint(len(images), (500,))
        batch = Batch(images=images[rows], targets=rows * 0 - 1, rows=rows, draws=Draws.seeded(0, 500))
        return matching_losses(model, batch, prior, Matching()).sum()

    found = {}
    for name, loss in (("stage II", second), ("stage III", third)):
        times = []
        for _ in range(3):
            begun = time.monotonic()
            for _ in range(steps):
                optimizer.zero_grad()
                loss().backward()  # type: ignore[no-untyped-call]
            times.append((time.monotonic() - begun) / steps)
        found[name] = min(times)
    return found


def plan(data: Dataset, options: argparse.Namespace) -> dict[str, Callable[[], Figures]]:
    """Return every measurement by its name."""
    todo: dict[str, Callable[[], Figures]] = {f"time {count}": partial(measure_time, data, count) for count in (1, 50)}
    about = f"{options.restarts} restarts, steps {options.cluster_steps} and {options.match_steps}"
    clustering = Clustering(steps=options.cluster_steps, gradient="envelope")
    sources: tuple[Source, ...] = ("words", "paper")
    for prior in sources:
        for name, matching in ABLATIONS.items():
            method = ZeroLabel(
                naming="transport",
                prior=prior,
                restarts=options.restarts,
                centre=False,
                clustering=clustering,
                matching=replace(matching, steps=options.match_steps),
            )
            todo[f"paper {prior}, {name}, {about}"] = partial(measure_fit, data, method, 0)
    for seed in range(options.seeds):
        todo[f"answers seed {seed}"] = partial(measure_answers, data, ZeroLabel(), seed)
        for neighbours in (0, 5, 10, 20, 40):
            for balanced in (True, False):
                method = ZeroLabel(neighbours=neighbours, balanced=balanced, prior="words")
                name = f"structure neighbours {neighbours} balanced {balanced} seed {seed}"
                todo[name] = partial(measure_fit, data, method, seed)
    return todo


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", type=Path)
    parser.add_argument("labels", type=Path)
    parser.add_argument("--out", type=Path, default=Path("zero_label.jsonl"))
    parser.add_argument("--only", nargs="*", default=["time", "paper", "structure", "answers"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--restarts", type=int, default=50)
    parser.add_argument("--cluster-steps", type=int, default=5000)
    parser.add_argument("--match-steps", type=int, default=10_000)
    options = parser.parse_args()
    data = read(options.features, options.labels)
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    done = {json.loads(line)["name"] for line in lines}
    for name, work in plan(data, options).items():
        if name in done or not name.startswith(tuple(options.only)):
            continue
        line = {"name": name, **work()}
        with options.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print({key: value for key, value in line.items() if key not in ("naming", "restarts")}, flush=True)


if __name__ == "__main__":
    main()
