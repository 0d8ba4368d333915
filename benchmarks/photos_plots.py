"""The pictures of ``photos_tables.py``: accuracy against pictures a label, on average and set by set."""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Curves = Mapping[str, Mapping[int, float | None]]  # of each rival: accuracy by pictures a label, 0 is all
COLOURS = {
    "labelwise": "#d1495b",
    "version 0.1": "#8d6a9f",
    "logistic regression": "#00798c",
    "logistic regression, scaled": "#4fb0c6",
    "logistic regression, tuned": "#003d5b",
    "nearest mean": "#edae49",
    "nearest neighbours": "#9a9a9a",
}


def draw_mean(sets: Mapping[str, Curves], file: Path) -> None:
    """Draw the mean over sets, where all of them were measured."""
    first = next(iter(sets.values()))
    means: dict[str, dict[int, float | None]] = {}
    for rival, curve in first.items():
        values = {shots: [curves[rival].get(shots) for curves in sets.values()] for shots in curve}
        means[rival] = {s: None if None in row else fmean(v for v in row if v is not None) for s, row in values.items()}
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    _draw(axes, means)
    axes.set_xlabel("training pictures a label")
    axes.set_ylabel("accuracy, %")
    axes.legend(fontsize=8, frameon=False)
    axes.set_title(f"Mean over {len(sets)} sets", fontsize=10)
    _save(figure, file)


def draw_sets(sets: Mapping[str, Curves], file: Path) -> None:
    """Draw each set by itself."""
    columns = min(3, len(sets))
    rows = -(-len(sets) // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(3.2 * columns, 2.4 * rows + 0.6), layout="constrained", squeeze=False
    )
    for axes in grid.flat[len(sets) :]:
        axes.set_axis_off()
    for axes, (name, curves) in zip(grid.flat, sets.items(), strict=False):
        _draw(axes, curves)
        axes.set_title(name, fontsize=9)
    handles, names = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    _save(figure, file)


def _draw(axes: Axes, curves: Curves) -> None:
    """Draw one line a rival; equal steps from each number of pictures to the next."""
    order = list(dict.fromkeys(shots for curve in curves.values() for shots in curve))
    for rival, curve in reversed(list(curves.items())):
        points = [(order.index(shots), 100 * value) for shots, value in curve.items() if value is not None]
        lead = rival == "labelwise"
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(
                x,
                y,
                "o-",
                color=COLOURS.get(rival),
                label=rival,
                markersize=4 if lead else 2,
                linewidth=2.4 if lead else 1.1,
            )
    axes.set_xticks(range(len(order)), [str(shots or "all") for shots in order])
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _save(figure: Figure, file: Path) -> None:
    figure.savefig(file, dpi=110)
    plt.close(figure)
