"""Ours next to the paper's: one line for each figure of each row, with a verdict in words."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from labelwise_papers.published import compare_settings, differing
from labelwise_papers.recipe import Figure, Recipe, Row
from labelwise_papers.reproduce.cells import Cell, Choice, cells_of, chosen_rows
from labelwise_papers.reproduce.results import Entry

Value = float | str
HEAD = ("data", "row", "figure", "paper", "ours", "difference", "protocol", "seeds", "verdict")


@dataclass(frozen=True, kw_only=True)
class Line:
    """One figure of one row."""

    data: str
    row: str
    figure: str  # what is measured
    paper: Value | None  # the paper's value; None where it gives none
    ours: tuple[Value, ...]  # one value for each seed
    protocol: str  # whose rules it follows
    seeds: int  # how many there are to be
    verdict: str  # how ours compares, in words
    comparable: bool  # whether a difference means anything: not on other data, nor of a quick run
    digits: int  # after the point

    def words(self) -> tuple[str, ...]:
        """Return the line as the cells of a table."""
        paper, apart = str(self.paper or ""), ""
        if isinstance(self.paper, int | float):
            paper, mean = f"{self.paper:.{self.digits}f}", _mean(self.ours)
            apart = "" if mean is None or not self.comparable else f"{mean - self.paper:+z.{self.digits}f}"
        run = f"{len(self.ours)} of {self.seeds}" if self.ours else ""
        ours = spread(self.ours, self.digits)
        return (self.data, self.row, self.figure, paper, ours, apart, self.protocol, run, self.verdict)


def lines_of(recipe: Recipe, results: Iterable[Entry], choice: Choice, gone: Iterable[str] = ()) -> list[Line]:
    """Return the lines of a recipe's table, from all results there are; ``gone`` are data sets that are not at hand."""
    by_key = {entry["key"]: entry for entry in results}
    lost = set(gone)
    lines = []
    for name in (name for name in recipe.data if not choice.data or name in choice.data):
        replaced = recipe.data[name].stands_for
        for row in (row for row in chosen_rows(recipe, choice) if name in recipe.sets(row)):
            own = [cell for cell in cells_of(recipe, choice, [name]) if cell.row is row]
            measured = [by_key[cell.key] for cell in own if cell.key in by_key]
            if replaced and replaced not in lost and not measured and name not in choice.data:
                continue
            lines += _row_lines(recipe, row, own, measured, missing=name in lost)
    return lines


def _row_lines(
    recipe: Recipe, row: Row, cells: Sequence[Cell], measured: Sequence[Entry], *, missing: bool
) -> list[Line]:
    cell = cells[0]
    lines = []
    for name, figure in recipe.figures.items():
        ours = tuple(value for entry in measured if (value := entry["figures"].get(name)) is not None)
        paper = recipe.expected(row, cell.data, name)
        if paper is None and not ours and (measured or row.expect):
            continue  # neither the paper nor the row's measures have it
        state = _state(cell, measured, ours, missing=missing)
        if not state and figure.paper_data and paper is not None:
            state = f"no verdict: the paper's figure is of {figure.paper_data}"
        lines.append(
            Line(
                data=cell.source.title,
                row=row.name,
                figure=figure.title or name,
                paper=paper,
                ours=ours,
                protocol=_protocol(cell, figure),
                seeds=len(cells),
                comparable=not state,
                verdict=state or verdict(paper, ours, figure),
                digits=figure.digits,
            )
        )
    return lines


def _state(cell: Cell, measured: Sequence[Entry], ours: Sequence[Value], *, missing: bool) -> str:
    """Return why a figure cannot be compared; blank where it can."""
    if not measured:
        return "missing data" if missing else "not run"
    if cell.quick:
        return "quick run, no result"
    if not ours:
        return "not measured: missing data, or no number"
    return "not comparable: stand-in data" if cell.source.stands_for else ""


def _protocol(cell: Cell, figure: Figure) -> str:
    """Return whose rules a figure follows, and in what they are not the paper's."""
    rules = figure.protocol or cell.source.protocol
    held = f"{cell.source.held} images calibrate" if cell.source.held else ""
    settings = differing(cell.recipe, cell.row, cell.data)
    differs = ", ".join(filter(None, [*cell.recipe.differs, *settings, held]))
    words = [] if rules == "same" else [rules]
    return "; ".join([*words, *([f"differs: {differs}"] if differs else [])]) or "no difference noted"


def verdict(paper: Value | None, ours: Sequence[Value], figure: Figure) -> str:
    """Return in words how our mean compares with the paper's figure."""
    if paper is None:
        return "the paper gives no figure"
    mean = _mean(ours)
    if mean is None or isinstance(paper, str):
        return "as in the paper" if str(paper) == _common(ours)[0] else "differs"
    apart = round(mean - paper, figure.digits)
    values = [float(value) for value in ours]
    spread_over = len(values) > 1 and min(values) <= paper <= max(values)
    within = ", within the spread of our seeds" if spread_over else ""
    size = f"{abs(apart):.{figure.digits}f}{within}"
    if figure.better == "neither":
        return "equal" if not apart else f"{'above' if apart > 0 else 'below'} by {size}"
    if figure.better == "higher":
        return f"at or above{within}" if apart >= 0 else f"below by {size}"
    return f"at or below{within}" if apart <= 0 else f"above by {size}"


def _mean(ours: Sequence[Value]) -> float | None:
    numbers = [value for value in ours if isinstance(value, int | float)]
    return statistics.fmean(numbers) if numbers and len(numbers) == len(ours) else None


def _common(ours: Sequence[Value]) -> tuple[str, int]:
    return Counter(map(str, ours)).most_common(1)[0]


def spread(ours: Sequence[Value], digits: int) -> str:
    """Return mean and standard deviation over seeds; of words the most common, and how often."""
    if not ours:
        return ""
    mean = _mean(ours)
    if mean is None:
        word, count = _common(ours)
        return f"{word} ({count} of {len(ours)})"
    apart = f" +- {statistics.stdev(map(float, ours)):.{digits}f}" if len(ours) > 1 else ""
    return f"{mean:.{digits}f}{apart}"


SETTINGS_HEAD = ("data", "row", "setting", "paper", "authors' code", "ours")


def settings_of(recipe: Recipe, choice: Choice) -> list[tuple[str, ...]]:
    """Return the published settings of each row next to ours, as the cells of a table; a star marks ours where it differs from both."""
    return [
        (
            recipe.data[name].title,
            row.name,
            each.name,
            each.paper,
            each.authors,
            f"{each.ours}{' *' if each.differs else ''}",
        )
        for name in recipe.data
        if not choice.data or name in choice.data
        for row in chosen_rows(recipe, choice)
        if name in recipe.sets(row)
        for each in compare_settings(recipe, row, name)
    ]


def page_head(out: PurePath) -> str:
    """Return what stands above the tables of all recipes that have results in a folder."""
    made = f"Made by `labelwise reproduce --markdown --out {out.as_posix()}`, not typed"
    return f"# Tables of the papers, as measured\n\n{made}; docs/reproduce.md explains the columns."


def markdown(recipe: Recipe, lines: Sequence[Line], results: Iterable[Entry]) -> str:
    """Return a recipe's table as Markdown: every figure that was measured, then in a sentence what was not."""
    text = ["## " + f"{recipe.name}: {recipe.title}", ""]
    if recipe.note:
        text += [recipe.note, ""]
    measured = [line for line in lines if line.ours]
    if measured:
        text += [f"| {' | '.join(HEAD)} |", "|" + "---|" * len(HEAD)]
        text += [*(f"| {' | '.join(line.words())} |" for line in measured), ""]
    text += [f"`labelwise reproduce {recipe.name}`. {measured_on(recipe, results)}".rstrip()]
    run = {(line.data, line.row) for line in measured}
    left: dict[str, dict[str, None]] = {}  # rows by data set, at hand here or not: the page is the same everywhere
    for line in lines:
        if (line.data, line.row) not in run:
            left.setdefault(line.data, {})[line.row] = None
    some = {data for data, _ in run}
    words = [f"{data} ({'; '.join(rows)})" if data in some else data for data, rows in left.items()]
    if words:
        text.append(f"Not run: {'; '.join(words)}.")
    return "\n".join(text)


def compact(lines: Sequence[Line]) -> list[str]:
    """Return what was measured as Markdown with a line for each row on each data set, and a column for each figure."""
    measured = [line for line in lines if line.ours]
    figures = list(dict.fromkeys(line.figure for line in measured))
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for line in measured:
        own = cells.setdefault((line.data, line.row), {"repeats": str(len(line.ours))})
        own[line.figure] = spread(line.ours, line.digits)
    head = ["data", "row", *figures, "repeats"]
    rows = [[*place, *(own.get(name, "") for name in head[2:])] for place, own in cells.items()]
    return [f"| {' | '.join(each)} |" for each in (head, ["---"] * len(head), *rows)]


def measured_on(recipe: Recipe, results: Iterable[Entry]) -> str:
    """Return on what the results of a recipe were measured, in words; blank if there are none."""
    own = [entry for entry in results if entry["recipe"] == recipe.name and not entry["quick"]]
    if not own:
        return ""
    devices = sorted({f"{entry['device']}, torch {entry['versions']['torch']}" for entry in own})
    seconds = statistics.fmean(entry["seconds"] for entry in own)
    commits = sorted({entry["commit"] or "unknown" for entry in own})
    return f"Measured on {'; '.join(devices)}; {seconds:.0f} s a cell; commit {', '.join(commits)}."
