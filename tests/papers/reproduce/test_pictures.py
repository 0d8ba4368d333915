"""Pictures of results: means and intervals, points along an axis, curves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from labelwise.core.balance import BalanceCurve
from labelwise_papers.recipe import Recipe, find_recipes
from labelwise_papers.reproduce.cells import Choice, cells_of
from labelwise_papers.reproduce.new_labels import seen_at
from labelwise_papers.reproduce.pictures import curves_of, draw_recipe, interval


def results(recipe: Recipe, data: str, seeds: int) -> list[dict[str, Any]]:
    """H is 10 for each row before, and 1 for each seed; at gaps 0 and 0.1 it is half of that and all of it."""
    found = []
    places = {row.name: 10.0 * (i + 1) for i, row in enumerate(recipe.rows)}
    for cell in cells_of(recipe, Choice(seeds=seeds), [data]):
        level = places[cell.row.name] + cell.seed
        figures = {"harmonic": level, "gaps": [0.0, 0.1], "harmonic_at_gaps": [level / 2, level]}
        found.append({"key": cell.key, "figures": figures})
    return found


def test_an_interval_is_that_of_the_t_distribution() -> None:
    values = [0.5, 0.52, 0.57]
    mean, sd = np.mean(values), np.std(values, ddof=1)
    low, high = stats.t.interval(0.95, 2, loc=mean, scale=sd / np.sqrt(3))
    assert interval(values) == pytest.approx((mean, (high - low) / 2))
    assert np.isnan(interval([1.0])[1])


def test_rows_along_an_axis(tmp_path: Path) -> None:
    (recipe,) = find_recipes("clarel/figure3")
    assert recipe.picture is not None
    panels = curves_of(recipe, recipe.picture, results(recipe, "cub_strict", 3), Choice(seeds=3))
    (curve,) = panels["CUB, captions, strict"]
    assert list(curve.x) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert [mean for mean, _ in curve.points] == pytest.approx([11, 21, 31, 41, 51])
    assert [half for _, half in curve.points] == pytest.approx([interval([0.0, 1.0, 2.0])[1]] * 5)
    file = draw_recipe(recipe, results(recipe, "cub_strict", 3), Choice(seeds=3), tmp_path)
    assert file == tmp_path / "clarel-figure3.png"
    assert file.stat().st_size > 1000
    assert draw_recipe(recipe, [], Choice(), tmp_path) is None


def test_curves_of_cells() -> None:
    (recipe,) = find_recipes("clarel/figure2")
    assert recipe.picture is not None
    panels = curves_of(recipe, recipe.picture, results(recipe, "cub_strict", 2), Choice(seeds=2))
    (curve,) = panels["CUB, captions, strict"]
    assert list(curve.x) == [0.0, 0.1]
    assert [mean for mean, _ in curve.points] == pytest.approx([5.25, 10.5])
    both = [*results(recipe, "cub_strict", 2), *results(recipe, "cub_paper", 2)]
    assert len(curves_of(recipe, recipe.picture, both, Choice(seeds=2))) == 2
    assert list(curves_of(recipe, recipe.picture, both, Choice(seeds=2, data=("cub_paper",)))) == [
        "CUB, captions, paper"
    ]


def test_rows_without_a_place_are_levels() -> None:
    (recipe,) = find_recipes("indicator/figure8")
    assert recipe.picture is not None
    made = [
        {"key": cell.key, "figures": {"accuracy": 50.0}} for cell in cells_of(recipe, Choice(seeds=1), ["cub200_64"])
    ]
    (line, *levels) = curves_of(recipe, recipe.picture, made, Choice(seeds=1))["CUB-200, 64 px"]
    assert list(line.x) == [9, 15, 24, 31, 41, 51]
    assert [level.name for level in levels] == ["B-T", "N=9, hard", "N=199"]
    assert list(levels[0].x) == [9, 51]


def test_the_curve_of_gaps_is_kept_at_even_unseen_accuracies() -> None:
    curve = BalanceCurve(np.array([0.1, 0.2, 0.3]), np.array([0.0, 0.2, 0.2, 0.5]), np.array([0.9, 0.8, 0.6, 0.0]))
    slow = [
        max((float(s) for u, s in zip(curve.unseen, curve.seen, strict=True) if u >= x - 1e-7), default=0.0)
        for x in (step / 100 for step in range(101))
    ]
    assert seen_at(curve) == pytest.approx(slow, abs=1e-5)
