"""Pictures of what ``zero_shot.py`` measured: figures 2 to 4 of the CLAREL paper in our form, and seen over unseen accuracy.

    python benchmarks/zero_shot_figures.py results.jsonl [more.jsonl ...] [--out docs/pictures]

``clarel_alpha.png``, ``clarel_lambda.png`` and ``clarel_kappa.png`` show the harmonic mean H on test images against alpha (the
gap), lambda (``--sweep share=...``) and kappa (``--sweep class_weight=...``), and ``zero_shot_curves.png`` the accuracies of
all methods for every gap, one panel for each set of data. Means over repeats with 95 % intervals. A picture with nothing to
show is left out. Alpha and the curves are drawn for the default lambda and kappa alone. Where a repeat does not reach an
unseen accuracy, its seen accuracy counts as 0.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from zero_shot import UNSEEN, Entry, canonical, changed, grouped, interval, read_cells

from labelwise.errors import LabelwiseError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SWEPT = {"share": "lambda", "class_weight": "kappa"}
ENDS = {
    "share": "0: the image of a text is to be found, 1: the text of an image",
    "class_weight": "0: retrieval alone, 1: labels alone",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Line:
    """Means over repeats, in per cent, with half their 95 % intervals (NaN for one repeat).

    Attributes:
        name: for the legend.
        x: where they lie ``[m]``.
        mean: ``[m]``.
        half: ``[m]``.
        point: what was chosen without test images, as x and y; None is nothing to mark.
    """

    name: str
    x: Sequence[float]
    mean: Sequence[float]
    half: Sequence[float]
    point: tuple[float, float] | None = None


def line(name: str, x: Sequence[float], values: Sequence[Sequence[float]], point: Sequence[Sequence[float]]) -> Line:
    """Return the line through the means of ``values [m][repeats]``; ``point`` holds x and y of each repeat, or nothing."""
    found = [interval([100 * value for value in column]) for column in values]
    mark = (float(np.mean(point[0])), 100 * float(np.mean(point[1]))) if point else None
    return Line(name=name, x=x, mean=[mean for mean, _ in found], half=[half for _, half in found], point=mark)


def usual(cells: Sequence[Entry]) -> list[Entry]:
    """Return the cells whose lambda and kappa are the defaults."""
    return [cell for cell in cells if not SWEPT.keys() & changed(cell).keys()]


def alpha_lines(cells: Sequence[Entry]) -> list[Line]:
    """Return H against alpha for each set of data and settings of clarel."""
    found = []
    for (data, _, settings), group in grouped(c for c in usual(cells) if c["method"] == "clarel").items():
        values = list(zip(*(cell["harmonic_at_gaps"] for cell in group), strict=True))
        point = [[cell[what] for cell in group] for what in ("gap", "harmonic")]
        found.append(line(_name(data, settings), group[0]["gaps"], values, point))
    return found


def sweep_lines(cells: Sequence[Entry], key: str) -> list[Line]:
    """Return H against one setting of clarel, where at least two of its values were measured."""
    found: dict[str, dict[float, list[Entry]]] = {}
    for cell in (c for c in cells if c["method"] == "clarel"):
        rest = canonical([cell["data"], {k: v for k, v in cell["settings"].items() if k != key}])
        found.setdefault(rest, {}).setdefault(float(cell["settings"][key]), []).append(cell)
    lines = []
    for by_value in (group for group in found.values() if len(group) > 1):
        one = next(iter(by_value.values()))[0]
        settings = ", ".join(f"{k}={v}" for k, v in changed(one).items() if k != key)
        x = sorted(by_value)
        lines.append(line(_name(one["data"], settings), x, [[c["harmonic"] for c in by_value[v]] for v in x], []))
    return lines


def curve_lines(cells: Sequence[Entry]) -> dict[str, list[Line]]:
    """Return seen over unseen accuracy of each method and its settings, by the name of the data."""
    found: dict[str, list[Line]] = {}
    for (data, method, settings), group in grouped(usual(cells)).items():
        values = list(zip(*(cell["seen_at_unseen"] for cell in group), strict=True))
        reached = next((i for i, column in enumerate(values) if not any(column)), len(values))
        point = [[cell[what] for cell in group] for what in ("unseen", "seen")]
        point[0] = [100 * value for value in point[0]]
        area = 100 * float(np.mean([cell["area"] for cell in group]))
        name = f"{_name(method, settings)} (AUSUC {area:.1f})"
        x = [100 * value for value in UNSEEN[:reached]]
        found.setdefault(data, []).append(line(name, x, values[:reached], point))
    return found


def _name(first: str, settings: str) -> str:
    return f"{first}, {settings}" if settings else first


def draw(panels: dict[str, list[Line]], words: tuple[str, str], *, bars: bool = False) -> "Figure":
    """Return a figure with a panel for each title; ``words`` name the axes, ``bars`` are intervals at few values."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(6.4, 4.8 * len(panels)), 4.4), layout="constrained", facecolor="white")
    axes: Any = figure.subplots(1, len(panels), squeeze=False)[0]
    for place, (title, lines) in zip(axes, panels.items(), strict=True):
        for number, one in enumerate(lines):
            colour, mean, half = f"C{number}", np.array(one.mean), np.nan_to_num(np.array(one.half))
            if bars:
                place.errorbar(one.x, mean, half, color=colour, marker="o", markersize=5, capsize=4, label=one.name)
            else:
                place.plot(one.x, mean, color=colour, label=one.name)
                band = np.clip([mean - half, mean + half], 0, 100)
                place.fill_between(one.x, *band, color=colour, alpha=0.2, linewidth=0)
            if one.point:
                place.plot(*one.point, "o", color=colour, markeredgecolor="white", markersize=8)
        place.set_title(title, fontsize=11)
        place.set_xlabel(words[0])
        place.grid(alpha=0.3)
        place.spines[["top", "right"]].set_visible(False)
        place.legend(fontsize=8, frameon=False)
    axes[0].set_ylabel(words[1])
    return figure


def figures(cells: Sequence[Entry]) -> dict[str, "Figure"]:
    """Return the pictures that there are cells for, by file name."""
    found = {}
    harmonic = "H on test images, %"
    if lines := alpha_lines(cells):
        title = "H against alpha; dots: the alpha chosen on held-out labels"
        found["clarel_alpha.png"] = draw({title: lines}, ("alpha: distances to seen labels times 1 + alpha", harmonic))
    for key, symbol in SWEPT.items():
        if lines := sweep_lines(cells, key):
            words = (f"{symbol} ({key}; {ENDS[key]})", harmonic)
            found[f"clarel_{symbol}.png"] = draw({f"H against {symbol}": lines}, words, bars=True)
    if panels := curve_lines(cells):
        words = ("accuracy on unseen labels, %", "accuracy on seen labels, %")
        found["zero_shot_curves.png"] = figure = draw(panels, words)
        figure.suptitle(
            "Every gap between seen and unseen labels; dots: the gap chosen on held-out labels", fontsize=11
        )
        for place in figure.axes:
            place.set(xlim=(0, None), ylim=(0, 100))
            place.legend(fontsize=8, frameon=False, loc="lower left")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"))
    options = parser.parse_args()
    try:
        drawn = figures(read_cells(options.results))
    except LabelwiseError as error:
        raise SystemExit(str(error)) from None
    options.out.mkdir(parents=True, exist_ok=True)
    for name, figure in drawn.items():
        figure.savefig(options.out / name, dpi=120)
        print(options.out / name)


if __name__ == "__main__":
    main()
