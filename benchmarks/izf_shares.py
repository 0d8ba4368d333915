"""How much of the error of a predicted mean is to be taken off: H on held-out labels without any gap, for shares from 0 to 1.

    LABELWISE_DATA=FOLDER python benchmarks/izf_shares.py          # CPU, about a minute and a half

Folds of the labels with training images of CUB and Flowers, each label held out once; test images are not read. Writes docs/results/measured/izf_shares.json and
docs/pictures/izf_shares.png.
"""

import json
from dataclasses import replace
from pathlib import Path

import torch
from matplotlib.figure import Figure

from labelwise.data import load
from labelwise.fitting.zero_shot import plan_runs
from labelwise.methods import Izf
from labelwise.methods.shared import gaussian
from labelwise.methods.shared.izf_model import FlowModel
from labelwise.methods.shared.zero_shot import label_folds
from labelwise.ops.balance import balance_curve
from labelwise.training.loop import train
from labelwise.training.stages import Run

SETS = {"CUB, attributes": "cub", "CUB, sentence vectors": "cub/sentences", "Flowers, sentence vectors": "flo"}
SHARES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0)
DOCS = Path(__file__).parents[1] / "docs"


def study(name: str) -> dict[str, list[float]]:
    """Return H in per cent for every share, with no gap and with the best one, the mean over folds."""
    trial = plan_runs(load(name), Izf(), 0).trial
    assert trial is not None
    model, _ = train(Izf(), trial, Run(device="cpu"))
    assert isinstance(model, FlowModel)
    assert model.solution is not None
    train_part, val = (replace(each, images=model.encode_features(each.images)) for each in (trial.train, trial.val))
    sums = {"without": torch.zeros(len(SHARES)), "best": torch.zeros(len(SHARES))}
    folds = list(label_folds(replace(trial, train=train_part, val=val)))
    for fold in folds:
        model.fit_vectors(fold.labels, model.solution, None)
        solved = gaussian.Gaussians.of(fold.train.images, fold.train.targets, model.vectors(fold.labels))
        seen = torch.arange(len(fold.known)) < len(fold.labels)
        ends = []
        for gaussian.TAKEN_OFF in (0.0, 1.0):  # scores are linear in it
            ((_, scores),) = solved.scores(fold.val.images, model.vectors(fold.known), (model.solution,))
            ends.append(scores)
        for i, share in enumerate(SHARES):
            curve = balance_curve(torch.lerp(ends[0], ends[1], share), fold.val.targets, seen)
            u, s = curve.at(0.0)
            sums["without"][i] += 2 * u * s / (u + s) / len(folds)
            sums["best"][i] += curve.harmonic.max() / len(folds)
    return {kind: [round(100 * float(each), 2) for each in values] for kind, values in sums.items()}


def main() -> None:
    """Measure, write and draw."""
    torch.set_num_threads(1)
    figures = {title: study(name) for title, name in SETS.items()}
    (DOCS / "results" / "measured" / "izf_shares.json").write_text(
        json.dumps({"shares": SHARES, "harmonic": figures}, indent=1) + "\n"
    )
    picture = Figure(figsize=(6, 3.6), layout="constrained", facecolor="white")
    axes = picture.subplots()
    for (title, rows), colour in zip(figures.items(), ("#1a6fc9", "#c9711a", "#1a7f37"), strict=True):
        axes.plot(SHARES, rows["without"], "o-", color=colour, markersize=3, label=title)
        axes.plot(SHARES, rows["best"], "--", color=colour, linewidth=0.8)
    axes.axvline(0.2, color="#888888", linewidth=0.8)
    axes.set(xlabel="share of the squared error taken off", ylabel="H on held-out labels, %")
    axes.legend(frameon=False, fontsize=8, title="no gap (dashed: the best gap)", title_fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    picture.savefig(DOCS / "pictures" / "izf_shares.png", dpi=110)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
