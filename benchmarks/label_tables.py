"""The tables of docs/results/label.md, from what ``label.py table`` and ``label.py sessions`` measured: files of lines with set, how, answers, seed and figures."""

import json
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from statistics import fmean, stdev

WAYS = ("ours", "ours, sheets", "random", "margin", "margin, logistic", "typiclust", "probcover", "dropquery")
FIGURES = {
    "rest": "our guesses of the rest",
    "fitted": "classifier of answers and guesses",
    "logistic": "logistic regression on answers",
}
Cells = Mapping[
    tuple[str, int], Mapping[str, Mapping[str, list[float]]]
]  # figures of each way, a value for each seed, in per cent


@cache
def read(file: Path) -> Cells:
    """Return the figures of each set and number of answers."""
    cells: dict[tuple[str, int], dict[str, dict[str, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for line in map(json.loads, file.read_text().splitlines()):
        for figure in FIGURES:
            if figure in line:
                cells[line["set"], line["answers"]][line["how"]][figure].append(100 * line[figure])
    return cells


def table(name: str, file: Path) -> list[str]:
    """Return the lines under the mark ``label NAME``: one of the figures, ``ahead``, ``sessions`` or ``curve``."""
    if name == "sessions":
        return sessions(file.with_name("label_sessions.jsonl"))
    if name == "curve":
        return curve(file.with_name("label_curve.jsonl"))
    cells = read(file)
    if name == "ahead":
        return ahead(cells)
    measured = [way for way in WAYS if any(ways.get(way, {}).get(name) for ways in cells.values())]
    lines = [f"| {FIGURES[name]} | answers | {' | '.join(measured)} |", "|---" * (len(measured) + 2) + "|"]
    for (data, answers), ways in sorted(cells.items()):
        means = {way: fmean(ways[way][name]) for way in measured if ways.get(way, {}).get(name)}
        if not means:
            continue
        best = max(means.values())
        shown = [_shown(ways[way][name], means[way] == best) if way in means else "" for way in measured]
        lines.append(f"| {data} | {answers} | {' | '.join(shown)} |")
    return lines


def ahead(cells: Cells) -> list[str]:
    """Return how far our questions one by one are ahead of each rival: mean and worst of the means over seeds."""
    lines = ["| ahead by, points: mean, worst | " + " | ".join(WAYS[2:]) + " |", "|---" * (len(WAYS) - 1) + "|"]
    for figure, words in FIGURES.items():
        shown = []
        for way in WAYS[2:]:
            gaps = [
                fmean(ways[WAYS[0]][figure]) - fmean(ways[way][figure])
                for ways in cells.values()
                if all(ways.get(one, {}).get(figure) for one in (WAYS[0], way))
            ]
            shown.append(f"{fmean(gaps):+.1f}, {min(gaps):+.1f}" if gaps else "")
        if any(shown):
            lines.append(f"| {words} | {' | '.join(shown)} |")
    return lines


def sessions(file: Path) -> list[str]:
    """Return for each set, rate of mistakes and number of actions: what is labelled right, and what sessions say of it."""
    cells: dict[tuple[str, float, int], list[dict[str, float]]] = defaultdict(list)
    for line in map(json.loads, file.read_text().splitlines()):
        cells[line["set"], line["mistakes"], line["answers"]].append(line)
    lines = [
        "| set | wrong answers | actions | sessions | guesses right | all labels right | images an action | told less true | interval covers |",
        "|---" * 9 + "|",
    ]
    for (data, mistakes, actions), runs in sorted(cells.items()):
        told = [run for run in runs if run["told"] is not None]
        right = fmean(100 * run["true"] for run in runs)
        every = fmean(
            100 * (run["person_right"] + run["true"] * (run["images"] - run["person"])) / run["images"] for run in runs
        )
        gap = f"{fmean(100 * (run['told'] - run['true']) for run in told):+.1f}" if told else ""
        each = fmean(run["images"] / run["taken"] for run in runs)
        inside = fmean(100 * run["inside"] for run in runs)
        lines.append(
            f"| {data} | {mistakes:.0%} | {actions} | {len(runs)} | {right:.1f} | {every:.1f} | {each:.0f} | {gap} | {inside:.0f} % |"
        )
    return lines


def curve(file: Path) -> list[str]:
    """Return, for each least probability of a guess, the images that have a label for each action, and how many of these are right."""
    cells: dict[tuple[str, int], dict[float, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for line in map(json.loads, file.read_text().splitlines()):
        cells[line["set"], line["answers"]][line["limit"]].append((line["each"], 100 * line["right"]))
    limits = sorted({limit for runs in cells.values() for limit in runs})
    heads = " | ".join(f"from {limit:g}" for limit in limits)
    lines = [f"| set | actions | sessions | {heads} |", "|---" * (len(limits) + 3) + "|"]
    for (data, actions), runs in sorted(cells.items()):
        means = [[fmean(part) for part in zip(*runs[limit], strict=True)] for limit in limits]
        shown = " | ".join(f"{each:.0f}: {right:.1f}" for each, right in means)
        lines.append(f"| {data} | {actions} | {len(runs[limits[0]])} | {shown} |")
    return lines


def _shown(values: list[float], best: bool) -> str:
    mean = f"**{fmean(values):.1f}**" if best else f"{fmean(values):.1f}"
    return f"{mean} ± {stdev(values):.1f}" if len(values) > 1 else mean
