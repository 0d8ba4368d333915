"""Published rules for which images to ask about, each short: all get unit rows of features, and choose in batches.

Random. Margin: Scheffer et al., 2001, with our own guesses as the model, and with logistic regression. TypiClust: Hacohen et al., ICML 2022. ProbCover: Yehuda et al., NeurIPS
2022. DropQuery: Gupte et al., TMLR 2024. A rule returns rows in the order of the questions, so that its first n rows are what it asks with n answers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression

from labelwise.label.session import Session
from labelwise.label.space import Floats, Ints, Space
from labelwise.support.rows import unit_rows

BATCHES = 10  # of which the largest budget is made, at least
SCALE = 10.0  # of unit rows, for logistic regression
TYPICAL = 20  # neighbours whose mean distance says how typical an image is
ROUNDS = 100  # of k-means at most
SAMPLE = 2_000  # images that the radius of ProbCover is found on
DROPPED, TIMES = 0.75, 3  # share of numbers that DropQuery drops, and how often


@dataclass(frozen=True, eq=False, kw_only=True)
class Task:
    """What a rule is given: it reads the label of an image only after it has chosen it."""

    features: Floats  # unit rows [n, d]
    truth: Sequence[str]
    space: Space
    budgets: tuple[int, ...]
    seed: int

    @property
    def counts(self) -> list[int]:
        """Numbers of answers at the end of each batch."""
        return sorted({*np.linspace(0, self.budgets[-1], BATCHES + 1).astype(int)[1:].tolist(), *self.budgets})


def random_rows(task: Task) -> list[int]:
    """Return rows drawn at random."""
    return list(np.random.default_rng(task.seed).permutation(len(task.features))[: task.budgets[-1]].tolist())


def typiclust(task: Task, counts: Sequence[int] = ()) -> list[int]:
    """Return the most typical image of the largest groups without an answer; as many groups as answers after each batch.

    How typical an image is, its neighbours in its own group say, as in the code of the paper.
    """
    chosen = list[int]()
    for count in counts or task.counts:
        groups = k_means(task.features, count, task.seed)
        while len(chosen) < count:
            free = ~np.isin(groups, groups[chosen]) if chosen else np.ones(len(groups), bool)
            free = free if free.any() else np.ones(len(groups), bool)
            free[chosen] = False
            rows = np.flatnonzero(groups == np.bincount(groups[free]).argmax())
            near = max(1, min(TYPICAL, len(rows) // 2))
            squares = np.maximum(2 - 2 * task.features[rows] @ task.features[rows].T, 0)
            far = np.sqrt(np.sort(squares, 1)[:, 1 : near + 1]).sum(1) if len(rows) > 1 else np.zeros(1)
            chosen.append(int(rows[np.where(free[rows], far, np.inf).argmin()]))
    return chosen


def probcover(task: Task) -> list[int]:
    """Return rows whose balls cover most images that none covers yet; the radius is the largest at which 95 % of balls hold one group of k-means."""
    features = task.features
    points = features[np.random.default_rng(task.seed).permutation(len(features))[:SAMPLE]]
    groups = k_means(points, len(set(task.truth)), task.seed)  # as in the paper: it knows the number of labels
    products, pure = points @ points.T, groups[:, None] == groups
    limit = next((r for r in np.linspace(0.2, 0.98, 40) if (~((products >= r) & ~pure).any(1)).mean() >= 0.95), 0.98)
    covers = [np.flatnonzero(features @ row >= limit) for row in features]
    left, chosen = np.ones(len(features), bool), list[int]()
    sizes = np.array([len(one) for one in covers])
    while len(chosen) < task.budgets[-1]:
        sizes[chosen] = -1
        best = int(sizes.argmax())
        chosen.append(best)
        for row in covers[best][left[covers[best]]]:
            sizes[covers[row]] -= 1
            left[row] = False
    return chosen


def margin(task: Task) -> list[int]:
    """Return the rows with the least margin between two labels, after a first batch at random."""
    session, counts = Session(task.space, checks=0), task.counts
    chosen = random_rows(task)[: counts[0]]
    for row in chosen:
        session.name([row], task.truth[row])
    for count in counts[1:]:
        order = np.sort(session.chances, 1)
        gap = order[:, -1] - order[:, -2] if order.shape[1] > 1 else order[:, -1]
        gap[chosen] = np.inf
        for row in gap.argsort(kind="stable")[: count - len(chosen)].tolist():
            session.name([row], task.truth[row])
            chosen.append(row)
    return chosen


def margin_logistic(task: Task) -> list[int]:
    """Return the rows with the least margin of logistic regression on the answers, after a first batch at random."""
    truth, counts = np.array(task.truth), task.counts
    chosen = random_rows(task)[: counts[0]]
    for count in counts[1:]:
        if len(set(truth[chosen])) > 1:
            model = LogisticRegression(max_iter=300).fit(SCALE * task.features[chosen], truth[chosen])
            order = np.sort(model.predict_proba(SCALE * task.features), 1)
            gap = order[:, -1] - order[:, -2]
        else:
            gap = np.random.default_rng(task.seed).random(len(truth))
        gap[chosen] = np.inf
        chosen += gap.argsort(kind="stable")[: count - len(chosen)].tolist()
    return chosen


def dropquery(task: Task) -> list[int]:
    """Return rows whose guess changes where features are dropped, one of each of as many groups; a first batch of typical ones.

    The guess is the nearest mean of labels.
    """
    generator, features, counts = np.random.default_rng(task.seed), task.features, task.counts
    chosen = typiclust(task, counts[:1])
    for count in counts[1:]:
        answered = np.array([task.truth[row] for row in chosen])
        names = np.unique(answered)
        means = unit_rows(np.stack([features[chosen][answered == name].mean(0) for name in names])).T
        best = (features @ means).argmax(1)
        dropped = [((features * (generator.random(features.shape) > DROPPED)) @ means).argmax(1) for _ in range(TIMES)]
        unsure = np.flatnonzero(sum((one != best).astype(int) for one in dropped) > TIMES // 2)
        unsure = unsure[~np.isin(unsure, chosen)]
        free, wanted = np.setdiff1d(np.arange(len(features)), [*chosen, *unsure]), count - len(chosen)
        rows = unsure if len(unsure) >= wanted else np.concatenate([unsure, free[: wanted - len(unsure)]])
        groups = k_means(features[rows], wanted, task.seed)
        centres = np.stack([features[rows][groups == group].mean(0) for group in np.unique(groups)])
        picks = dict.fromkeys(rows[(features[rows] @ unit_rows(centres).T).argmax(0)].tolist())
        spare = (row for row in rows.tolist() if row not in picks)
        chosen += [*picks, *(next(spare) for _ in range(wanted - len(picks)))]
    return chosen


def k_means(features: Floats, count: int, seed: int) -> Ints:
    """Return groups of k-means on unit rows, one start."""
    model = KMeans(count, n_init=1, random_state=seed, max_iter=ROUNDS)
    return np.asarray(model.fit_predict(features), np.int64)


RIVALS: dict[str, Callable[[Task], list[int]]] = {
    "random": random_rows, "margin": margin, "margin, logistic": margin_logistic, "typiclust": typiclust, "probcover": probcover, "dropquery": dropquery,
}  # fmt: skip
