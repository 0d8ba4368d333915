"""The tables of docs/results/everyday.md, from what ``everyday.py`` measured."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from statistics import fmean

LEAD, LEAST = "labelwise", "largest label"
BEHIND = 0.5  # points behind the best rival that are told
FIGURES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "average_precision": "average precision",
    "ece": "ECE",
    "auroc": "AUROC of strangers",
}
SHORT = {
    "logistic regression": "LR",
    "logistic regression, balanced": "LR, balanced",
    "5 nearest": "5 nearest",
    "nearest": "nearest",
    LEAST: "largest label",
}
SPLITS = ("random", "lookalike")
Key = tuple[str, str, str]  # set, split, frequencies
Cells = Mapping[Key, Mapping[str, Mapping[str, float]]]  # figures of each rival, in per cent


@cache
def read(file: Path) -> tuple[Cells, dict[tuple[str, str], int]]:
    """Return the mean of each figure over seeds, and how many seeds sets and splits have."""
    values: dict[Key, dict[str, dict[str, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    seeds: Counter[tuple[str, str]] = Counter()
    for line in map(json.loads, file.read_text().splitlines()):
        key = line["name"], line["split"], line["frequencies"]
        for figure in FIGURES.keys() & line.keys():
            values[key][line["rival"]][figure].append(100 * line[figure])
        seeds[key[:2]] = max(seeds[key[:2]], line["seed"] + 1)
    return {
        key: {rival: {name: fmean(each) for name, each in figures.items()} for rival, figures in rivals.items()}
        for key, rivals in values.items()
    }, dict(seeds)


def table(name: str, file: Path) -> list[str]:
    """Return the lines that stand under the mark ``everyday NAME``."""
    cells, seeds = read(file)
    return of_split(name, cells, seeds) if name in SPLITS else behind(cells)


def best_rival(rivals: Mapping[str, Mapping[str, float]], figure: str) -> tuple[float, str]:
    """Return the best figure of the others, and whose it is; always answering the largest label counts for accuracy alone."""
    sign = -1 if figure == "ece" else 1
    others = [
        (figures[figure], rival)
        for rival, figures in rivals.items()
        if rival != LEAD and figure in figures and (rival != LEAST or figure == "accuracy")
    ]
    return max(others, key=lambda each: sign * each[0])


def lost(rivals: Mapping[str, Mapping[str, float]], figure: str) -> float:
    """Return how many points the default is behind the best of the others, below 0 where it is ahead."""
    gap = best_rival(rivals, figure)[0] - rivals[LEAD][figure]
    return -gap if figure == "ece" else gap


def of_split(split: str, cells: Cells, seeds: Mapping[tuple[str, str], int]) -> list[str]:
    """Return the default beside the best of the others, a row for each set and frequencies of labels."""
    rows = [("set, seeds", "labels", *FIGURES.values()), ("---",) * (2 + len(FIGURES))]
    for (name, of, frequencies), rivals in cells.items():
        if of == split:
            title = f"{name}, {seeds[name, split]}" if frequencies == "as they are" else ""
            rows.append((title, frequencies, *(_pair(rivals, figure) for figure in FIGURES)))
    return [f"| {' | '.join(row)} |" for row in rows]


def _pair(rivals: Mapping[str, Mapping[str, float]], figure: str) -> str:
    value, who = best_rival(rivals, figure)
    own = f"{rivals[LEAD][figure]:.1f}"
    return f"{own if lost(rivals, figure) > BEHIND else f'**{own}**'} / {value:.1f} {SHORT[who]}"


def behind(cells: Cells) -> list[str]:
    """Return where the default is more than half a point behind the best of the others."""
    rows = sorted(_behind(cells), reverse=True)
    total = len(cells) * len(FIGURES)
    lines = [f"| {len(rows)} of {total} cells | labels | split | figure | behind by | whom |", "|" + " --- |" * 6]
    for gap, (name, split, frequencies), figure, who in rows:
        lines.append(f"| {name} | {frequencies} | {split} | {FIGURES[figure]} | {gap:.1f} | {SHORT[who]} |")
    return lines


def _behind(cells: Cells) -> Iterator[tuple[float, Key, str, str]]:
    for key, rivals in cells.items():
        for figure in FIGURES:
            if (gap := lost(rivals, figure)) > BEHIND:
                yield gap, key, figure, best_rival(rivals, figure)[1]
