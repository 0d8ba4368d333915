"""Cells: one row of a recipe on one data set with one seed, and the identity of a cell."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from labelwise.support.errors import UsageError, listing, suggest
from labelwise.support.settings import to_plain
from labelwise_papers.recipe import Recipe, Row, Source, merged
from labelwise_papers.reproduce.measures import check_measures

DIVIDED = ("source", "size", "held", "images", "features")  # what of a data set can change figures
EVERY = 10  # epochs


@dataclass(frozen=True, eq=False, kw_only=True)
class Cell:
    """One fit to be measured; ``quick`` runs are proofs that it works and never results."""

    recipe: Recipe
    row: Row
    data: str
    seed: int
    quick: bool = False

    @property
    def source(self) -> Source:
        """Its data set."""
        return self.recipe.data[self.data]

    @property
    def measures(self) -> tuple[str, ...]:
        """What is measured, each once."""
        return tuple(dict.fromkeys([*self.recipe.measures, *self.row.measures, *self.source.measures]))

    @property
    def snapshots(self) -> int:
        """After every how many epochs its weights are kept for a measure; 0 keeps none."""
        return EVERY if "best_epoch" in self.measures else 0

    @property
    def options(self) -> dict[str, Any]:
        """The options of what is measured."""
        return merged(self.recipe.options, self.row.options)

    @property
    def configuration(self) -> dict[str, Any]:
        """What it is run with as plain values, defaults filled in."""
        method = self.recipe.method(self.row, self.data)
        return {**self.stated, "settings": None if method is None else to_plain(method)}

    @property
    def stated(self) -> dict[str, Any]:
        """What the recipe says that can change figures, without names for people and without defaults."""
        settings = self.recipe.settings_of(self.row, self.data) if self.row.method else None
        source = {name: getattr(self.source, name) for name in DIVIDED}
        return {
            "source": source,
            "method": self.row.method,
            "settings": settings,
            "measures": list(self.measures),
            "options": to_plain(self.options),
            "quick": self.quick,
        }

    @property
    def key(self) -> str:
        """A word that stands for the cell: the same for 1 and 1.0 and any order of keys; other settings make another cell."""
        head = {"recipe": self.recipe.name, "row": self.row.name, "data": self.data, "seed": self.seed}
        plain = json.dumps(json.loads(json.dumps([head, self.stated]), parse_int=float), sort_keys=True)
        return sha256(plain.encode()).hexdigest()[:20]

    @property
    def title(self) -> str:
        """The cell in words."""
        return f"{self.recipe.name}, {self.data}, {self.row.name}, seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which cells of a recipe: only some data sets, some methods or rows, another number of seeds."""

    data: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    seeds: int | None = None
    quick: bool = False


def cells_of(recipe: Recipe, choice: Choice, sets: Iterable[str]) -> Iterator[Cell]:
    """Yield the cells of a recipe on these data sets, seed by seed, so that a stopped run has whole tables first."""
    here = list(sets)
    more = [name for source in recipe.data.values() for name in source.measures]
    for row in recipe.rows:
        check_measures((*recipe.measures, *row.measures, *more), merged(recipe.options, row.options), row.name)
    for seed in range(choice.seeds or recipe.seeds):
        for name in (name for name in recipe.data if name in here):
            for row in chosen_rows(recipe, choice):
                if name in recipe.sets(row):
                    yield Cell(recipe=recipe, row=row, data=name, seed=seed, quick=choice.quick)


def chosen_rows(recipe: Recipe, choice: Choice) -> list[Row]:
    """Return the rows whose method or name was asked for; all, where none was."""
    if not choice.methods:
        return list(recipe.rows)
    return [row for row in recipe.rows if {row.method, row.name} & set(choice.methods)]


def check_choice(recipes: Iterable[Recipe], choice: Choice) -> None:
    """Raise an error for data sets or methods that none of the recipes has."""
    every = list(recipes)
    sets = sorted({name for recipe in every for name in recipe.data})
    rows = sorted({word for recipe in every for row in recipe.rows for word in (row.method, row.name) if word})
    for what, names, known in (("data set", choice.data, sets), ("method", choice.methods, rows)):
        for name in names:
            if name not in known:
                raise UsageError(
                    f'No {what} "{name}" in these recipes.{suggest(name, known)} They have: {listing(known, 40)}.'
                )
