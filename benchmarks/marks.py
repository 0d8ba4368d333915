"""Several labels per image: the marks of the embedded birds, over seeds.

    python benchmarks/marks.py [--what held|whole|teach] [--seeds 3] [--epochs 30] [--only NAME ...] [--json FILE]

``held``: six species are kept out of training. Their images, all of them, show whether a mark is seen as such or known
from the species; the test images of the other 24 are measured apart. ``whole``: all 30 species, the data as they are.
``teach``: as ``held``, but "forked tail" is no label, and is taught from five pictures that have it. Reported: mean and
standard deviation over seeds.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch

from labelwise.api import teach
from labelwise.core.metrics import average_precisions
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.multilabel import MultilabelResult, evaluate_multilabel
from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset, Split
from labelwise.images.sets.finches import UNSEEN, finches_marks
from labelwise.methods import ImageMethod, Indicator, Multilabel
from labelwise.train.method import Run

METHODS: dict[str, ImageMethod] = {
    "multilabel": Multilabel(),
    "indicator": Indicator(),
    "indicator N=3": Indicator(negatives=3),
}
TAUGHT = "forked tail"
FIGURES = ("mean_average_precision", "micro_f1", "macro_f1", "exact", "answer_ece")


def divided() -> tuple[Dataset, Split]:
    """Return the marks of 24 species, and all images of the other six."""
    data = finches_marks()
    kept, apart = {}, []
    for name, split in data.splits.items():
        unseen = torch.tensor([file.split("/")[0] in UNSEEN for file in split.files])
        kept[name] = split.select((~unseen).nonzero()[:, 0])
        apart.append(split.select(unseen.nonzero()[:, 0]))
    return replace(data, splits=kept), apart[0].join(apart[1]).join(apart[2])


def without(data: Dataset, name: str) -> Dataset:
    """Return the data without one label; its images stay."""
    names = [other for other in data.labels.names if other != name]
    columns = [data.labels.index(other) for other in names]
    splits = {}
    for part, split in data.splits.items():
        splits[part] = replace(split, targets=split.targets[:, columns])
    return replace(data, labels=data.labels.select(names), splits=splits)


def measure(method: ImageMethod, seed: int) -> dict[str, float]:
    """Return the figures of one run."""
    data, unseen = divided()
    classifier = fit(data, method, Run(seed=seed, device="cpu"))
    found: dict[str, float] = {}
    for words, split in (("seen species", data.split("test")), ("new species", unseen)):
        result: MultilabelResult = evaluate_multilabel(Evaluation.of(classifier, split, data.labels))
        found |= {f"{words} {figure}": getattr(result, figure) for figure in FIGURES}
    found["validation answer ece before"] = classifier.origin.summary["calibration"]["answer_ece_before"]
    found["validation answer ece after"] = classifier.origin.summary["calibration"]["answer_ece_after"]
    return {**found, "seconds": classifier.origin.summary["training"]["seconds"]}


def measure_whole(method: ImageMethod, seed: int) -> dict[str, float]:
    """Return the figures of one run on all species."""
    data = finches_marks()
    classifier = fit(data, method, Run(seed=seed, device="cpu"))
    result = evaluate_multilabel(Evaluation.of(classifier, data.split("test"), data.labels))
    return {figure: getattr(result, figure) for figure in FIGURES}


def measure_taught(method: ImageMethod, seed: int) -> dict[str, float]:
    """Return how well a mark is known that was taught from five pictures."""
    data, _ = divided()
    train, test, column = data.split("train"), data.split("test"), data.labels.index(TAUGHT)
    classifier = fit(without(data, TAUGHT), method, Run(seed=seed, device="cpu"))
    having = train.targets[:, column].nonzero()[:, 0]
    drawn = having[torch.randperm(len(having), generator=torch.Generator().manual_seed(seed))[:5]]
    taught = teach(classifier, TAUGHT, examples=train.images[drawn])
    scores = taught.scores(test.images)
    precision = float(average_precisions(scores.log_odds[:, -1:], test.targets[:, [column]])[0])
    yes = scores.yes[:, -1] >= 0.5
    right = (yes == np.asarray(test.targets)[:, column]).mean()
    return {
        "taught average precision": precision,
        "taught share": float(test.targets[:, column].double().mean()),
        "taught right": float(right),
    }


MEASURES = {"held": measure, "whole": measure_whole, "teach": measure_taught}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--only", nargs="*", default=list(METHODS))
    parser.add_argument("--what", choices=list(MEASURES), default="held")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    threads = torch.get_num_threads()
    print(f"torch {torch.__version__}, {threads} threads, {options.epochs} epochs, {options.seeds} seeds")
    found: dict[str, list[dict[str, float]]] = {}
    for name in options.only:
        method = replace(METHODS[name], epochs=options.epochs)
        found[name] = [MEASURES[options.what](method, seed) for seed in range(options.seeds)]
        for what in found[name][0]:
            values = [run[what] for run in found[name]]
            unit = 1 if what == "seconds" else 100
            spread = stdev(values) * unit if len(values) > 1 else 0.0
            print(f"{name:16}{what.replace('_', ' '):38}{mean(values) * unit:8.2f} +- {spread:.2f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
