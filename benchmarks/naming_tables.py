"""Tables of what ``naming.py`` and ``unlabelled.py`` measured, for ``results_pages.py``; and a picture of it."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

Line = dict[str, Any]
HALVES = ("choosing half", "held-back half", "of it CIFAR-100", "of it TinyImageNet")


def read(file: Path) -> list[Line]:
    """Return the lines of a results file."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def drawn(lines: list[Line]) -> list[str]:
    """Return the table of draws: a line for each row, the half for choosing, the half held back, and what the latter is of each set."""
    encoders = list(dict.fromkeys(line["encoder"] for line in lines if "half" in line))
    rows = list(dict.fromkeys(line["row"] for line in lines if "half" in line))
    held = {(line["encoder"], line["half"], line["row"]): line for line in lines if "half" in line}
    table = [
        ["named right, %", *(f"{encoder}: {title}" for encoder in encoders for title in HALVES)],
        *([row] for row in rows),
    ]
    for cells in table[1:]:
        for encoder in encoders:
            chosen, report = (held.get((encoder, half, cells[0])) for half in ("choose", "report"))
            cells += [spread(chosen), f"**{spread(report)}**" if report else ""]
            cells += [f"{report[data]:.1f}" if report else "" for data in ("cifar100", "tinyimagenet")]
    columns = [place for place in range(len(table[0])) if any(cells[place] for cells in table[1:])]
    table.insert(1, ["---"] * len(table[0]))
    return [f"| {' | '.join(cells[place] for place in columns)} |" for cells in table]


def prior(lines: list[Line]) -> list[str]:
    """Return the table of what sentences add to words, for each encoder and half."""
    table = [["codes", "classes", "draws", "words", "worst tenth", "words and sentences", "worst tenth", "gain"]]
    table.append(["---"] * len(table[0]))
    rows = [f"found clusters: looks and likeness, {kind}" for kind in ("words", "words and sentences")]
    held = {(line["encoder"], line["half"], line["row"]): line for line in lines if "gain" in line}
    for encoder, half in dict.fromkeys((encoder, half) for encoder, half, _ in held):
        words, both = (held[encoder, half, row] for row in rows)
        cells = [cell for line in (words, both) for cell in (spread(line), f"{line['tenth']:.1f}")]
        gain = f"**{both['gain']:+.1f} +- {both['gain_error']:.1f}**"
        half = "for choosing" if half == "choose" else "held back"
        table.append([encoder, half, str(both["draws"]), *cells, gain])
    return [f"| {' | '.join(cells)} |" for cells in table]


def cifar10(lines: list[Line]) -> list[str]:
    """Return the table of CIFAR-10: every seed, the mean and the standard deviation."""
    found = defaultdict[tuple[str, str], list[float]](list)
    for line in (line for line in lines if "seed" in line):
        found[line["encoder"], line["row"]].append(line["accuracy"])
    seeds = range(max(len(each) for each in found.values()))
    table = [["codes", "test images named right, %", *(f"seed {seed}" for seed in seeds), "mean +- deviation"]]
    table.append(["---"] * len(table[0]))
    for (encoder, row), own in found.items():
        table.append([encoder, row, *(f"{value:.1f}" for value in own), f"**{fmean(own):.1f} +- {stdev(own):.1f}**"])
    return [f"| {' | '.join(cells)} |" for cells in table]


def unlabelled(lines: list[Line], name: str) -> list[str]:
    """Return the table of a small set: mean and standard deviation over seeds of every figure, and its range."""
    own, rows = [line for line in lines if line["set"] == name], defaultdict[str, list[dict[str, float]]](list)
    for line in own:
        rows[line["row"]].append(line["figures"])
    titles = list(own[0]["figures"])
    table = [["", *titles, "seeds"], ["---"] * (len(titles) + 2)]
    for row, each in rows.items():
        values = [[one[title] for one in each] for title in titles]
        digits = [1 if "%" in title else 2 for title in titles]
        cells = (
            f"{fmean(own):.{n}f} +- {stdev(own):.{n}f} ({min(own):.{n}f} to {max(own):.{n}f})"
            for own, n in zip(values, digits, strict=True)
        )
        table.append([row, *cells, str(len(each))])
    return [f"| {' | '.join(cells)} |" for cells in table]


def headline(lines: list[Line], row: str, encoder: str) -> tuple[str, int]:
    """Return a figure with its spread (standard error over draws, deviation over seeds), and how many draws or seeds it is of."""
    own = [line for line in lines if (line["row"], line["encoder"]) == (row, encoder)]
    if "seed" in own[0]:
        values = [line["accuracy"] for line in own]
        return f"{fmean(values):.1f} +- {stdev(values):.1f}", len(values)
    (line,) = [line for line in own if line["half"] == "report"]
    return spread(line), line["draws"]


def spread(line: Line | None) -> str:
    """Return the mean over draws and its standard error."""
    return "" if line is None else f"{line['mean']:.1f} +- {line['error']:.1f}"


def picture(lines: list[Line], file: Path) -> None:
    """Draw the held-back half: a bar for each row with its 95 % interval, by what the row goes by."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    shown = [line for line in lines if line.get("half") == "report" and line["encoder"] == "ImageNet"]
    shown = [line for line in shown if not line["row"].startswith("simulated")][::-1]
    colours = {"likeness": "#9aa5b1", "looks": "#2b7a4b", "OTHER CLASSES": "#c08a2d"}
    figure, axes = plt.subplots(figsize=(9, 0.27 * len(shown) + 1))
    for place, line in enumerate(shown):
        row = line["row"].partition("found clusters: ")[2] or line["row"]
        colour = next((value for name, value in colours.items() if row.startswith(name)), "#d5d9de")
        axes.barh(place, line["mean"], xerr=1.96 * line["error"], color=colour, error_kw={"linewidth": 0.8})
    axes.axvline(10, color="black", linewidth=0.8, linestyle=":")
    axes.margins(y=0.01)
    axes.set_yticks(range(len(shown)), [line["row"] for line in shown], fontsize=7)
    axes.set_xlabel(
        "named right, % of ten held-back classes (dotted: guessing); true classes as clusters unless it says found clusters"
    )
    axes.xaxis.label.set_fontsize(7)
    figure.tight_layout()
    figure.savefig(file, dpi=110, bbox_inches="tight")
