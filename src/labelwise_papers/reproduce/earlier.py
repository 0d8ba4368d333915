"""Results from before a recipe was changed: shown, named as such, never compared."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from labelwise_papers.reproduce.cells import Cell
from labelwise_papers.reproduce.results import Entry

PLACE = ("recipe", "data", "row", "seed", "quick")


def earlier(cells: Sequence[Cell], results: Iterable[Entry]) -> list[Entry]:
    """Return the results of cells in the same place of the table, with settings that are not today's; the last of each."""
    last = {tuple(entry.get(name) for name in PLACE): entry for entry in results}
    places = ((cell.recipe.name, cell.data, cell.row.name, cell.seed, cell.quick) for cell in cells)
    return [last[place] for place in places if place in last]


def changes(cell: Cell, entry: Entry) -> list[str]:
    """Return the settings of a cell that are not those a result was measured with, ``name=value`` as they are today."""
    if entry["key"] == cell.key:
        return []
    then = dict(_leaves(entry["configuration"]))
    stated = dict(_leaves(cell.stated))
    now = dict(_leaves(cell.configuration))
    other = [name for name, value in now.items() if (then[name] != value if name in then else name in stated)]
    return [f"{name.removeprefix('settings.')}={now[name]}" for name in other]


def _leaves(values: Mapping[str, Any], head: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what nested values hold, by names with points."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{head}{name}.")
        else:
            yield f"{head}{name}", list(value) if isinstance(value, tuple) else value
