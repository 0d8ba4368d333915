"""The tables and pictures of docs/results/photos.md, from what ``photos.py``, ``first_run.py`` and ``decoders.py`` measured.

``kept`` gathers it into one file, docs/results/measured/photos.jsonl, a line for each cell; ``table`` makes what stands under a mark of the page.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

LEAD = "labelwise"  # the default
FIRST = "labelwise, first draw"
EARLIER = "version 0.1"
BEHIND = 0.5  # points behind the best rival that are told
NEAR = 2.0  # points that an estimate may be off
HEADS = ("softmax", "indicator", "prototype")  # other methods of the library: no rivals of its default
NONE = "-"
SETS = {
    "flowers": ("102 flowers, full size", "official", "yes"),
    "flowers_64": ("102 flowers, 64 pixels", "official", "yes"),
    "pets": ("37 breeds of cats and dogs, full size", "official", "yes"),
    "pets_64": ("37 breeds, 64 pixels", "official", "yes"),
    "bmw": ("13 models of BMW of Stanford Cars, 128 pixels", "official", "yes"),
    "cub": ("CUB: 200 species of birds, full size", "official", "no"),
    "cub_64": ("200 species of birds, 64 pixels", "official", "no"),
    "pacs": ("PACS: 7 things as photo, painting, cartoon, sketch", "a fifth set aside as `fit` does", "no"),
    "tiny": ("TinyImageNet (validation), 200 things, 64 pixels", "a fifth set aside as `fit` does", "no"),
}  # what it holds, which split, whether settings were chosen with a view of its test images
SHOTS = (1, 2, 5, 10, 20, 0)
Line = dict[str, Any]
Results = Mapping[str, list[Line]]  # of each set


def kept(folder: Path, file: Path) -> None:
    """Write all that was measured into a folder as one file of short lines."""
    lines = [
        json.dumps({name: json.loads((folder / f"{name}.json").read_text())})
        for name in ("machine", "first_run", "decoders")
        if (folder / f"{name}.json").exists()
    ]
    for name in SETS:
        rows = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        for row in sorted(rows, key=lambda row: json.dumps(row["cell"])):
            cell = {key: value for key, value in row.pop("cell").items() if value or key == "shots"}
            figures = {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in row.items()}
            lines.append(json.dumps({**cell, **figures}))
    file.write_text("\n".join(lines) + "\n")


@cache
def read(file: Path) -> tuple[Results, Line]:
    """Return the measured cells of each set, and what else was measured, by name."""
    sets, others = {name: list[Line]() for name in SETS}, Line()
    for line in map(json.loads, file.read_text().splitlines()):
        if "name" in line:
            sets[line["name"]].append(line)
        else:
            others |= line
    return {name: rows for name, rows in sets.items() if rows}, others


def table(name: str, file: Path) -> list[str]:
    """Return the lines that stand under the mark ``photos NAME``."""
    sets, others = read(file)
    kinds: dict[str, Callable[[], str]] = {
        "summary": partial(_summary, _plain(sets)),
        "sets": partial(_sets, _plain(sets)),
        "first run": lambda: _first_run(others["first_run"]),
        "answer": lambda: _answer(others["first_run"]),
        "decoders": lambda: _decoders(others["decoders"]),
        "accuracy": partial(_accuracies, _plain(sets)),
        "behind": partial(_behind, _plain(sets)),
        "means": partial(_means, _plain(sets)),
        "estimate": partial(_estimated, _plain(sets)),
        "estimates": partial(_estimates, _plain(sets)),
        "added": partial(_added, {n: [row for row in rows if "taught" in row] for n, rows in sets.items()}),
        "domains": partial(_domains, [row for row in sets.get("pacs", []) if "domain" in row]),
    }
    return kinds[name]().splitlines()


def draw(file: Path, pictures: Path) -> None:
    """Draw accuracy against images a label, on average and set by set."""
    from photos_plots import draw_mean, draw_sets

    plain = _plain(read(file)[0])
    rivals = [rival for rival in _rivals(plain) if rival not in (*HEADS, FIRST)]
    curves = {
        name: {rival: {shots: _figure(rows, rival, shots) for shots in SHOTS} for rival in rivals}
        for name, rows in plain.items()
    }
    draw_mean(curves, pictures / "photos-mean.png")
    draw_sets(curves, pictures / "photos-sets.png")


def _plain(sets: Results) -> Results:
    """Return the results of a draw of training images; the first draw of the default a second time, under a name of its own."""
    plain = {n: [row for row in rows if not row.keys() & {"taught", "alone", "domain"}] for n, rows in sets.items()}
    return {n: rows + [row | {"rival": FIRST} for row in rows if _is_first(row)] for n, rows in plain.items()}


def _is_first(row: Line) -> bool:
    return bool(row["rival"] == LEAD and not row.get("draw") and row["shots"])


def _words(shots: int) -> str:
    return f"{shots} a label" if shots else "all"


def _rivals(lines: Results) -> list[str]:
    """Return who was measured, the default first and those of one draw last."""
    names = dict.fromkeys(row["rival"] for rows in lines.values() for row in rows)
    last = (FIRST, "logistic regression, tuned", EARLIER, *HEADS)
    return sorted(names, key=lambda rival: (rival != LEAD, last.index(rival) if rival in last else -1, rival))


def _figure(rows: Iterable[Line], rival: str, shots: int, what: str = "accuracy") -> float | None:
    """Return the mean over draws of a figure, None where it was not measured."""
    values = [row.get(what) for row in rows if row["rival"] == rival and row["shots"] == shots]
    return None if None in values or not values else fmean(value for value in values if value is not None)


def _mean(lines: Results, rival: str, shots: int, what: str = "accuracy") -> float | None:
    """Return the mean over sets, None where one of them was not measured."""
    values = [_figure(part, rival, shots, what) for part in lines.values()]
    return None if None in values else fmean(value for value in values if value is not None)


def _text(value: float | None, digits: int = 1, unit: float = 100) -> str:
    return NONE if value is None else f"{unit * value:.{digits}f}"


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def _rows(lines: Results, what: str, text: Callable[[float | None], str] = _text) -> str:
    """Return a table of means over sets: a line a rival, a column for so many images a label."""
    rows = [[rival, *(text(_mean(lines, rival, shots, what)) for shots in SHOTS)] for rival in _rivals(lines)]
    return _table(["", *map(_words, SHOTS)], [row for row in rows if set(row[1:]) != {NONE}])


def _summary(lines: Results) -> str:
    return _rows(lines, "accuracy")


def _sets(lines: Results) -> str:
    """Return what the sets are."""
    rows = []
    for name, part in lines.items():
        train, test = max((row["images"], row["tested"]) for row in part if "images" in row)
        rows.append([name, *SETS[name][:2], f"{train:,}", f"{test:,}", SETS[name][2]])
    return _table(["set", "what", "split", "train, at most", "test", "settings chosen on it"], rows)


def _first_run(result: Line) -> str:
    """Return wall (and processor) seconds of ``first_run.py``."""
    times: dict[str, list[list[float]]] = result["fit"]
    rows = [[name, *(f"{wall:.1f} ({busy:.1f})" for wall, busy in runs)] for name, runs in times.items()]
    for title, place in (("times as fast", 0), ("by the processor", 1)):
        pairs = zip(times[EARLIER], times[LEAD], strict=True)
        rows.append([title, *(f"{old[place] / run[place]:.1f}" for old, run in pairs)])
    return _table([f"{result['about']}: seconds", "first run", "second run"], rows)


def _answer(result: Line) -> str:
    rows = [[name, f"{wall:.2f}", f"{busy:.2f}"] for name, (wall, busy) in result["start"].items()]
    return _table(["one command, seconds", "wall", "processor"], rows)


def _decoders(result: Line) -> str:
    """Return the processor milliseconds of ``decoders.py``."""
    base = result["ms"]["Pillow"]
    rows = [[name, f"{ms:.1f}", f"{base / ms:.2f}"] for name, ms in result["ms"].items()]
    return _table([f"{result['about']}: processor ms a photo", "ms", "times Pillow"], rows)


def _accuracies(lines: Results) -> str:
    """Return a table of accuracies for each number of images."""
    parts = []
    for shots in SHOTS:
        rows = []
        for rival in _rivals(lines):
            values = [_figure(part, rival, shots) for part in lines.values()]
            if any(value is not None for value in values):
                rows.append([rival, *map(_text, values), _text(_mean(lines, rival, shots))])
        parts.append(f"### {_words(shots)}\n\n" + _table(["", *lines, "mean"], rows))
    return "\n\n".join(parts)


def _means(lines: Results) -> str:
    """Return the other figures, means over sets."""
    kinds: dict[str, tuple[str, Callable[[float | None], str]]] = {
        "ECE, %": ("ece", _text),
        "NLL": ("nll", partial(_text, digits=2, unit=1)),
        "processor seconds of the head": ("processor", partial(_text, unit=1)),
        "MB beyond the features": ("memory_mb", partial(_text, digits=0, unit=1)),
    }
    return "\n\n".join(f"### {title}\n\n" + _rows(lines, what, text) for title, (what, text) in kinds.items())


def _behind(lines: Results) -> str:
    """Return where the default is behind the best rival of as many draws; the best is chosen anew for each cell."""
    rows, count = [], 0
    for name, part in lines.items():
        for shots in SHOTS:
            own = _figure(part, LEAD, shots)
            others = {rival: _figure(part, rival, shots) for rival in _rivals(lines) if rival not in (LEAD, *HEADS)}
            draws = {rival: sum(row["rival"] == rival and row["shots"] == shots for row in part) for rival in others}
            same = {rival: value for rival, value in others.items() if value and rival != FIRST}
            lead = {rival: own if draws[rival] > 1 or not shots else others[FIRST] for rival in same}
            gaps = {rival: 100 * (value - (lead[rival] or 0)) for rival, value in same.items()}
            best = max(gaps, key=lambda rival: gaps[rival])
            count += 1
            if gaps[best] > BEHIND:
                rows.append([name, _words(shots), _text(lead[best]), _text(same[best]), best])
    return _table([f"{len(rows)} of {count} cells", "images", LEAD, "best", "which"], rows)


def _cells(lines: Results) -> dict[tuple[str, int], list[Line]]:
    """Return what leave-one-out said, by set and images a label."""
    own = [row for rows in lines.values() for row in rows if row["rival"] == LEAD and "estimate_low" in row]
    places = dict.fromkeys((name, shots) for name in lines for shots in SHOTS)
    cells = {place: [row for row in own if (row["name"], row["shots"]) == place] for place in places}
    return {place: rows for place, rows in cells.items() if rows}


def _inside(row: Line) -> bool:
    """Return whether the interval of the estimate holds the accuracy on test images."""
    return bool(row["estimate_low"] <= row["as_trained"] <= row["estimate_high"])


def _gap(rows: list[Line]) -> float:
    return 100 * abs(fmean(row["estimate_accuracy"] for row in rows) - fmean(row["as_trained"] for row in rows))


def _estimated(lines: Results) -> str:
    """Return how often the estimate is near, by images a label."""
    cells, rows = _cells(lines), []
    for shots in SHOTS[1:]:
        some = [each for (_, number), each in cells.items() if number == shots]
        every = [row for each in some for row in each]
        near = sum(_gap(each) <= NEAR for each in some)
        gap = f"{fmean(map(_gap, some)):.1f}"
        rows.append([_words(shots), f"{near} of {len(some)}", gap, f"{sum(map(_inside, every))} of {len(every)}"])
    return _table(["images", f"sets within {NEAR:.0f} points", "mean gap", "draws whose interval holds"], rows)


def _estimates(lines: Results) -> str:
    """Return how near the accuracy estimated by leave-one-out is to that on test images, set by set."""
    rows = []
    for (name, shots), cells in _cells(lines).items():
        keys = ("estimate_accuracy", "as_trained", "accuracy")
        figures = (_text(fmean(row[key] for row in cells)) for key in keys)
        width = _text(fmean((row["estimate_high"] - row["estimate_low"]) / 2 for row in cells))
        rows.append([name, _words(shots), *figures, width, f"{sum(map(_inside, cells))} of {len(cells)}"])
    head = ["set", "images", "estimate", "test, labels as in training", "test", "+-", "interval holds"]
    return _table(head, rows)


def _added(lines: Results) -> str:
    """Return how well labels added later are told: new / old."""
    parts = []
    for number in (1, 2, 5, 20):
        rows = []
        for rival in _rivals(lines):
            pairs = [
                [_figure(rows, rival, 20, f"{side}_{number}") for side in ("new", "old")] for rows in lines.values()
            ]
            means = [None if None in side else fmean(side) for side in zip(*pairs, strict=True)]
            rows.append([rival, *(" / ".join(map(_text, pair)) for pair in (*pairs, means))])
        parts.append(f"### {number} example{'s' * (number > 1)}\n\n" + _table(["", *lines, "mean"], rows))
    return "\n\n".join(parts)


def _domains(rows: list[Line]) -> str:
    """Return how well a domain is told that was not trained on."""
    domains, lines = sorted({row["domain"] for row in rows}), []
    for rival in _rivals({"pacs": rows}):
        values = [_figure((row for row in rows if row["domain"] == domain), rival, 0) for domain in domains]
        mean = None if None in values else fmean(value for value in values if value is not None)
        lines.append([rival, *map(_text, values), _text(mean)])
    return _table(["", *domains, "mean"], lines)
