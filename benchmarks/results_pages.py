"""Puts measured figures into the pages of docs/results, between marks, so that none is typed.

    python benchmarks/results_pages.py [--check]

Under a line ``<!-- headlines -->`` comes the table of all headline figures, under ``<!-- headlines PAPER -->`` that of one paper, under
``<!-- PAPER/TABLE -->`` that of a recipe (a line for each row, a column for each figure; ``<!-- PAPER/TABLE: FIGURE, ... -->``: only
these), under ``<!-- paper PAPER/TABLE -->`` what the paper itself has in it, under ``<!-- paired PAPER/TABLE: ROW against ROW -->`` how much the first row is ahead, seed by seed, in figures that all their runs have, under ``<!-- prototype -->`` those of prototype.jsonl, under ``<!-- naming draws -->``, ``<!-- naming prior -->`` and ``<!-- naming cifar10 -->`` those of naming.jsonl, under ``<!-- unlabelled SET -->`` one of unlabelled.jsonl, under ``<!-- numbers FILE -->`` the numbers of FILE.json, under ``<!-- izf errors -->`` that of izf_shares.json, under
``<!-- everyday TABLE -->`` one of everyday.jsonl, under ``<!-- label TABLE -->`` one of label.jsonl, under ``<!-- photos TABLE -->`` one of photos.jsonl, whose pictures are drawn, too. ``measured/headlines.toml`` says which figures are headlines.
"""

import argparse
import json
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import everyday_tables
import izf_shares
import label_tables
import naming_tables
import photos_tables
import prototype_tables

from labelwise.support.errors import UsageError
from labelwise_papers.recipe import Figure, find_recipes
from labelwise_papers.reproduce.cells import Choice
from labelwise_papers.reproduce.pictures import interval
from labelwise_papers.reproduce.results import read_results
from labelwise_papers.reproduce.table import Line, compact, lines_of, spread, verdict

PAGES = Path(__file__).parents[1] / "docs" / "results"
MEASURED = PAGES / "measured"
NAMING = MEASURED / "naming.jsonl"
MARK = re.compile(r"^<!-- ([a-z][^>\n]*) -->\n(?:(?:\||###).*\n|\n(?=\||###))*", re.MULTILINE)
HEAD = ("paper", "figure", "the paper's", "ours", "seeds", "comparison", "what it says")
Headline = dict[str, Any]


def filled(page: str) -> str:
    """Return a page with what stands under its marks made anew."""
    return MARK.sub(lambda mark: f"<!-- {mark[1]} -->\n" + "\n".join(block(mark[1])) + "\n", page)


def block(name: str) -> list[str]:
    """Return the lines of Markdown that belong under a mark."""
    kind, _, rest = name.partition(" ")
    if kind == "headlines":
        return headline_table(rest)
    if kind == "paper":
        return paper_table(rest)
    if kind == "paired":
        recipe, _, rows = rest.partition(": ")
        return paired(recipe, *rows.split(" against "))
    if name == "izf errors":
        return izf_shares.table()
    if name == "prototype":
        return prototype_tables.tables(MEASURED / "prototype.jsonl").splitlines()
    if kind == "photos":
        return photos_tables.table(rest, MEASURED / "photos.jsonl")
    if kind == "label":
        return label_tables.table(rest, MEASURED / "label.jsonl")
    if kind == "everyday":
        return everyday_tables.table(rest, MEASURED / "everyday.jsonl")
    if kind == "naming":
        tables = {"draws": naming_tables.drawn, "prior": naming_tables.prior, "cifar10": naming_tables.cifar10}
        return tables[rest](naming_tables.read(NAMING))
    if kind == "numbers":
        return number_table(json.loads((MEASURED / f"{rest}.json").read_text()))
    if kind == "unlabelled":
        return naming_tables.unlabelled(naming_tables.read(MEASURED / "unlabelled.jsonl"), rest)
    recipe, _, figures = name.partition(": ")
    wanted = [each.strip() for each in figures.split(",") if each.strip()]
    titles = {find_recipes(recipe)[0].figures[each].title for each in wanted}
    lines = [line for line in recipe_lines(recipe) if not titles or line.figure in titles]
    if not any(line.ours for line in lines):
        raise UsageError(f'The mark "{name}" names no figure that was measured.')
    return compact(lines)


def paper_table(name: str) -> list[str]:
    """Return the paper's own figures of a table, as its recipe has them; data sets are told apart where they have other figures."""
    (recipe,) = find_recipes(name)
    own = {source.title for source in recipe.data.values() if not source.stands_for}
    printed = [line for line in recipe_lines(name) if line.paper is not None and line.data in own]
    several = len({(line.row, line.figure, line.paper) for line in printed}) > len(
        {(line.row, line.figure) for line in printed}
    )
    rows: dict[str, dict[str, str]] = {}
    for line in printed:
        rows.setdefault(f"{line.row}, {line.data}" if several else line.row, {})[line.figure] = line.words()[3]
    titles = list(dict.fromkeys(title for figures in rows.values() for title in figures))
    cells = [[row, *(figures.get(title, "") for title in titles)] for row, figures in rows.items()]
    return [f"| {' | '.join(each)} |" for each in (["the paper", *titles], ["---"] * (1 + len(titles)), *cells)]


def number_table(told: dict[str, Any]) -> list[str]:
    """Return what a program told of one run, number by number."""
    numbers = {name: value for name, value in told.items() if isinstance(value, int | float)}
    cells = (list(numbers), ["---"] * len(numbers), [f"{value:.4g}" for value in numbers.values()])
    return [f"| {' | '.join(each)} |" for each in cells]


def paired(name: str, row: str, other: str) -> list[str]:
    """Return a table of the differences of two rows of a recipe, seed by seed: their means with 95 % intervals."""
    (recipe,) = find_recipes(name)
    runs = {
        (each["data"], each["row"], each["seed"]): each["figures"]
        for each in read_results(MEASURED)
        if each["recipe"] == name
    }
    compared = [run for (_, title, _), run in runs.items() if title in (row, other)]
    figures = [figure for figure in recipe.figures if all(figure in run for run in compared)]
    lines = [f"| {' | '.join(('data', *(recipe.figures[each].title for each in figures), 'repeats'))} |"]
    lines.append(f"|{' --- |' * (len(figures) + 2)}")
    for data, source in recipe.data.items():
        seeds = [seed for place, title, seed in runs if (place, title) == (data, row) and (data, other, seed) in runs]
        if len(seeds) > 1:
            both = [(runs[data, row, seed], runs[data, other, seed]) for seed in seeds]
            ahead = [interval([one[figure] - two[figure] for one, two in both]) for figure in figures]
            cells = [source.title, *(f"{mean:+.1f} +- {half:.1f}" for mean, half in ahead), str(len(seeds))]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def headlines() -> dict[str, list[Headline]]:
    """Return the headline figures of each paper."""
    return tomllib.loads((MEASURED / "headlines.toml").read_text())


def headline_table(paper: str = "") -> list[str]:
    """Return the table of headline figures, of one paper or of all."""
    chosen = {name: each for name, each in headlines().items() if paper in ("", name)}
    rows = [(name, *_row(one)) for name, each in chosen.items() for one in each]
    rows = [(f"[{row[0]}]({row[0]}.md)", *row[1:]) for row in rows]
    first = 1 if paper else 0
    return [f"| {' | '.join(row[first:])} |" for row in (HEAD, ("---",) * len(HEAD), *rows)]


def _row(headline: Headline) -> tuple[str, ...]:
    """Return title, the paper's figure, ours, how many seeds, how they compare, and what that says."""
    line = _line(headline) if "recipe" in headline else None
    if "naming" in headline:
        ours, seeds = naming_tables.headline(naming_tables.read(NAMING), headline["naming"], headline["encoder"])
        return headline["title"], "", f"**{ours}**", str(seeds), "", headline["says"]
    if "job" not in headline:
        assert line is not None
        paper, ours, seeds = line.words()[3], line.words()[4], len(line.ours)
        compared = f"{line.verdict}; {line.protocol}" if line.comparable else _apart(headline, line)
    else:
        values = _job_values(headline)
        paper, ours, seeds = "" if line is None else line.words()[3], spread(values, 1), len(values)
        compared = "" if line is None else _compared(headline, line, values)
    return headline["title"], paper, f"**{ours}**", str(seeds), compared if paper else "", headline["says"]


def _apart(headline: Headline, line: Line) -> str:
    """Return why a figure is not compared: the data that stand in, by name, or what else the table says."""
    (recipe,) = find_recipes(headline["recipe"])
    stands_for = recipe.data[headline["data"]].stands_for
    return f"not comparable: {line.data} in place of {recipe.data[stands_for].title}" if stands_for else line.verdict


def _compared(headline: Headline, line: Line, values: list[float]) -> str:
    """Return how a figure of prototype.jsonl compares with the paper's."""
    if "other_data" in headline:
        return f"not comparable: {headline['other_data']}"
    return f"{verdict(line.paper, values, Figure(digits=1))}; differs: {headline['differs']}"


def _job_values(headline: Headline) -> list[float]:
    figures = prototype_tables.read(MEASURED / "prototype.jsonl")[headline["job"]][headline["method"]]
    return prototype_tables.values(figures, *headline["path"])


def _line(headline: Headline) -> Line:
    """Return the line of a headline in the table of its recipe."""
    (recipe,) = find_recipes(headline["recipe"])
    place = (recipe.data[headline["data"]].title, headline["row"], recipe.figures[headline["figure"]].title)
    (line,) = [each for each in recipe_lines(headline["recipe"]) if (each.data, each.row, each.figure) == place]
    return line


@cache
def recipe_lines(name: str) -> list[Line]:
    """Return the lines of a recipe's table."""
    (recipe,) = find_recipes(name)
    return lines_of(recipe, read_results(MEASURED), Choice())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; end with 1 where a page is not as it should be"
    )
    only_check = parser.parse_args().check
    stale = []
    for path in sorted(PAGES.glob("*.md")):
        page = path.read_text()
        if filled(page) != page:
            stale.append(path.name)
            if not only_check:
                path.write_text(filled(page))
    if not only_check:
        photos_tables.draw(MEASURED / "photos.jsonl", PAGES.parent / "pictures")
    print(f"{'stale' if only_check else 'made anew'}: {', '.join(stale) or 'none'}")
    raise SystemExit(1 if stale and only_check else 0)


if __name__ == "__main__":
    main()
