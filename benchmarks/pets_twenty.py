"""Twenty pictures a breed: accuracy and seconds of ``fit`` on a frozen encoder, beside logistic regression.

    LABELWISE_DATA=FOLDER python benchmarks/pets_twenty.py [--test N] [--draws N] [--json FILE]

Oxford-IIIT Pets at the packed 64 pixels (``pets37_64.npz``), brought to 224 for EfficientNet-lite0 (extra ``pretrained``).
Every image is encoded once, and all methods get the same features. The rival is scikit-learn's LogisticRegression on the
standardised features, with its default C and with C chosen by cross-validation. Each draw takes twenty other training
images of each breed; the mean over draws counts. ``fit`` calibrates on five validation images a breed, which it does not
train on and its rivals do not see, within its seconds.
"""

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from labelwise.fitting.fit import fit
from labelwise.fitting.torch_encoding import encode_dataset
from labelwise.images.dataset import Dataset
from labelwise.images.sources.packs import pack
from labelwise.methods import Encoder, Indicator, Softmax
from labelwise.train.method import Run

PER_LABEL = 20
GRID = {"logisticregression__C": [10.0**power for power in range(-4, 2)]}


def few(data: Dataset, test: int, draws: int) -> Dataset:
    """Return the data with ``draws`` times twenty training images a label, and about ``test`` test images."""
    made = torch.Generator().manual_seed(0)

    def rows(split: str, most: int) -> Tensor:
        targets = data.split(split).targets
        mixed = torch.randperm(len(targets), generator=made)
        return torch.cat([mixed[targets[mixed] == label][:most] for label in range(len(data.labels))])

    most = {"train": draws * PER_LABEL, "val": 5, "test": -(-test // len(data.labels))}
    splits = {name: data.split(name).select(rows(name, most[name])) for name in most}
    return Dataset(name=data.name, labels=data.labels, splits=splits)


def twenty(data: Dataset, draw: int) -> Dataset:
    """Return the data with the twenty training images a label of one draw."""
    train = data.split("train")
    places = [(train.targets == label).nonzero()[:, 0] for label in range(len(data.labels))]
    rows = torch.cat([place[draw * PER_LABEL : (draw + 1) * PER_LABEL] for place in places])
    return replace(data, splits={**data.splits, "train": train.select(rows)})


def measure(data: Dataset, seed: int) -> dict[str, tuple[float, float]]:
    """Return accuracy and seconds of each method."""
    train, test = data.split("train"), data.split("test")
    plain = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    found = {}
    for name, model in (
        ("logistic regression, C=1", plain),
        ("logistic regression, C by CV", GridSearchCV(plain, GRID)),
    ):
        begun = time.perf_counter()
        model.fit(train.images.numpy(), train.targets.numpy())
        seconds = time.perf_counter() - begun
        found[name] = (float(model.score(test.images.numpy(), test.targets.numpy())), seconds)
    for method in (Softmax(), Indicator()):
        begun = time.perf_counter()
        classifier = fit(data, method, Run(seed=seed, device="cpu"))
        seconds = time.perf_counter() - begun
        right = classifier.scores(test.images).best == test.targets
        found[method.name] = (float(right.double().mean()), seconds)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--test", type=int, default=1480, help="test images")
    parser.add_argument("--draws", type=int, default=3, choices=range(1, 5), help="draws of twenty images a breed")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if "LABELWISE_DATA" not in os.environ:
        parser.error("set LABELWISE_DATA to the folder that holds pets37_64.npz")
    data = few(pack(Path(os.environ["LABELWISE_DATA"]) / "pets37_64.npz"), options.test, options.draws)
    begun = time.perf_counter()
    data = encode_dataset(data, Encoder(backbone="efficientnet_lite0"), "cpu")
    images, seconds = sum(len(split) for split in data.splits.values()), time.perf_counter() - begun
    print(f"{images} images encoded in {seconds:.0f} s: {images / seconds:.0f} images a second")
    runs = [measure(twenty(data, draw), draw) for draw in range(options.draws)]
    about = f"{PER_LABEL * len(data.labels)} training and {len(data.split('test'))} test images, {len(runs)} draws"
    print(f"{about}, torch {torch.__version__}")
    print(f"{'method':32}{'accuracy %':>12}{'seconds':>12}")
    figures: dict[str, dict[str, float]] = {}
    for name in runs[0]:
        figures[name] = {what: fmean(run[name][i] for run in runs) for i, what in enumerate(("accuracy", "seconds"))}
        print(f"{name:32}{100 * figures[name]['accuracy']:12.1f}{figures[name]['seconds']:12.2f}")
    if options.json:
        options.json.write_text(json.dumps({"images": images, "encoding_seconds": seconds, **figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
