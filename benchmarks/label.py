"""Answers against accuracy: sessions with a simulated person, beside published rules of choice.

    python benchmarks/label.py flo cub --seeds 0 1 2 --held-out
    python benchmarks/label.py photos/trash --how ours sheets random

A third of the images is held out; the others are the pile of photos. "pile" is the share of the pile whose label is right, a person's
answers among them; "rest" that of images that nobody answered; "held out" is measured with the classifier that ``fit`` makes (method
discriminant) from the labels of the session, each weighed by its probability.

The rivals are short implementations of the published rules on root features of unit length, in batches of a tenth of the budget; the guesses
are made by the same engine for all, so what is compared is the choice of questions. TypiClust: Hacohen et al., ICML 2022. ProbCover:
Yehuda et al., NeurIPS 2022. DropQuery: Gupte et al., TMLR 2024. Margin: Scheffer et al., 2001.
"""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.core.arrays import root_features, unit_rows
from labelwise.core.classifier import bind
from labelwise.encoders.encode import encode
from labelwise.encoders.encoder import Precomputed
from labelwise.encoders.registry import open_encoder
from labelwise.images.catalogue import load
from labelwise.images.describe.labels import Labels
from labelwise.images.split.divide import pool
from labelwise.label.ledger import NO_LABEL
from labelwise.label.person import Person, accuracy, simulate
from labelwise.label.session import Session
from labelwise.label.space import Floats, Ints, Space, make_space, nearest
from labelwise.methods.discriminant.fit import fit_discriminant
from labelwise.tasks.grouping import group_features

ROOT = Path(os.environ.get("LABELWISE_DATA", "data"))
BATCHES = 10
BUDGETS = {"flo": (102, 204, 510), "cub": (200, 400, 1000)}


def read(name: str) -> tuple[Floats, list[str]]:
    """Return features ``[n, d]`` and labels of a set: ResNet-50 codes, SimCLR codes, or photos by the default encoder."""
    if name in BUDGETS:
        pack = np.load(ROOT / f"{name}_res50.npz")
        return pack["q"].astype(np.float32) * pack["scale"], [str(label) for label in pack["labels"]]
    if name == "cifar10":
        pack = np.load(ROOT / "cifar10_simclr_r18_uncentred192.npz")
        rows = np.flatnonzero(pack["split"] == pack["split"].max())  # the 10,000 of the test split
        return pack["features"][rows].astype(np.float32), [str(label) for label in pack["labels"][rows]]
    data = load(name)
    whole = pool(data)
    features = encode(open_encoder(), whole.images)
    words = whole.words(data.labels.names)
    return features.values, [words[row] for row in features.rows]


def random_rows(features: Floats, budget: int, seed: int, **_: Any) -> list[int]:
    """Return rows drawn at random."""
    return list(np.random.default_rng(seed).permutation(len(features))[:budget].tolist())


def typiclust(features: Floats, budget: int, seed: int, **_: Any) -> list[int]:
    """Return the densest image of the largest groups without an answer, as many groups as answers after each batch."""
    near = nearest(features, features, min(20, len(features) - 1), others=True)[1]
    dense, chosen = near.mean(1), list[int]()
    for count in np.linspace(0, budget, BATCHES + 1).astype(int)[1:]:
        groups = group_fast(features, int(count), seed)
        while len(chosen) < count:
            free = ~np.isin(groups, groups[chosen]) if len(chosen) else np.ones(len(groups), bool)
            free = free if free.any() else np.ones(len(groups), bool)
            free[chosen] = False
            group = np.bincount(groups[free]).argmax()
            rows = np.flatnonzero(free & (groups == group))
            chosen.append(int(rows[dense[rows].argmax()]))
    return chosen


def probcover(features: Floats, budget: int, seed: int, **_: Any) -> list[int]:
    """Return rows whose balls cover most images that none covers yet; the radius is where 95 % of balls hold one group of k-means."""
    sample = np.random.default_rng(seed).permutation(len(features))[:2000]
    points = features[sample]
    groups = group_fast(points, min(budget, 200), seed)
    products = points @ points.T
    pure = groups[:, None] == groups
    limit = next((r for r in np.linspace(0.2, 0.98, 40) if _pure_balls(products, pure, r) >= 0.95), 0.98)
    covers = [np.flatnonzero(features @ row >= limit) for row in features]
    left, chosen = np.ones(len(features), bool), list[int]()
    sizes = np.array([len(one) for one in covers])
    while len(chosen) < budget:
        sizes[chosen] = -1
        best = int(sizes.argmax())
        chosen.append(best)
        for row in covers[best][left[covers[best]]]:
            sizes[covers[row]] -= 1
            left[row] = False
    return chosen


def _pure_balls(products: Floats, pure: np.ndarray, limit: float) -> float:
    inside = products >= limit
    return float((~(inside & ~pure).any(1)).mean())


def margin(features: Floats, budget: int, seed: int, *, space: Space, truth: list[str], **_: Any) -> list[int]:
    """Return the rows with the least margin between two labels, after a first batch at random."""
    session = Session(space, checks=0)
    chosen = random_rows(features, budget // BATCHES, seed)
    for row in chosen:
        session.name([row], truth[row])
    for count in np.linspace(0, budget, BATCHES + 1).astype(int)[2:]:
        order = np.sort(session.chances, 1)
        gap = order[:, -1] - order[:, -2] if order.shape[1] > 1 else order[:, -1]
        gap[chosen] = np.inf
        for row in gap.argsort(kind="stable")[: count - len(chosen)].tolist():
            session.name([row], truth[row])
            chosen.append(row)
    return chosen


def dropquery(features: Floats, budget: int, seed: int, *, truth: list[str], **_: Any) -> list[int]:
    """Return rows whose guess changes where features are dropped, one of each of as many groups; a first batch of typical ones.

    The guess is the nearest mean of labels, three quarters of the numbers of a row dropped at random, three times.
    """
    generator, chosen = np.random.default_rng(seed), typiclust(features, budget // BATCHES, seed)
    for count in np.linspace(0, budget, BATCHES + 1).astype(int)[2:]:
        answered = np.array([truth[row] for row in chosen])
        names = np.unique(answered)
        means = unit_rows(np.stack([features[chosen][answered == name].mean(0) for name in names]))
        best = (features @ means.T).argmax(1)
        dropped = [((features * (generator.random(features.shape) > 0.75)) @ means.T).argmax(1) for _ in range(3)]
        unsure = np.flatnonzero(sum((one != best).astype(int) for one in dropped) > 1)
        unsure = unsure[~np.isin(unsure, chosen)]
        free = np.setdiff1d(np.arange(len(features)), [*chosen, *unsure])
        wanted = int(count) - len(chosen)
        rows = unsure if len(unsure) >= wanted else np.concatenate([unsure, free[: wanted - len(unsure)]])
        groups = group_fast(features[rows], wanted, seed)
        centres = np.stack([features[rows][groups == group].mean(0) for group in np.unique(groups)])
        picks = dict.fromkeys(rows[(features[rows] @ unit_rows(centres).T).argmax(0)].tolist())
        spare = (row for row in rows.tolist() if row not in picks)
        chosen += [*picks, *(next(spare) for _ in range(wanted - len(picks)))]
    return chosen


def group_fast(features: Floats, count: int, seed: int) -> Ints:
    """Return groups of k-means, one start and few rounds: as many as answers, where many starts take hours."""
    if len(features) <= 2_000 and count <= 20:
        return group_features(features, count, seed)
    generator = np.random.default_rng(seed)
    centres = [features[generator.integers(len(features))]]
    far = 2 - 2 * features @ centres[0]
    for _ in range(count - 1):
        far = np.maximum(far, 0)
        centres.append(features[generator.choice(len(features), p=far / far.sum()) if far.sum() else 0])
        far = np.minimum(far, 2 - 2 * features @ centres[-1])
    middle = np.stack(centres)
    for _ in range(10):
        groups = (features @ middle.T).argmax(1)
        sums = np.zeros_like(middle)
        np.add.at(sums, groups, features)
        middle = np.where(abs(sums).sum(1, keepdims=True) > 0, unit_rows(sums), middle)
    return np.asarray(groups)


RIVALS: dict[str, Callable[..., list[int]]] = {
    "random": random_rows, "margin": margin, "typiclust": typiclust, "probcover": probcover, "dropquery": dropquery,
}  # fmt: skip


def held_out(session: Session, known: Floats, asked: Floats, truth: np.ndarray) -> float:
    """Return the accuracy on held-out images of the classifier that is fitted to the labels of a session."""
    targets, weights = session.ledger.targets, np.ones(len(known))
    best = session.chances.argmax(1)
    weights[targets < 0] = session.chances.max(1)[targets < 0]
    labels = np.where(targets >= 0, targets, best)
    present, places = np.unique(labels, return_inverse=True)
    names = tuple(session.names[place] for place in present)
    labelled = Labels(names=names)
    head = fit_discriminant(known, places, labelled, weights=weights).head
    classifier = bind(head, Precomputed(known.shape[1]), labelled)
    return float((np.array(names)[classifier.scores_of(head.embed(asked)).best] == truth).mean())


def show(  # noqa: PLR0913 - a row of a table
    how: str, seed: int, count: int, session: Session, truth: list[str], seconds: float, test: float
) -> None:
    """Print a row of the table."""
    rest = accuracy(session, truth, lambda one: one.ledger.targets == NO_LABEL)
    sure = [(one.label, name) for one, name in zip(session.labels(), truth, strict=True) if one.label]
    right = np.mean([label == name for label, name in sure]) if sure else float("nan")
    print(
        f"{how:10} seed {seed} actions {count:5} labels {len(session.names):4} pile {accuracy(session, truth):.3f} rest {rest:.3f} "
        f"held out {test:.3f} sure {len(sure):6} at {right:.3f} person's seconds {seconds:.0f}",
        flush=True,
    )


@dataclass(frozen=True, eq=False)
class Pile:
    """Photos without labels, their truth, and a third that is held out."""

    features: Floats
    truth: list[str]
    asked: Floats
    asked_truth: np.ndarray
    space: Space

    @classmethod
    def of(cls, name: str, seed: int) -> "Pile":
        """Divide a set."""
        features, labels = read(name)
        order = np.random.default_rng(seed).permutation(len(features))
        pile, test = order[: 2 * len(order) // 3], order[2 * len(order) // 3 :]
        space = make_space(features[pile])
        truth = [labels[row] for row in pile]
        return cls(features[pile], truth, features[test], np.array([labels[row] for row in test]), space)


def measure(name: str, budgets: tuple[int, ...], seed: int, options: argparse.Namespace) -> None:
    """Measure a set."""
    began = time.process_time()
    pile = Pile.of(name, seed)
    print(
        f"{name}: {len(pile.truth)} images, {len(set(pile.truth))} labels; {time.process_time() - began:.1f} s of the processor"
    )

    def test_of(session: Session) -> float:
        return held_out(session, pile.features, pile.asked, pile.asked_truth) if options.held_out else float("nan")

    for way in (way for way in options.how if way not in RIVALS):
        session, left = Session(pile.space, checks=options.checks, seed=seed), list(budgets)
        person = Person(pile.truth, mistakes=options.mistakes, seed=seed)
        for taken, seconds in simulate(session, person, sheets=way == "sheets", actions=budgets[-1]):
            while left and taken >= left[0]:
                left.pop(0)
                show(way, seed, taken, session, pile.truth, seconds, test_of(session))
    rows = root_features(pile.features) if pile.features.min() >= 0 else unit_rows(pile.features)
    for way in (way for way in options.how if way in RIVALS):
        for budget in budgets:
            chosen = RIVALS[way](np.asarray(rows, np.float32), budget, seed, space=pile.space, truth=pile.truth)
            session = Session(pile.space, checks=0)
            for row in chosen:
                session.name([row], pile.truth[row])
            show(way, seed, budget, session, pile.truth, 3.0 * budget, test_of(session))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--budgets", type=lambda word: tuple(map(int, word.split(","))))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--how", nargs="+", default=["ours", "sheets", *RIVALS])
    parser.add_argument("--mistakes", type=float, default=0.0)
    parser.add_argument("--checks", type=float, default=0.0)
    parser.add_argument("--held-out", action="store_true")
    options = parser.parse_args()
    for name in options.sets:
        for seed in options.seeds:
            measure(name, options.budgets or BUDGETS.get(name, (12, 30, 60, 120)), seed, options)


if __name__ == "__main__":
    main()
