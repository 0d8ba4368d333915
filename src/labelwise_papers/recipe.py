"""Recipes: strict TOML files that define the tables and figures of a paper, without code.

A recipe names data sets, rows (a method with settings), what is measured of each, and the paper's figures. Data sets and figures
that several recipes of a paper have are in one file, ``recipes/<paper>.toml``, and taken by name (``shared``). A cell is one row on
one data set with one seed. An unknown key, row, figure or setting is an error that names the nearest valid one.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from labelwise.methods.registry import method_class
from labelwise.support.errors import LabelwiseError, UsageError, listing, suggest
from labelwise.support.files import read_text
from labelwise.support.settings import convert, from_plain
from labelwise.train.method import Method

Protocol = Literal["same", "paper", "strict"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Source:
    """One data set of a recipe."""

    source: str  # what ``data.load`` takes; blank where a measure makes its own data
    title: str  # what the paper calls it
    size: int | None = None  # side in pixels that images are brought to; None is that of the source
    # training images set aside to calibrate and validate, or groups where images have them; None keeps the splits of the source
    held: int | None = None
    images: int | None = None  # training images at most; None is all
    official: bool = False  # only the official files will do, since a packed form has smaller images
    features: str = ""  # a file in the root, in the order of the source's images, that takes the place of images
    # ``strict`` where nothing that is tested can reach a choice, ``paper`` where the paper's own protocol lets it; ``same``
    # where the two do not differ in this
    protocol: Protocol = "same"
    stands_for: str = ""  # the data set that it replaces where that is missing; its figures are not comparable
    note: str = ""  # how it differs from the paper's data, and how to get what is missing
    measures: tuple[str, ...] = ()  # in addition to those of the recipe and the row
    settings: dict[str, Any] = field(default_factory=dict)  # of the method, on this data set


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of the table."""

    title: str = ""  # the head of its column; blank is its name
    better: Literal["higher", "lower", "neither"] = "higher"
    digits: int = 2  # after the point
    protocol: Protocol | None = None  # whose rules it follows; None is as the data set says
    paper_data: str = ""  # the data that the paper's figure is of, where it is another: then there is no verdict


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row: a method with its settings."""

    name: str  # as the paper calls it
    method: str = ""  # a name of ``METHODS``; blank where a measure trains something else
    settings: dict[str, Any] = field(default_factory=dict)  # over those of the recipe and the data set
    adjust: dict[str, dict[str, Any]] = field(default_factory=dict)  # further settings by data set
    measures: tuple[str, ...] = ()  # in addition to those of the recipe
    options: dict[str, dict[str, Any]] = field(default_factory=dict)  # of measures, over those of the recipe
    data: tuple[str, ...] = ()  # only these data sets; empty is all
    expect: dict[str, dict[str, float | str]] = field(default_factory=dict)  # the paper's figures by data set
    x: float | None = None  # where the row stands on the axis of a plot


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What a recipe takes, before its own, from the file of its paper."""

    data: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What to expect of one cell on a machine; ``measured`` says whether it was, or is an estimate."""

    minutes: float
    memory_mib: int
    machine: str
    measured: bool = False


@dataclass(frozen=True, kw_only=True)
class Picture:
    """What to draw: a figure of each row over its x, or a list of figures (``over``) of each cell over another."""

    figure: str
    label: str
    over: str = ""
    axis: str = ""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A table or figure of a paper."""

    paper: str  # the folder of its recipes
    table: str  # its name, ``table2`` or ``figure7``
    title: str  # what it shows
    seeds: int  # how many repeats of each row
    data: dict[str, Source]
    rows: tuple[Row, ...]  # in the order of the table
    measures: tuple[str, ...]  # what is measured of every row, see ``reproduce.measures``
    figures: dict[str, Figure]  # those of the table by name, in its order
    cost: Cost  # of one cell
    settings: dict[str, Any] = field(default_factory=dict)  # of every method
    options: dict[str, dict[str, Any]] = field(default_factory=dict)  # of measures
    differs: tuple[
        str, ...
    ] = ()  # in what it departs from the paper's protocol, a word or two each; ``note`` says more
    note: str = ""  # how it differs from the paper
    picture: Picture | None = None  # what to draw; None is nothing

    def __post_init__(self) -> None:
        if not self.rows or not self.data or self.seeds < 1:
            raise UsageError("A recipe needs at least one row, one data set and one seed.")
        names = [row.name for row in self.rows]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise UsageError(f'Two rows are called "{twice[0]}"; give each a name of its own.')
        for row in self.rows:
            _known(f'row "{row.name}"', "data set", [*row.data, *row.adjust, *row.expect], self.data)
            for name in self.sets(row):
                self.method(row, name)
            for expected in row.expect.values():
                _known(f'row "{row.name}"', "figure", expected, self.figures)
        for name, source in self.data.items():
            _known(f'data set "{name}"', "data set", [source.stands_for] if source.stands_for else [], self.data)

    @property
    def name(self) -> str:
        """Paper and table in one word."""
        return f"{self.paper}/{self.table}"

    def sets(self, row: Row) -> list[str]:
        """Return the data sets that a row is run on."""
        return [name for name in self.data if not row.data or name in row.data]

    def settings_of(self, row: Row, data: str) -> dict[str, Any]:
        """Return what the recipe says about the settings of a row on a data set; the rest are the method's defaults."""
        values = merged(self.settings, self.data[data].settings)
        return merged(merged(values, row.settings), row.adjust.get(data, {}))

    def method(self, row: Row, data: str) -> Method | None:
        """Return the method of a row on a data set; None where a measure trains something else."""
        if not row.method:
            return None
        try:
            return from_plain(method_class(row.method), self.settings_of(row, data))
        except LabelwiseError as error:
            raise UsageError(f'Row "{row.name}" on "{data}": {error}') from None

    def expected(self, row: Row, data: str, figure: str) -> float | str | None:
        """Return the paper's figure; a data set that stands for another has that one's."""
        own = row.expect.get(data) or row.expect.get(self.data[data].stands_for, {})
        return own.get(figure)


def _known(where: str, what: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise UsageError(f'The {where} names no {what} of the recipe: "{name}".{suggest(name, known)}')


def read_recipe(path: Path) -> Recipe:
    """Return the recipe in a file, or raise an error that says what is wrong where."""
    try:
        return from_plain(Recipe, _with_shared(tomllib.loads(read_text(path))))
    except OSError as error:
        raise UsageError(f'Cannot read the recipe "{path}": {error.strerror}.') from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f'"{path}" is no TOML: {error}.') from None
    except UsageError as error:
        raise UsageError(f'Recipe "{path}": {error}') from None


def _with_shared(values: dict[str, Any]) -> dict[str, Any]:
    """Return the tables of a recipe after those that it takes by name from what recipes of its paper share."""
    if "shared" not in values:
        return values
    rest = dict(values)
    names = convert(rest.pop("shared"), Shared, "shared")
    known = {path.stem: path for path in _recipes().glob("*.toml")}
    _known("recipe", "paper that shares tables", [str(values.get("paper"))], known)
    common = tomllib.loads(read_text(known[values["paper"]]))
    for part, wanted in (("data", names.data), ("figures", names.figures)):
        own, theirs = values.get(part, {}), common.get(part, {})
        _known("recipe's shared", f"part of {part}", wanted, theirs)
        if isinstance(own, dict):
            rest[part] = {name: theirs[name] for name in wanted} | own
    return rest


def _recipes() -> Path:
    return Path(str(files("labelwise_papers"))) / "recipes"


@cache
def recipe_files() -> dict[str, Path]:
    """Return the files of the recipes that come with the package, by name."""
    return {f"{path.parent.name}/{path.stem}": path for path in sorted(_recipes().glob("*/*.toml"))}


@cache
def _own_recipe(name: str) -> Recipe:
    return read_recipe(recipe_files()[name])


def find_recipes(name: str) -> list[Recipe]:
    """Return the recipes that a word names: ``paper/table``, all of a paper, or the path of a TOML file."""
    known = recipe_files()
    papers = sorted({each.partition("/")[0] for each in known})
    if name in known:
        return [_own_recipe(name)]
    if name in papers:
        return [_own_recipe(each) for each in known if each.startswith(f"{name}/")]
    if name.endswith(".toml"):
        return [read_recipe(Path(name))]
    near = suggest(name, [*known, *papers])
    raise UsageError(
        f'No recipe "{name}".{near} Papers: {listing(papers)}; labelwise reproduce --list shows all recipes.'
    )


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested plain settings with those of ``above`` in place of those of ``below``."""
    both = dict(below)
    for key, value in above.items():
        inner = both.get(key)
        both[key] = merged(inner, value) if isinstance(value, Mapping) and isinstance(inner, Mapping) else value
    return both
