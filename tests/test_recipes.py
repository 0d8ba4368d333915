"""Every recipe in the package can be read, and its rows are methods with valid settings."""

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from labelwise.methods import method_class
from labelwise.settings import from_plain

RECIPES = sorted(Path(str(files("labelwise"))).glob("recipes/*/*.toml"))


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    both = dict(below)
    for key, value in above.items():
        both[key] = merged(both[key], value) if isinstance(value, dict) and key in both else value
    return both


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_rows_are_methods_with_valid_settings(path: Path) -> None:
    recipe = tomllib.loads(path.read_text())
    assert recipe["paper"] == path.parent.name
    assert recipe["seeds"] >= 1
    names = [row["name"] for row in recipe["rows"]]
    assert len(set(names)) == len(names)
    for row in recipe["rows"]:
        values = merged(recipe["settings"], row.get("settings", {}))
        assert from_plain(method_class(row["method"]), values).name == row["method"]


def test_there_are_recipes() -> None:
    assert len(RECIPES) >= 7
