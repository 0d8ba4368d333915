"""Plots of results: a figure of each row over its place on an axis, or a curve of each row; means with 95 % intervals."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labelwise_papers.recipe import Picture, Recipe
from labelwise_papers.reproduce.cells import Choice, cells_of
from labelwise_papers.reproduce.results import Entry

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Means over seeds with half their 95 % intervals (NaN for one seed), each at its x ``[m]``."""

    name: str
    x: Sequence[float]
    points: Sequence[tuple[float, float]]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half of its 95 % interval by the t distribution; that is NaN for a single value."""
    n = len(values)
    if n < 2:
        return float(np.mean(values)), math.nan
    from scipy.stats import t as student  # takes a second to import

    return float(np.mean(values)), float(student.ppf(0.975, n - 1) * np.std(values, ddof=1) / math.sqrt(n))


def curves_of(recipe: Recipe, picture: Picture, results: Iterable[Entry], choice: Choice) -> dict[str, list[Curve]]:
    """Return what to draw, by the title of a data set; data sets without a result are left out, and those that were not asked for."""
    by_key = {entry["key"]: entry["figures"] for entry in results}
    panels: dict[str, list[Curve]] = {}
    for name, source in recipe.data.items():
        if choice.data and name not in choice.data:
            continue
        runs: dict[str, list[dict[str, Any]]] = {}
        for cell in cells_of(recipe, choice, [name]):
            figures = by_key.get(cell.key, {})
            if figures.get(picture.figure) not in (None, []):
                runs.setdefault(cell.row.name, []).append(figures)
        curves = _lists(runs, picture) if picture.over else _points(recipe, runs, picture)
        if curves:
            panels[source.title if source.title not in panels else f"{source.title} ({name})"] = curves
    return panels


def _lists(runs: dict[str, list[dict[str, Any]]], picture: Picture) -> list[Curve]:
    """Return one curve for each row, over the list that every cell has."""
    curves = []
    for row, figures in runs.items():
        points = [interval(values) for values in zip(*(each[picture.figure] for each in figures), strict=True)]
        curves.append(Curve(name=row, x=figures[0][picture.over], points=points))
    return curves


def _points(recipe: Recipe, runs: dict[str, list[dict[str, Any]]], picture: Picture) -> list[Curve]:
    """Return one curve through the rows that have a place on the axis; rows without one are levels across it."""
    placed = sorted((row.x, row.name) for row in recipe.rows if row.x is not None and row.name in runs)
    if not placed:
        return []
    points = {name: interval([each[picture.figure] for each in own]) for name, own in runs.items()}
    x = [place for place, _ in placed]
    levels = [row.name for row in recipe.rows if row.x is None and row.name in runs]
    return [
        Curve(name=picture.label, x=x, points=[points[name] for _, name in placed]),
        *(Curve(name=name, x=[x[0], x[-1]], points=[points[name]] * 2) for name in levels),
    ]


def draw(panels: dict[str, list[Curve]], picture: Picture) -> "Figure":
    """Return a figure with a panel for each data set."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(6.4, 4.8 * len(panels)), 4.4), layout="constrained", facecolor="white")
    axes: Any = figure.subplots(1, len(panels), squeeze=False)[0]
    for place, (title, curves) in zip(axes, panels.items(), strict=True):
        for number, curve in enumerate(curves):
            mean, half = np.nan_to_num(np.array(curve.points).T)
            marker = "o" if len(curve.x) < 20 else ""
            shown = slice(len(np.trim_zeros(mean, "b")) + 1)  # of zeros at its end, the first
            low = np.maximum(mean - half, min(0.0, mean.min()))  # no band below zero where no mean is
            place.plot(curve.x[shown], mean[shown], color=f"C{number}", marker=marker, markersize=5, label=curve.name)
            place.fill_between(
                curve.x[shown], low[shown], (mean + half)[shown], color=f"C{number}", alpha=0.2, linewidth=0
            )
        place.set_title(title, fontsize=11)
        place.set_xlabel(picture.axis)
        place.grid(alpha=0.3)
        place.spines[["top", "right"]].set_visible(False)
        place.legend(fontsize=8, frameon=False)
    axes[0].set_ylabel(picture.label)
    return figure


def draw_recipe(recipe: Recipe, results: Iterable[Entry], choice: Choice, folder: Path) -> Path | None:
    """Return the file of the recipe's plot; None where it has none, or no result to draw."""
    if recipe.picture is None:
        return None
    panels = curves_of(recipe, recipe.picture, results, choice)
    if not panels:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{recipe.paper}-{recipe.table}{'-quick' if choice.quick else ''}.png"
    draw(panels, recipe.picture).savefig(file, dpi=110)
    return file
