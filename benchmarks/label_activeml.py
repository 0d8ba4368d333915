"""Our short versions of published rules next to those of scikit-activeml: the same unit rows, batches and judge.

    python benchmarks/label_activeml.py photos/monkeys.npz --seeds 0 1 2

A third is held out. Both choose from the same pile; logistic regression on the answers is right in the share that is printed. Needs the extra bench.
"""

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from label import FEW, Pile, rooted
from label_rivals import RIVALS, SCALE, Task
from skactiveml.classifier import SklearnClassifier
from skactiveml.pool import DropQuery, ProbCover, RandomSampling, TypiClust, UncertaintySampling
from sklearn.linear_model import LogisticRegression


def theirs(how: str, task: Task, seed: int) -> list[int]:
    """Return the rows that a rule of scikit-activeml chooses, in batches."""
    names, targets = np.unique(list(task.truth), return_inverse=True)
    model = SklearnClassifier(LogisticRegression(max_iter=300), classes=np.arange(len(names)), random_state=seed)
    make: dict[str, Callable[[], Any]] = {
        "random": lambda: RandomSampling(random_state=seed),
        "margin, logistic": lambda: UncertaintySampling(method="margin_sampling", random_state=seed),
        "typiclust": lambda: TypiClust(random_state=seed),
        "probcover": lambda: ProbCover(n_classes=len(names), random_state=seed),
        "dropquery": lambda: DropQuery(random_state=seed),
    }
    rule, rows, known = make[how](), list[int](), np.full(len(targets), np.nan)
    for count in task.counts:
        asked = count - len(rows)
        if rows or how in ("random", "typiclust", "probcover"):
            needed = {"clf": model} if how in ("margin, logistic", "dropquery") else {}
            points = (
                SCALE * task.features if needed else task.features
            )  # logistic regression fits these as the judge does
            new = rule.query(points, known, batch_size=asked, **needed)
        elif how == "margin, logistic":
            new = np.random.default_rng(seed).permutation(len(targets))[:asked]
        else:  # as ours: a first batch of typical images
            new = make["typiclust"]().query(task.features, known, batch_size=asked)
        rows += [int(row) for row in new]
        known[rows] = targets[rows]
    return rows


def judged(rows: list[int], task: Task, pile: Pile) -> float:
    """Return the accuracy of logistic regression on these answers, on held-out images."""
    answers = np.array(task.truth)[rows]
    if len(set(answers)) < 2:
        return float((pile.asked_truth == answers[0]).mean())
    model = LogisticRegression(max_iter=300).fit(SCALE * task.features[rows], answers)
    return float((model.predict(SCALE * rooted(pile.asked)) == pile.asked_truth).mean())


def main() -> None:
    """Print a line for each set, rule and number of answers: mean over seeds of ours and theirs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in options.sets:
        piles = {seed: Pile.of(name, seed, hold_out=True) for seed in options.seeds}
        tasks = {
            seed: Task(features=rooted(pile.features), truth=pile.truth, space=pile.space, budgets=FEW, seed=seed)
            for seed, pile in piles.items()
        }
        for how, rule in ((how, rule) for how, rule in RIVALS.items() if how != "margin"):  # that asks our guesses
            chosen = {seed: (rule(task), theirs(how, task, seed)) for seed, task in tasks.items()}
            for count in FEW:
                ours, other = (
                    np.mean([100 * judged(chosen[seed][who][:count], tasks[seed], piles[seed]) for seed in piles])
                    for who in (0, 1)
                )
                print(f"{name} {how:9} {count:4} answers: ours {ours:.1f}, scikit-activeml {other:.1f}", flush=True)


if __name__ == "__main__":
    main()
