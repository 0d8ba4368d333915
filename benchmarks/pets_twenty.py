"""Twenty pictures a breed: accuracy and seconds of ``fit`` on a frozen encoder, beside logistic regression.

    LABELWISE_DATA=FOLDER python benchmarks/pets_twenty.py [--test N] [--json FILE]

Oxford-IIIT Pets at the packed 64 pixels (``pets37_64.npz``), brought to 224 for EfficientNet-lite0 (extra ``pretrained``).
Every image is encoded once, and all methods get the same features. The rival is scikit-learn's LogisticRegression on the
standardised features, with its default C and with C chosen by cross-validation. ``fit`` sets nothing aside for its rivals:
its validation images are others than the twenty a breed, and it calibrates on them within its seconds.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from labelwise.data.dataset import Dataset
from labelwise.data.packs import pack
from labelwise.encoding import encode_dataset
from labelwise.fitting import fit
from labelwise.methods import Encoder, Indicator, Softmax
from labelwise.training import Run

PER_LABEL = 20


def few(data: Dataset, test: int) -> Dataset:
    """Return the data with twenty training images a label and ``test`` test images, as equal a number of each."""
    made = torch.Generator().manual_seed(0)

    def rows(split: str, most: int) -> Tensor:
        targets = data.split(split).targets
        mixed = torch.randperm(len(targets), generator=made)
        return torch.cat([mixed[targets[mixed] == label][:most] for label in range(len(data.labels))])

    most = {"train": PER_LABEL, "val": 5, "test": -(-test // len(data.labels))}
    return Dataset(
        name=data.name,
        labels=data.labels,
        splits={name: data.split(name).select(rows(name, most[name])) for name in most},
    )


def rivals(train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> dict[str, tuple[float, float]]:
    """Return accuracy and seconds of logistic regression, by default and with C chosen by cross-validation."""
    plain = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    grid = {"logisticregression__C": [10.0**power for power in range(-4, 2)]}
    found = {}
    for name, model in (
        ("logistic regression, C=1", plain),
        ("logistic regression, C by CV", GridSearchCV(plain, grid)),
    ):
        begun = time.perf_counter()
        model.fit(train[0].numpy(), train[1].numpy())
        seconds = time.perf_counter() - begun
        found[name] = (float(model.score(test[0].numpy(), test[1].numpy())), seconds)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--test", type=int, default=1480, help="test images")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each method; the mean counts")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if "LABELWISE_DATA" not in os.environ:
        parser.error("set LABELWISE_DATA to the folder that holds pets37_64.npz")
    data = few(pack(Path(os.environ["LABELWISE_DATA"]) / "pets37_64.npz"), options.test)
    begun = time.perf_counter()
    data = encode_dataset(data, Encoder(backbone="efficientnet_lite0"), "cpu")
    images, seconds = sum(len(split) for split in data.splits.values()), time.perf_counter() - begun
    print(f"{images} images encoded in {seconds:.0f} s: {images / seconds:.0f} images a second")
    train, test = data.split("train"), data.split("test")
    rows = rivals((train.images, train.targets), (test.images, test.targets))
    for method in (Softmax(), Indicator()):
        runs = []
        for seed in range(options.seeds):
            begun = time.perf_counter()
            classifier = fit(data, method, Run(seed=seed, device="cpu"))
            took = time.perf_counter() - begun
            right = classifier.scores(test.images).argmax(1) == test.targets
            runs.append((float(right.double().mean()), took))
        rows[method.name] = (sum(a for a, _ in runs) / len(runs), sum(s for _, s in runs) / len(runs))
    print(f"{len(train)} training and {len(test)} test images, torch {torch.__version__}")
    print(f"{'method':32}{'accuracy %':>12}{'seconds':>12}")
    for name, (accuracy, took) in rows.items():
        print(f"{name:32}{100 * accuracy:12.1f}{took:12.2f}")
    if options.json:
        figures = {name: {"accuracy": accuracy, "seconds": took} for name, (accuracy, took) in rows.items()}
        options.json.write_text(json.dumps({"images": images, "encoding_seconds": seconds, **figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
