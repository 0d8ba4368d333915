"""Does lifting taught labels to the level of trained ones help `prototype`? Both ways on the same trained models.

    python benchmarks/taught_levels.py --data cub flo mnist [--seeds 0 1 2] [--shots 5] [--epochs N] [--data-root FOLDER]

A fifth of the labels is held back. One model is trained on the others; each held label (at most ten) is then taught alone from a few
pictures. Printed for ``lifted`` off and on: the share of the taught labels' other pictures named right, the share of test
pictures of trained labels named right afterwards (before, in brackets), and the harmonic mean of the two, over seeds.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from labelwise.api import teach
from labelwise.core.classifier import Classifier
from labelwise.data import load, pool, resplit
from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset, Split
from labelwise.images.split.make import zero_shot
from labelwise.methods import Encoder, Prototype
from labelwise.methods.prototype.head import PrototypeHead
from labelwise.methods.prototype.method import Head
from labelwise.train.method import Run

MOST_TAUGHT, MOST_TESTED, MOST_TRAINED = 10, 2000, 6000


def method_for(data: Dataset, head: Head, epochs: int | None) -> Prototype:
    """Return settings by the kind of data: a projection of features, or a small network for pictures."""
    features = data.features is not None
    encoder = Encoder(code_size=256) if features else Encoder(backbone="convnet", width=16)
    return Prototype(encoder=encoder, epochs=epochs or (20 if features else 8), head=head)


def divided(data: Dataset, seed: int) -> tuple[Dataset, Dataset]:
    """Return trained labels (train, test) and held labels (test), divided at random; large sets are thinned."""
    whole = pool(data)
    plan = zero_shot(whole.targets, data.labels.names, held_out=0.0, unseen=0.2, share=0.3, seed=seed)
    mixed = torch.Generator().manual_seed(seed)
    train = plan["train"][torch.randperm(len(plan["train"]), generator=mixed)[:MOST_TRAINED]]
    test = plan["test_seen"][torch.randperm(len(plan["test_seen"]), generator=mixed)[:MOST_TESTED]]
    known = resplit(data, {"train": np.sort(np.concatenate([train, plan["val_seen"]])), "test": np.sort(test)})
    return known, resplit(data, {"test": plan["test_unseen"]})


def measure(classifier: Classifier, known: Split, held: Dataset, shots: int) -> tuple[float, float]:
    """Return the share of taught labels' pictures named right, and of the others' afterwards."""
    new, old, part = [], [], held.split("test")
    for target in sorted(set(part.targets.tolist()))[:MOST_TAUGHT]:
        rows = (part.targets == target).nonzero()[:, 0]
        taught = teach(classifier, held.labels.names[target], examples=part.images[rows[:shots]])
        last = len(taught.labels) - 1
        new.append(float((taught.scores(part.images[rows[shots:]]).best == last).double().mean()))
        old.append(_right(taught, known, held))
    return fmean(new), fmean(old)


def _right(classifier: Classifier, split: Split, data: Dataset) -> float:
    places = [classifier.labels.names.index(data.labels.names[t]) for t in split.targets.tolist()]
    return float((classifier.scores(split.images).best == places).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["cub", "flo", "mnist"])
    parser.add_argument("--heads", nargs="+", choices=("sim", "mean"), default=["sim", "mean"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-root", type=Path)
    chosen = parser.parse_args()
    table = Table(title=f"labels taught from {chosen.shots} pictures; mean over seeds {chosen.seeds}")
    for head in ("data", "head", "lifted", "taught labels, %", "others after (before), %", "harmonic mean, %"):
        table.add_column(head)
    for name in chosen.data:
        data = load(name, root=chosen.data_root)
        for head in chosen.heads:
            found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
            before = []
            for seed in chosen.seeds:
                known, held = divided(data, seed)
                classifier = fit(known, method_for(data, head, chosen.epochs), Run(seed=seed, device=chosen.device))
                test = known.split("test")
                before.append(_right(classifier, test, data))
                own = classifier.head
                assert isinstance(own, PrototypeHead)
                for lifted in found:
                    one = replace(classifier, head=replace(own, lifted=lifted))
                    found[lifted].append(measure(one, test, held, chosen.shots))
            for lifted, pairs in found.items():
                new, old = (100 * fmean(pair[i] for pair in pairs) for i in (0, 1))
                both = 100 * fmean(2 * a * b / max(a + b, 1e-9) for a, b in pairs)
                cells = (f"{new:.1f}", f"{old:.1f} ({100 * fmean(before):.1f})", f"{both:.1f}")
                table.add_row(name, head, "yes" if lifted else "no", *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
