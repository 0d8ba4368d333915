"""Wrong labels found with 5 % flipped: precision at the number of flips, by leave-one-out and by cleanlab's rule on the same probabilities; the package cleanlab, too, where it is installed (extra bench).

    python benchmarks/audit.py flo trash monkeys --seeds 0 1 2

cleanlab's rule: Northcutt, Jiang, Chuang, "Confident learning", JAIR 70 (2021): images that the confident joint puts off the diagonal first
(each label's threshold is its mean probability of its own images), ranked by normalised margin; the other images follow by the same margin.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
from label import read

from labelwise.core.classifier import bind
from labelwise.encoders.encoder import Precomputed
from labelwise.fitting.closed_form import solve
from labelwise.fitting.estimate import calibrate_by_leave_one_out, left_out_scores
from labelwise.images.dataset import Split
from labelwise.images.describe.labels import Labels
from labelwise.images.images import FeatureRows
from labelwise.label.space import Floats, Ints
from labelwise.methods.discriminant.method import Discriminant

FLIPPED, SHOWN = 0.05, 0.1


def left_out(features: Floats, targets: Ints, names: tuple[str, ...]) -> tuple[Floats, Ints]:
    """Return the probabilities of images by leave-one-out ``[m, k]``, and which images these are: as ``suspects`` computes them."""
    labels = Labels(names=names)
    split = Split(images=FeatureRows(features), targets=targets)
    fitted, wish = solve(features, split, labels, Discriminant())
    embeddings = fitted.head.embed(features)
    bound = bind(fitted.head, Precomputed(features.shape[1]), replace(labels, shares=None))
    classifier = calibrate_by_leave_one_out(bound, fitted, split, embeddings, wish)
    left = fitted.leave_one_out()
    return left_out_scores(classifier, embeddings, left).probabilities[left.usable], left.rows[left.usable]


def own_label(chances: Floats, own: Ints) -> Floats:
    """Return how doubtful each label is: one less its probability, as ``suspects`` ranks."""
    return np.asarray(1 - chances[np.arange(len(own)), own])


def other_label(chances: Floats, own: Ints) -> Floats:
    """Return how doubtful each label is: the probability of the best other label."""
    other = chances.copy()
    other[np.arange(len(own)), own] = 0
    return np.asarray(other.max(1))


def margin(chances: Floats, own: Ints) -> Floats:
    """Return how doubtful each label is: the probability of the best other label less its own."""
    return np.asarray(other_label(chances, own) - chances[np.arange(len(own)), own])


def confident(chances: Floats, own: Ints) -> Floats:
    """Return how doubtful each label is by confident learning."""
    here = np.arange(len(own))
    limits = np.array(
        [chances[own == label, label].mean() if (own == label).any() else 2 for label in range(chances.shape[1])]
    )
    over = np.where(chances >= limits, chances, -1)
    wrong = (over.max(1) >= 0) & (over.argmax(1) != own)
    other = chances.copy()
    other[here, own] = 0
    return np.asarray(other.max(1) - chances[here, own] + 10 * wrong)


def cleanlab(chances: Floats, own: Ints) -> Floats:
    """Return how doubtful each label is by the package cleanlab: the order of ``find_label_issues``, then by normalised margin."""
    from cleanlab.filter import find_label_issues  # of the extra bench
    from cleanlab.rank import get_label_quality_scores

    shares = chances / chances.sum(1, keepdims=True)
    issues = find_label_issues(own, shares, return_indices_ranked_by="normalized_margin", n_jobs=1)
    doubt = 1 - get_label_quality_scores(own, shares, method="normalized_margin")
    doubt[issues] += 2
    return np.asarray(doubt)


RULES: tuple[tuple[str, Callable[[Floats, Ints], Floats]], ...] = (
    ("own label", own_label),
    ("other label", other_label),
    ("margin", margin),
    ("confident learning", confident),
)
if find_spec("cleanlab"):
    RULES += (("cleanlab", cleanlab),)


def main() -> None:
    """Print a row for each set and seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    for name in options.sets:
        features, words = read(name)
        names, truth = np.unique(words, return_inverse=True)
        for seed in options.seeds:
            generator, targets = np.random.default_rng(seed), truth.copy()
            flipped = generator.permutation(len(truth))[: round(FLIPPED * len(truth))]
            targets[flipped] = (targets[flipped] + generator.integers(1, len(names), len(flipped))) % len(names)
            chances, rows = left_out(features, targets, tuple(map(str, names)))
            wrong = np.isin(rows, flipped)
            for how, rule in RULES:
                order = (-rule(chances, targets[rows])).argsort(kind="stable")
                first, tenth = (
                    wrong[order[: len(flipped)]].mean(),
                    wrong[order[: round(SHOWN * len(truth))]].sum() / len(flipped),
                )
                print(
                    f"{name} seed {seed} {how:18} precision at {len(flipped)} flips {first:.3f}, of the flips in the first 10 % {tenth:.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
