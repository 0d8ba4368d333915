"""How wrong a mean is that is predicted from a label's vector, what of it counts, and what taking it off is worth.

    LABELWISE_DATA=FOLDER python benchmarks/izf_shares.py          # one CPU core, about ten minutes

Folds of the labels with training images of CUB and Flowers, each label held out once, in two draws; test images are not read. izf's closed form takes a fifth of the whole squared error off the distances to labels without images and adds 0.3 of its
covariance to that inside labels. It is compared with one that takes the whole error off, as far as it lies in the span of the other means, and adds nothing. Settings and gap of a fold are those that are best for the other folds of its draw. Writes
docs/results/measured/izf_shares.json and docs/pictures/izf_shares.png; results_pages.py makes the table of it.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.core.balance import BalanceCurve, balance_curve, best_of_all, seen_spread
from labelwise.data import load
from labelwise.fitting.zero_shot import plan_runs
from labelwise.methods import Izf
from labelwise.methods.izf.gaussian import GRID, PLAIN, Gaussians, GaussianSettings, kernel, variances
from labelwise.methods.izf.model import FlowModel
from labelwise.methods.shared.zero_shot import label_folds
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.train_data import TrainData
from labelwise_papers.reproduce.pictures import interval

SETS = {"CUB, attributes": "cub", "CUB, sentence vectors": "cub/sentences", "Flowers, sentence vectors": "flo"}
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
SHRINKS = (1.0, 3.0)  # of the grid; the others are seldom chosen
KINDS = ("two shares", "two shares, no gap", "inside", "inside, no gap")
DOCS = Path(__file__).parents[1] / "docs"
FILE = DOCS / "results" / "measured" / "izf_shares.json"
Curves = dict[str, dict[GaussianSettings, BalanceCurve]]


class LeftOut(NamedTuple):
    """The regression of means on vectors, each trained label left out as if it had no images."""

    inverse: Tensor  # [k, k]
    shares: Tensor  # of trained labels in each other [k, k]
    missed: Tensor  # times the means: what they are off by where a label is left out [k, k]
    unknown: Tensor  # the variances of labels left out [k]

    @classmethod
    def of(cls, vectors: Tensor, width: float, penalty: float) -> "LeftOut":
        """Return it for vectors ``[k, a]``; what a vector has and no other is dropped, as `centring.Flattening` does for labels without images."""
        likeness, unit = kernel(vectors, vectors, width), torch.eye(len(vectors)).to(vectors)
        inverse = torch.linalg.inv(likeness + penalty * unit)
        rest = normalize(vectors - alone(vectors @ vectors.T) @ vectors, dim=1, eps=1e-6)
        near = kernel(rest, vectors, width).fill_diagonal_(0)
        shares = near @ inverse
        shares = shares - (shares.diagonal() / inverse.diagonal())[:, None] * inverse
        return cls(inverse, likeness @ inverse, unit - shares, (1 - (shares * near).sum(1)).clamp_min(0))

    def surplus(self, products: Tensor, own: float, variance: Tensor) -> Tensor:
        """Return by how much squared distances to predicted means ``[m]`` are too large, by the variances of their labels.

        ``products [k, k]`` are scalar products of the means. Errors inside the span of the other means count: those of labels left out, less those of
        trained labels, which keep a share ``own`` of what their images say.
        """
        apart, stay = alone(products), (1 - own) * (torch.eye(len(products)).to(products) - self.shares)
        within = (off - off.diagonal()[:, None] * apart for off in (self.missed, stay))
        left, kept = (((off @ products) * off).sum(1) for off in within)
        away = self.unknown - self.unknown.mean()
        slope = ((away @ left) / away.square().sum()).clamp_min(0)
        return (left.mean() - kept.mean() + slope * (variance - self.unknown.mean())).clamp_min(0)


def alone(products: Tensor) -> Tensor:
    """Return what each of k points has that no affine combination of the others has, times the points ``[k, k]``, by their scalar products."""
    usual = products.diagonal().mean()
    inverse = torch.linalg.inv(products + usual * (1 + 1e-6 * torch.eye(len(products)).to(products)))
    shares: Tensor = inverse / inverse.diagonal()[:, None]
    return shares


def inside(
    solved: Gaussians, images: Tensor, vectors: Tensor, grid: tuple[GaussianSettings, ...], share: float = 1.0
) -> Iterator[tuple[GaussianSettings, Tensor]]:
    """Yield what ``Gaussians.scores`` does where the error inside the span, or a share of it, is taken off and nothing added."""
    rotated, k = (images.double() - solved.mean) @ solved.axes, len(solved.vectors)
    for shrink in dict.fromkeys(one.shrink for one in grid):
        scaled = solved.means / (solved.values + shrink * solved.values.mean())
        near, products = rotated @ scaled.T, solved.means @ scaled.T
        for width, penalty in dict.fromkeys(one[1:3] for one in grid):
            left, likeness = LeftOut.of(solved.vectors, width, penalty), kernel(vectors, solved.vectors, width)
            variance = variances(vectors, likeness, left.inverse, width)
            shares = likeness @ left.inverse
            for one in (one for one in grid if one[:3] == (shrink, width, penalty)):
                taken = share * left.surplus(products, one.own, variance)
                taken[:k] = 0
                mixed = torch.cat([torch.lerp(shares[:k], torch.eye(k).double(), one.own), shares[k:]])
                yield one, torch.addmm(0.5 * (taken - ((mixed @ products) * mixed).sum(1)), near, mixed.T)


class Fold:
    """A fold of labels, with features as images."""

    def __init__(self, data: TrainData, model: FlowModel) -> None:
        self.data, self.model, self.k = data, model, len(data.labels)
        self.seen = torch.arange(len(data.known)) < self.k
        self.gaussians = Gaussians.of(data.train.images, data.train.targets, torch.zeros(self.k, 1))

    def prepared(self, choice: GaussianSettings) -> tuple[Gaussians, Tensor]:
        """Return what is known of the trained labels, and the vectors of all, as a choice prepares them."""
        self.model.fit_vectors(self.data.labels, choice, None)
        vectors = self.model.vectors(self.data.known).double()
        return self.gaussians._replace(vectors=vectors[: self.k]), vectors

    def curve(self, scores: Tensor) -> BalanceCurve:
        """Return the accuracies for every gap, in units of the spread of scores."""
        return balance_curve(scores / seen_spread(scores, self.seen), self.data.val.targets, self.seen)

    def curves(self, grid: tuple[GaussianSettings, ...]) -> Curves:
        """Return the curves of both closed forms for every choice."""
        found: Curves = {"two shares": {}, "inside": {}}
        for prepared in dict.fromkeys(one[-2:] for one in grid):
            some = tuple(one for one in grid if one[-2:] == prepared)
            solved, vectors = self.prepared(some[0])
            for name, scores in (("two shares", Gaussians.scores), ("inside", inside)):
                found[name] |= {
                    one: self.curve(each) for one, each in scores(solved, self.data.val.images, vectors, some)
                }
        return found

    def shares(self, choice: GaussianSettings) -> list[BalanceCurve]:
        """Return the curves where shares of the error inside the span are taken off."""
        solved, vectors = self.prepared(choice)
        some = (inside(solved, self.data.val.images, vectors, (choice,), share) for share in SHARES)
        return [self.curve(scores) for each in some for _, scores in each]

    def errors(self, choice: GaussianSettings) -> list[float]:
        """Return the mean squared errors of predicted means, of labels left out and of labels held out: whole, and inside the span.

        The mean of a held-out label is that of its images; how it scatters is a part of all four.
        """
        solved, vectors = self.prepared(choice)
        scale = (solved.values + choice.shrink * solved.values.mean()).rsqrt()
        means, images = solved.means * scale, (self.data.val.images.double() - solved.mean) @ solved.axes * scale
        regression = LeftOut.of(solved.vectors, choice.width, choice.penalty)
        left = regression.missed @ means
        held = torch.stack([images[self.data.val.targets == i].mean(0) for i in range(self.k, len(vectors))])
        held -= kernel(vectors[self.k :], solved.vectors, choice.width) @ regression.inverse @ means
        squares = [left.square().sum(1).mean(), (_inside(left, means)).mean()]
        span = torch.linalg.svd(means, full_matrices=False)[2][: self.k - 1]
        squares += [held.square().sum(1).mean(), (held @ span.T).square().sum(1).mean()]
        return [float(each) for each in squares]


def _inside(errors: Tensor, means: Tensor) -> Tensor:
    """Return the squared errors ``[k]`` of labels left out inside the span of the other means, one label at a time."""
    found = []
    for i, off in enumerate(errors):
        others = torch.cat([means[:i], means[i + 1 :]])
        span = torch.linalg.qr((others - others.mean(0))[:-1].T)[0]
        found.append((off @ span).square().sum())
    return torch.stack(found)


def folds_of(name: str, seed: int) -> list[Fold]:
    """Return the folds of the labels that a data set has training images of."""
    trial = plan_runs(load(name), Izf(), seed).trial
    assert trial is not None
    model, _ = train(Izf(**PLAIN._asdict()), trial, Run(device="cpu"))
    assert isinstance(model, FlowModel)
    train_part, val = (replace(each, images=model.encode_features(each.images)) for each in (trial.train, trial.val))
    return [Fold(each, model) for each in label_folds(replace(trial, train=train_part, val=val))]


def harmonic(curve: BalanceCurve, gap: float) -> float:
    """Return H in per cent at a gap."""
    unseen, seen = curve.at(gap)
    return 100 * 2 * unseen * seen / (unseen + seen)


def compared(folds: list[dict[GaussianSettings, BalanceCurve]]) -> tuple[list[float], list[float]]:
    """Return H of each fold, with the gap and without any, where settings and gap are those best for the other folds."""
    with_gap, without = [], []
    for i, own in enumerate(folds):
        others = [each for j, each in enumerate(folds) if j != i]
        best = max(own, key=lambda one: sum(float(each[one].harmonic.max()) for each in others))
        with_gap.append(harmonic(own[best], best_of_all([each[best] for each in others])))
        without.append(harmonic(own[best], 0.0))
    return with_gap, without


def study(name: str) -> dict[str, Any]:
    """Return all figures of a data set."""
    grid = tuple(one for one in GRID if one.shrink in SHRINKS)
    figures: dict[str, Any] = {kind: [] for kind in KINDS}
    shares, errors = [], []
    for seed in (0, 1):
        folds = folds_of(name, seed)
        curves = [fold.curves(grid) for fold in folds]
        for kind in ("two shares", "inside"):
            with_gap, without = compared([each[kind] for each in curves])
            figures[kind] += with_gap
            figures[f"{kind}, no gap"] += without
        best = max(grid, key=lambda one: sum(float(each["inside"][one].harmonic.max()) for each in curves))
        shares += [fold.shares(best) for fold in folds]
        errors += [fold.errors(best) for fold in folds]
        print(name, seed, best, {kind: round(sum(figures[kind]) / len(figures[kind]), 2) for kind in KINDS}, flush=True)
    without = [sum(harmonic(fold[i], 0.0) for fold in shares) / len(shares) for i in range(len(SHARES))]
    with_best = [sum(100 * float(fold[i].harmonic.max()) for fold in shares) / len(shares) for i in range(len(SHARES))]
    means = torch.tensor(errors).mean(0).tolist()
    figures["errors"] = dict(zip(("left out", "left out, inside", "held out", "held out, inside"), means, strict=True))
    return {**figures, "harmonic": {"without": without, "best": with_best}}


def table() -> list[str]:
    """Return what was measured as lines of Markdown."""
    sets: dict[str, dict[str, Any]] = json.loads(FILE.read_text())["sets"]
    errors = [each["errors"] for each in sets.values()]
    ahead = [
        interval([a - b for a, b in zip(each["inside"], each["two shares"], strict=True)]) for each in sets.values()
    ]
    rows = {
        "squared error of the mean of a label left out": [f"{each['left out']:.1f}" for each in errors],
        "inside the span of the other means": [f"{each['left out, inside']:.1f}" for each in errors],
        "its share": [f"{each['left out, inside'] / each['left out']:.2f}" for each in errors],
        "of labels held out, inside the span": [f"{each['held out, inside']:.1f}" for each in errors],
        **{f"H, {kind}, %": [f"{_mean(each[kind]):.1f}" for each in sets.values()] for kind in KINDS},
        "inside minus two shares, fold by fold": [f"{mean:+.1f} +- {half:.1f}" for mean, half in ahead],
    }
    lines = [["", *sets], ["---"] * (1 + len(sets)), *([name, *cells] for name, cells in rows.items())]
    return [f"| {' | '.join(line)} |" for line in lines]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def draw(sets: dict[str, dict[str, Any]]) -> None:
    """Draw H over the share that is taken off."""
    picture = Figure(figsize=(6, 3.6), layout="constrained", facecolor="white")
    axes = picture.subplots()
    for (title, figures), colour in zip(sets.items(), ("#1a6fc9", "#c9711a", "#1a7f37"), strict=True):
        axes.plot(SHARES, figures["harmonic"]["without"], "o-", color=colour, markersize=3, label=title)
        axes.plot(SHARES, figures["harmonic"]["best"], "--", color=colour, linewidth=0.8)
    axes.axvline(1, color="#888888", linewidth=0.8)
    axes.set(xlabel="share of the error inside the span that is taken off", ylabel="H on held-out labels, %")
    axes.legend(frameon=False, fontsize=8, title="no gap (dashed: the best gap)", title_fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    picture.savefig(DOCS / "pictures" / "izf_shares.png", dpi=110)


def main() -> None:
    """Measure, write and draw."""
    torch.set_num_threads(1)
    sets = {title: study(name) for title, name in SETS.items()}
    rounded = json.loads(json.dumps(sets), parse_float=lambda text: round(float(text), 2))
    FILE.write_text(json.dumps({"shares": SHARES, "sets": rounded}, indent=1) + "\n")
    draw(sets)


if __name__ == "__main__":
    main()
