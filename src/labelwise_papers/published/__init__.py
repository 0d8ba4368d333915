"""Compare the settings of a recipe's row with those of the paper's text and its authors' code.

A file for each paper says what is published, as lists of settings for some methods, tables, data sets or rows; a later entry goes
over an earlier one. In what a row differs is found by comparison, never typed.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from labelwise.support.settings import from_plain, to_plain
from labelwise_papers.recipe import Recipe, Row, merged


@dataclass(frozen=True, kw_only=True)
class Stated:
    """Published settings of some rows; an empty tuple is all there are."""

    methods: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    data: tuple[str, ...] = ()  # data sets of a recipe; one that stands for another has that one's
    rows: tuple[str, ...] = ()
    paper: dict[str, Any] = field(default_factory=dict)  # as the text has it
    authors: dict[str, Any] = field(default_factory=dict)  # as the code has it


@dataclass(frozen=True, kw_only=True)
class Published:
    """What is published about one paper's experiments."""

    stated: tuple[Stated, ...] = ()
    without: tuple[str, ...] = ()  # settings that our methods do not have


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of a row, in words; blank where nothing is published."""

    name: str
    paper: str
    authors: str
    ours: str

    @property
    def differs(self) -> bool:
        """Whether ours is neither what the text states nor what the code does."""
        return self.ours not in {self.paper, self.authors}


@cache
def read_published(paper: str) -> Published:
    """Return what is published about a paper; nothing where there is no file."""
    file = files("labelwise_papers") / "published" / f"{paper}.toml"
    return from_plain(Published, tomllib.loads(file.read_text())) if file.is_file() else Published()


def compare_settings(recipe: Recipe, row: Row, data: str) -> list[Setting]:
    """Return every published setting of a row on a data set next to ours, by name."""
    method = recipe.method(row, data)
    if method is None:
        return []
    places = {data, recipe.data[data].stands_for}
    own = [
        each
        for each in read_published(recipe.paper).stated
        if (not each.methods or row.method in each.methods)
        and (not each.tables or recipe.table in each.tables)
        and (not each.data or places & set(each.data))
        and (not each.rows or row.name in each.rows)
    ]
    paper, authors = dict[str, Any](), dict[str, Any]()
    for each in own:
        paper, authors = merged(paper, each.paper), merged(authors, each.authors)
    text, code, ours = flatten(paper), flatten(authors), flatten(to_plain(method))
    return [
        Setting(name=name, paper=text.get(name, ""), authors=code.get(name, ""), ours=ours.get(name, "none"))
        for name in sorted({*text, *code})
    ]


def differing(recipe: Recipe, row: Row, data: str) -> list[str]:
    """Return the names of the settings in which a row is neither the paper nor its authors' code."""
    return [setting.name for setting in compare_settings(recipe, row, data) if setting.differs]


def flatten(values: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Return nested settings as words under dotted names."""
    flat = dict[str, str]()
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{above}{name}.")
        else:
            flat[above + name] = _words(value)
    return flat


def _words(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"[{', '.join(map(_words, value))}]" if isinstance(value, list | tuple) else str(value)
