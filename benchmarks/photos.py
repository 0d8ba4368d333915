"""What `fit` makes of photos, beside what a person would do instead: one table over sets, examples a label and rivals.

    python benchmarks/photos.py FOLDER NAME=DATA [NAME=DATA ...] [--jobs N] [--page docs/results/photos.md]

Each DATA is a folder of photos, a table or an ``.npz`` pack of pictures or features. Pictures are encoded once, by the frozen encoder
that ``fit`` takes for a person's own; the features stay in FOLDER as ``NAME.npz``. All rivals get the same features: ``labelwise`` is
``lw.fit`` without options, ``version 0.1`` the default of that version, then its trained heads, scikit-learn and nearest means.

Every line of FOLDER/NAME.jsonl is one measured cell, written when it is done, so a run that was stopped goes on where it was. A cell
runs in a process of its own with one thread: seconds are those of the head alone, memory is what it needed beyond the features. Draws
differ in the training pictures; the test pictures are those of the data, or what ``fit`` would set aside.
"""

import argparse
import json
import multiprocessing
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from photos_page import page
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.nn.functional import normalize

import labelwise as lw
from labelwise.data.dataset import Dataset, Split
from labelwise.errors import LabelwiseError
from labelwise.fitting.encoding import encode_dataset, write_features
from labelwise.methods import Encoder, Indicator, Prototype, Softmax
from labelwise.metrics import accuracy, expected_calibration_error
from labelwise.nn.encoder import PRETRAINED
from labelwise.training.stages import Method

SHOTS = (1, 2, 5, 10, 20, 0)  # training pictures a label; 0 is all
TAUGHT = (1, 2, 5, 20)  # examples of a label that is added
NEW, OLD = 0.2, 20  # share of the labels that are added later; training pictures of each of the others
SURE = 20.0  # what cosines with means are multiplied by
CURVE = [10.0**power for power in range(-4, 2)]  # C to choose from
NEIGHBOURS = 5
EARLIER = Indicator(closed_form=False)  # the default of version 0.1
CPU = lw.Run(device="cpu")
TINY = 1e-12  # least probability that a likelihood is told of

Fit = Callable[
    [Split, Tensor], tuple[Tensor, dict[str, float]]
]  # probabilities [n, k] of test features, and what else it tells


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One thing to measure."""

    rival: str
    shots: int  # training pictures a label; 0 is all
    draw: int
    taught: int = 0  # examples of each of the labels added later; 0 adds none


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where features and results are kept")
    parser.add_argument("sets", nargs="*", metavar="NAME=DATA", help="none writes the page from what was measured")
    parser.add_argument("--shots", type=int, nargs="+", default=SHOTS, help="training pictures a label; 0 is all")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--rivals", nargs="+", choices=RIVALS, default=list(RIVALS))
    parser.add_argument("--jobs", type=int, default=1, help="cells measured at a time")
    parser.add_argument("--page", type=Path, help="the page to write")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for word in options.sets:
        name, _, source = word.partition("=")
        measure_set(options.folder, name, source, list(cells(options)), options.jobs)
    if options.page:
        options.page.write_text(page(options.folder))


def cells(options: argparse.Namespace) -> Iterator[Cell]:
    """Yield all that is to be measured of a set; all pictures are one draw, and one picture a label leaves no C to choose."""
    for shots in options.shots:
        for draw in range(options.draws if shots else 1):
            yield from (Cell(rival=r, shots=shots, draw=draw) for r in options.rivals if shots != 1 or r != TUNED)
    for draw in range(options.draws):
        for taught in TAUGHT:
            yield from (Cell(rival=r, shots=OLD, draw=draw, taught=taught) for r in ADDING)


def measure_set(folder: Path, name: str, source: str, wanted: list[Cell], jobs: int) -> None:
    """Measure what is not yet measured of a set, several cells at a time."""
    results = folder / f"{name}.jsonl"
    lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    done = {Cell(**line["cell"]) for line in lines}
    left = [cell for cell in wanted if cell not in done]
    if not left:
        return
    data = features_of(folder / f"{name}.npz", source)
    start = multiprocessing.get_context("fork")
    with start.Pool(jobs, maxtasksperchild=1) as pool, results.open("a") as file:
        for count, line in enumerate(pool.imap_unordered(partial(measure, data), left), 1):
            file.write(json.dumps(line) + "\n")
            file.flush()
            told = "  ".join(
                f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in line.items() if k != "cell"
            )
            print(f"{name} {count}/{len(left)}  {' '.join(map(str, line['cell'].values()))}  {told}", flush=True)


def features_of(file: Path, source: str) -> Dataset:
    """Return the features of a data set, from the file that keeps them."""
    if not file.exists():
        encoder = Encoder(backbone=PRETRAINED, frozen=True)
        packed = Path(source).suffix == ".npz"
        if packed and {"features", "f"} & set(np.load(source).files):
            data = lw.data.features(source)
        else:
            data = lw.data.load(source, size=None if packed else encoder.side())
        if len(data.shape) > 1:
            begun = time.perf_counter()
            data = encode_dataset(data, encoder)
            print(f"{file.stem}: encoded in {time.perf_counter() - begun:.0f} s", flush=True)
        write_features(data, file)
    return lw.data.load(file)


def measure(data: Dataset, cell: Cell) -> dict[str, Any]:
    """Return the figures of one cell, or why there are none."""
    torch.set_num_threads(1)
    threadpool_limits(1)
    warnings.simplefilter("ignore")
    before = memory()
    try:
        figures = taught(data, cell) if cell.taught else tested(data, cell)
    except (LabelwiseError, ValueError) as error:
        return {"cell": asdict(cell), "error": str(error)}
    return {"cell": asdict(cell), **figures, "memory_mb": memory() - before}


def memory() -> float:
    """Return the most memory that this process ever held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def tested(data: Dataset, cell: Cell) -> dict[str, float]:
    """Return accuracy, calibration and seconds of a rival on a draw of the training pictures."""
    train, test = drawn(pool_of(data), cell.shots, cell.draw), data.split("test")
    begun = time.perf_counter()
    chances, told = RIVALS[cell.rival](train, test.images)
    seconds = time.perf_counter() - begun
    sure, best = chances.double().max(1)
    likelihood = chances.double().gather(1, test.targets[:, None]).clamp_min(TINY).log().mean()
    return {
        "accuracy": accuracy(best, test.targets),
        "ece": expected_calibration_error(sure, best == test.targets),
        "nll": -float(likelihood),
        "seconds": seconds,
        "images": len(train),
        **told,
    }


def taught(data: Dataset, cell: Cell) -> dict[str, float]:
    """Return how often a rival is right on labels that were added with few examples, and on the others."""
    k = len(data.labels)
    order = torch.randperm(k, generator=torch.Generator().manual_seed(cell.draw))
    new = order[: max(1, round(NEW * k))]
    pool, test = pool_of(data), data.split("test")
    added = torch.isin(pool.targets, new)
    old = drawn(pool.select((~added).nonzero()[:, 0]), cell.shots, cell.draw)
    examples = drawn(pool.select(added.nonzero()[:, 0]), cell.taught, cell.draw)
    begun = time.perf_counter()
    best = ADDING[cell.rival](old, examples, test.images)
    seconds = time.perf_counter() - begun
    right, is_new = (best == test.targets).double(), torch.isin(test.targets, new)
    return {"new": float(right[is_new].mean()), "old": float(right[~is_new].mean()), "seconds": seconds}


def pool_of(data: Dataset) -> Split:
    """Return all pictures that may be trained on."""
    train = data.split("train")
    return train.join(data.split("val")) if "val" in data.splits and len(data.split("val")) else train


def drawn(split: Split, shots: int, draw: int) -> Split:
    """Return so many pictures a label, or all, in an order of this draw."""
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(draw))
    groups = [order[split.targets[order] == label] for label in split.present]
    return split.select(torch.cat([group[: shots or None] for group in groups]))


def own(method: Method | None) -> Fit:
    """Return how labelwise fits with a method; None is whatever it takes by itself."""

    def fit(train: Split, images: Tensor) -> tuple[Tensor, dict[str, float]]:
        classifier = lw.fit(as_data(train), method, CPU)
        estimate = classifier.origin.summary.get("leave_one_out", {})
        told = {f"estimate_{name}": estimate[name] for name in ("accuracy", "low", "high") if name in estimate}
        return classifier.scores(images).probabilities, told

    return fit


def as_data(train: Split) -> Dataset:
    names = tuple(f"label {i}" for i in range(int(train.targets.max()) + 1))
    return Dataset(name="photos", labels=lw.Labels(names=names), splits={"train": train})


def learner(make: Callable[[Split], Any], prepare: Callable[[Tensor], Tensor] = lambda x: x) -> Fit:
    """Return how an estimator of scikit-learn fits to features."""

    def fit(train: Split, images: Tensor) -> tuple[Tensor, dict[str, float]]:
        model = make(train).fit(prepare(train.images).numpy(), train.targets.numpy())
        return torch.from_numpy(model.predict_proba(prepare(images).numpy())), {}

    return fit


def tuned(train: Split) -> GridSearchCV:
    fewest = int(torch.bincount(train.targets).min())
    return GridSearchCV(scaled(train), {"logisticregression__C": CURVE}, cv=max(2, min(3, fewest)))


def scaled(_: Split) -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def nearest_mean(train: Split, images: Tensor) -> tuple[Tensor, dict[str, float]]:
    """Return the softmax of cosines, times a fixed number, with the mean of each label's features at unit length."""
    unit = normalize(train.images, dim=1)
    means = normalize(torch.stack([unit[train.targets == label].mean(0) for label in train.present]), dim=1)
    return (SURE * normalize(images, dim=1) @ means.T).softmax(1), {}


def neighbours(train: Split) -> KNeighborsClassifier:
    return KNeighborsClassifier(min(NEIGHBOURS, len(train)), weights="distance", metric="cosine")


def teach(method: Method | None, old: Split, examples: Split, images: Tensor) -> Tensor:
    """Return the answers ``[n]`` of a classifier of the old labels that is taught one new label after another."""
    names = [f"label {i}" for i in old.present]
    places = torch.full((int(old.targets.max()) + 1,), -1)
    places[old.present] = torch.arange(len(names))
    split = Split(images=old.images, targets=places[old.targets])
    classifier = lw.fit(
        Dataset(name="photos", labels=lw.Labels(names=tuple(names)), splits={"train": split}), method, CPU
    )
    for label in examples.present:
        classifier = lw.teach(classifier, f"label {label}", examples=examples.images[examples.targets == label])
    best = classifier.scores(images).best
    return torch.tensor([*old.present, *examples.present])[best]


def refit(rival: Fit, old: Split, examples: Split, images: Tensor) -> Tensor:
    """Return the answers ``[n]`` of a rival that is fitted to everything anew."""
    return rival(old.join(examples), images)[0].argmax(1)


TUNED = "logistic regression, C by CV"
RIVALS: dict[str, Fit] = {
    "labelwise": own(None),
    "version 0.1": own(EARLIER),
    "softmax": own(Softmax()),
    "indicator": own(Indicator()),
    "prototype": own(Prototype()),
    "logistic regression": learner(lambda _: LogisticRegression(max_iter=1000)),
    "logistic regression, scaled": learner(scaled),
    TUNED: learner(tuned),
    "nearest mean": nearest_mean,
    "nearest neighbours": learner(neighbours),
}
ADDING: dict[str, Callable[[Split, Split, Tensor], Tensor]] = {
    "labelwise": partial(teach, None),
    "version 0.1": partial(teach, EARLIER),
    "labelwise, refitted": partial(refit, RIVALS["labelwise"]),
    "logistic regression, scaled": partial(refit, RIVALS["logistic regression, scaled"]),
}

if __name__ == "__main__":
    main()
