"""Accuracy, calibration, unknown detection and teaching on the embedded birds, over seeds.

    python benchmarks/finches.py [--seeds 5] [--epochs 30] [--json FILE]

In every run one species is held back (another for each seed). Each method is trained on the rest with the default
settings; test images measure accuracy and calibration; digits and the held-back species measure unknown detection
(AUROC, by the classifier's own outlier score and by confidence alone); then the held-back species is taught from five
pictures. Reported: mean and standard deviation over seeds.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import torch

from labelwise.api import teach
from labelwise.data import digits, finches
from labelwise.demo import without
from labelwise.evaluation.closed_set import evaluate_closed
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.outliers import evaluate_outliers
from labelwise.fitting.fit import fit
from labelwise.images.as_images import as_batch
from labelwise.methods import ImageMethod, Indicator, Multilabel, Softmax
from labelwise.train.method import Run

METHODS: dict[str, ImageMethod] = {
    "softmax": Softmax(),
    "multilabel": Multilabel(),
    "indicator": Indicator(),
    "indicator N=9": Indicator(negatives=9),
    "indicator N=9 hard": Indicator(negatives=9, sampling="hard"),
}
HELD_BACK = ("hooded goldfinch", "glade warbler", "copper sparrow", "blushing tit", "dawn sunbird")


def measure(method: ImageMethod, seed: int) -> dict[str, float]:
    """Return the figures of one run."""
    whole = finches()
    name = HELD_BACK[seed % len(HELD_BACK)]
    known, new = without(whole, name)
    classifier = fit(known, method, Run(seed=seed, device="cpu"))
    test = known.split("test")
    tested = Evaluation.of(classifier, test, known.labels)
    closed = evaluate_closed(tested)
    strange = {"digits": as_batch(digits().split("test").images, (3, 48, 48)), "new species": new["test"].images}
    figures = {
        "accuracy": closed.accuracy,
        "calibration error": closed.ece,
        "yes/no calibration error": closed.answer_ece,
    }
    for what, images in strange.items():
        others = classifier.scores(images)
        figures[f"AUROC {what}"] = evaluate_outliers(tested.scores, others).auroc
        figures[f"AUROC {what}, confidence"] = evaluate_outliers(tested.scores, others, sign="confidence").auroc
    taught = teach(classifier, name, examples=new["train"].images[:5])
    chosen = taught.scores(new["test"].images).best
    figures["taught species right"] = float((chosen == len(classifier.labels)).double().mean())
    figures["others after teaching"] = evaluate_closed(Evaluation.of(taught, test, known.labels)).accuracy
    about = classifier.origin.summary["training"]
    return {**figures, "validation accuracy": about["validation_accuracy"], "seconds": about["seconds"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--only", nargs="*", default=list(METHODS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, {options.epochs} epochs, {options.seeds} seeds"
    )
    found: dict[str, list[dict[str, float]]] = {}
    for name in options.only:
        method = replace(METHODS[name], epochs=options.epochs)
        found[name] = [measure(method, seed) for seed in range(options.seeds)]
        for what in found[name][0]:
            values = [run[what] for run in found[name]]
            unit = 1 if what == "seconds" else 100
            spread = stdev(values) * unit if len(values) > 1 else 0.0
            print(f"{name:20}{what:32}{mean(values) * unit:8.1f} +- {spread:.1f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
