"""Answers against accuracy: sessions with a simulated person, compared with published rules of choice, and what a session says of itself.

    python benchmarks/label.py table flo cub photos/trash --keep label.jsonl
    python benchmarks/label.py sessions photos/trash --mistakes 0.1 --keep sessions.jsonl

A set is flo or cub (ResNet-50 features below LABELWISE_DATA), an .npz of features (features, labels, classes), or what ``fit`` reads. For
``table`` a third is held out; the others are the pile of photos. Each line of the file is one cell: what was measured already is not measured again.

``table``, each figure for the answers of each rule: "rest" is the share of images without an answer that our guesses get right, "fitted" the
accuracy on held-out images of the classifier that ``fit`` makes of answers and guesses, and "logistic" that of logistic regression on
the answers alone. So "logistic" compares questions only; "rest" and "fitted" compare them with our guesses.

``sessions``: one question of ten drawn at random; how many images have a label, how many of these are right, and what the session says. ``promise``: how often guesses that count
as labels are right as often as promised. ``curve``: images that have a label for each action, and how many labels are right, for each least
probability of a guess. ``refit``: milliseconds of processor time from an answer to the next question.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from label_rivals import RIVALS, SCALE, Task
from sklearn.linear_model import LogisticRegression

from labelwise.core.arrays import root_features
from labelwise.core.classifier import bind
from labelwise.encoders.encode import encode
from labelwise.encoders.encoder import Precomputed
from labelwise.encoders.registry import open_encoder
from labelwise.images.catalogue import load
from labelwise.images.describe.labels import Labels
from labelwise.images.split.divide import pool
from labelwise.label.ledger import NO_LABEL
from labelwise.label.person import Person, accuracy, simulate
from labelwise.label.progress import sure_share
from labelwise.label.session import PRECISION, Session
from labelwise.label.space import Floats, Space, make_space
from labelwise.methods.discriminant.fit import fit_discriminant, with_second_opinion
from labelwise.support.rows import unit_rows

ROOT = Path(os.environ.get("LABELWISE_DATA", "data"))
BUDGETS = {"flo": (102, 204, 510), "cub": (200, 400, 1000), "pets": (37, 74, 185), "cifar100": (100, 200, 500)}
FEW = (12, 30, 60, 120)
ONE_BY_ONE, SHEETS = "ours", "ours, sheets"
DRAWN, DRAWS = (24, 45, 60, 120, 240), 500  # random images that say which guesses count, and how often these are drawn
LIMITS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # least probabilities of guesses that count as labels
REPEATS = 20  # answers that a refit is timed on
Figures = dict[str, Any]


def read(name: str) -> tuple[Floats, list[str]]:
    """Return features ``[n, d]`` and labels of a set."""
    if name in ("flo", "cub"):
        pack = np.load(ROOT / f"{name}_res50.npz")
        return pack["q"].astype(np.float32) * pack["scale"], [str(label) for label in pack["labels"]]
    if name.endswith(".npz"):
        pack = np.load(name)
        scale = pack.get("scale", 1)
        return pack["features"].astype(np.float32) * scale, [str(pack["classes"][label]) for label in pack["labels"]]
    data = load(name)
    whole = pool(data)
    features = encode(open_encoder(), whole.images)
    words = whole.words(data.labels.names)
    return features.values, [words[row] for row in features.rows]


@dataclass(frozen=True, eq=False)
class Pile:
    """Photos without labels, their truth, and others that are held out."""

    features: Floats
    truth: list[str]
    asked: Floats
    asked_truth: np.ndarray
    space: Space

    @classmethod
    def of(cls, name: str, seed: int, *, hold_out: bool) -> "Pile":
        """Divide a set, or shuffle it whole."""
        features, labels = read(name)
        order = np.random.default_rng(seed).permutation(len(features))
        pile, test = np.split(order, [2 * len(order) // 3 if hold_out else len(order)])
        truth = [labels[row] for row in pile]
        asked = np.array([labels[row] for row in test])
        return cls(features[pile], truth, features[test], asked, make_space(features[pile]))


def fitted(session: Session, pile: Pile) -> float:
    """Return the accuracy on held-out images of the classifier that is fitted to the labels of a session, guesses weighed by probability."""
    targets, weights = session.ledger.targets, np.ones(len(pile.features))
    best = session.chances.argmax(1)
    weights[targets < 0] = session.chances.max(1)[targets < 0]
    labels = np.where(targets >= 0, targets, best)
    present, places = np.unique(labels, return_inverse=True)
    names = tuple(session.names[place] for place in present)
    if len(names) < 2:
        return float((pile.asked_truth == names[0]).mean())
    labelled = Labels(names=names)
    head = with_second_opinion(fit_discriminant(pile.features, places, labelled, weights=weights)).head
    classifier = bind(head, Precomputed(pile.features.shape[1]), labelled)
    return float((np.array(names)[classifier.scores_of(head.embed(pile.asked)).best] == pile.asked_truth).mean())


def logistic(session: Session, pile: Pile) -> float:
    """Return the accuracy on held-out images of logistic regression on the answers alone."""
    rows = np.flatnonzero(session.ledger.targets >= 0)
    names = np.array(session.names)[session.ledger.targets[rows]]
    if len(set(names)) < 2:
        return float((pile.asked_truth == names[0]).mean())
    model = LogisticRegression(max_iter=300).fit(SCALE * rooted(pile.features[rows]), names)
    return float((model.predict(SCALE * rooted(pile.asked)) == pile.asked_truth).mean())


def rooted(features: Floats) -> Floats:
    """Return unit rows, of roots where no feature has a sign."""
    return np.asarray(root_features(features) if features.min() >= 0 else unit_rows(features), np.float32)


def table(pile: Pile, seed: int, budgets: tuple[int, ...], options: argparse.Namespace) -> Iterator[Figures]:
    """Yield what each rule of choice reaches with each number of answers."""

    def line(how: str, answers: int, session: Session, seconds: float) -> Figures:
        rest = accuracy(session, pile.truth, lambda one: one.ledger.targets == NO_LABEL)
        every = accuracy(session, pile.truth)
        return {
            "how": how, "answers": answers, "seconds": round(seconds), "labels": len(session.names), "pile": every, "rest": rest,
            "fitted": fitted(session, pile), "logistic": logistic(session, pile),
        }  # fmt: skip

    for way in (one for one in (ONE_BY_ONE, SHEETS) if one in options.how):
        session, person = Session(pile.space, checks=0, seed=seed), Person(pile.truth, seed=seed)
        for taken, seconds, answers in reached(session, person, budgets, sheets=way == SHEETS):
            yield {**line(way, answers, session, seconds), "taken": taken}
    given = Task(features=rooted(pile.features), truth=pile.truth, space=pile.space, budgets=budgets, seed=seed)
    for way in (one for one in RIVALS if one in options.how):
        began = time.process_time()
        chosen, session = RIVALS[way](given), Session(pile.space, checks=0)
        spent = time.process_time() - began
        for before, count in zip((0, *budgets), budgets, strict=False):
            for row in chosen[before:count]:
                session.name([row], pile.truth[row])
            yield {**line(way, count, session, 3.0 * count), "cpu": round(spent, 1)}


def reached(
    session: Session, person: Person, counts: tuple[int, ...], *, sheets: bool
) -> Iterator[tuple[int, float, int]]:
    """Yield actions taken, seconds, and the number of actions wanted, whenever a session has reached one of these numbers."""
    left = list(counts)
    for taken, seconds in simulate(session, person, sheets=sheets, actions=counts[-1]):
        while left and taken >= left[0]:
            yield taken, seconds, left.pop(0)


def sessions(pile: Pile, seed: int, budgets: tuple[int, ...], options: argparse.Namespace) -> Iterator[Figures]:
    """Yield what sessions with sheets and random questions reach, and what they say of themselves."""
    for mistakes in options.mistakes:
        session, person = Session(pile.space, seed=seed), Person(pile.truth, mistakes=mistakes, seed=seed)
        for taken, seconds, actions in reached(session, person, budgets, sheets=True):
            yield {
                "how": "session",
                "mistakes": mistakes,
                "answers": actions,
                "taken": taken,
                **said(session, pile, seconds),
            }


def said(session: Session, pile: Pile, seconds: float) -> Figures:
    """Return what a session says of itself, and what is true."""
    progress, listed = session.progress(), session.labels()
    free = session.ledger.targets == NO_LABEL
    true = accuracy(session, pile.truth, lambda one: one.ledger.targets == NO_LABEL) if free.any() else 1.0
    right = {
        source: [
            one.label == name
            for one, name in zip(listed, pile.truth, strict=True)
            if one.source == source and one.label
        ]
        for source in ("person", "guess")
    }
    forms: dict[str, int] = {}
    for action in session.actions:
        forms[action.form] = forms.get(action.form, 0) + 1
    return {
        "seconds": round(seconds), "images": len(session), "person": len(right["person"]), "person_right": sum(right["person"]),
        "guess": len(right["guess"]), "guess_right": sum(right["guess"]), "checks": progress.checks, "told": progress.accuracy,
        "true": true, "inside": progress.low <= true <= progress.high, "forms": forms,
    }  # fmt: skip


def promise(pile: Pile, seed: int, budgets: tuple[int, ...], _: argparse.Namespace) -> Iterator[Figures]:
    """Yield, after a session, how many guesses count by random images drawn again and again, and how many of these are right."""
    session, generator = Session(pile.space, checks=0, seed=seed), np.random.default_rng(seed)
    for _taken in simulate(session, Person(pile.truth, seed=seed), actions=budgets[-1]):
        pass
    free = np.flatnonzero(session.ledger.targets == NO_LABEL)
    tops = session.chances[free].max(1)
    right = np.array(session.names)[session.chances[free].argmax(1)] == np.array(pile.truth)[free]
    for checks in (count for count in DRAWN if count < len(free)):
        precision, shares = list[float](), list[float]()
        for _draw in range(DRAWS):
            rows = generator.permutation(len(free))[:checks]
            limit, _missing = sure_share(tops[rows], right[rows], tops, PRECISION)
            if limit <= 1:
                precision.append(float(right[tops >= limit].mean()))
            shares.append(float((tops >= limit).mean()))
        kept = np.array(precision)
        yield {
            "how": "promise", "answers": budgets[-1], "checks": checks, "right": float(right.mean()), "runs": DRAWS, "count": len(kept),
            "share": float(np.mean(shares)), "precision": float(kept.mean()) if len(kept) else None,
            "held": int((kept >= PRECISION).sum()),
        }  # fmt: skip


def curve(pile: Pile, seed: int, budgets: tuple[int, ...], _: argparse.Namespace) -> Iterator[Figures]:
    """Yield images that have a label for each action, and how many of these labels are right, for each least probability of a guess."""
    session, person, truth = Session(pile.space, seed=seed), Person(pile.truth, seed=seed), np.array(pile.truth)
    for taken, _seconds, actions in reached(session, person, budgets, sheets=True):
        for limit in LIMITS:
            labels = np.array([one.label for one in session.labels(min_probability=limit)])
            some = labels != ""
            right = float((labels[some] == truth[some]).mean())
            yield {
                "how": "curve",
                "answers": actions,
                "limit": limit,
                "each": float(some.sum() / taken),
                "right": right,
            }


def refit(pile: Pile, seed: int, budgets: tuple[int, ...], _: argparse.Namespace) -> Iterator[Figures]:
    """Yield the processor time from an answer to the next question, for each number of answers."""
    session = Session(pile.space, checks=0, seed=seed)
    rows = np.random.default_rng(seed).permutation(len(pile.truth)).tolist()
    for answers in budgets:
        taken = list[float]()
        while len(session.actions) < answers + REPEATS:
            row = rows[len(session.actions)]
            began = time.process_time()
            session.name([row], pile.truth[row])
            session.question(sheets=False)
            taken.append(1000 * (time.process_time() - began))
        yield {
            "how": "refit", "answers": answers, "images": len(session), "labels": len(session.names), "median_ms": float(np.median(taken[-REPEATS:])),
            "most_ms": max(taken[-REPEATS:]),
        }  # fmt: skip


VERBS: dict[str, Callable[..., Iterator[Figures]]] = {
    "table": table, "sessions": sessions, "promise": promise, "curve": curve, "refit": refit,
}  # fmt: skip


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=tuple(VERBS))
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--budgets", type=lambda word: tuple(map(int, word.split(","))))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--how", nargs="+", default=[ONE_BY_ONE, SHEETS, *RIVALS])
    parser.add_argument("--mistakes", type=float, nargs="+", default=[0.0])
    parser.add_argument("--keep", type=Path, help="file of lines, one for each cell")
    options = parser.parse_args()
    known = options.keep.read_text().splitlines() if options.keep and options.keep.exists() else []
    done = [line["done"] for line in map(json.loads, known) if "done" in line]
    for name in options.sets:
        stem = Path(name).stem
        budgets = options.budgets or BUDGETS.get(stem.partition("-")[0], FEW)
        for seed in (seed for seed in options.seeds if [options.what, stem, seed, options.how] not in done):
            for figures in VERBS[options.what](
                Pile.of(name, seed, hold_out=options.what == "table"), seed, budgets, options
            ):
                show({"what": options.what, "set": stem, "seed": seed, **figures}, options.keep)
            if options.keep:
                show({"done": [options.what, stem, seed, options.how]}, options.keep)


def show(figures: Figures, file: Path | None) -> None:
    """Print a line, and keep it."""
    line = json.dumps(
        {key: round(value, 4) if isinstance(value, float) else value for key, value in figures.items()}, default=bool
    )
    print(line, flush=True)
    if file:
        with file.open("a") as stream:
            stream.write(line + "\n")


if __name__ == "__main__":
    main()
