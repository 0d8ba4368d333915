"""The page that ``photos.py`` writes from what it measured."""

import json
import platform
from collections import defaultdict
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

LEAD = "labelwise"  # the default
BEHIND = 0.5  # points behind the best rival that are told
NEAR = 2.0  # points that an estimate may be off
HEADS = ("softmax", "indicator", "prototype")  # other methods of the library: no rivals of its default
Line = dict[str, Any]
NONE = "-"


def page(folder: Path) -> str:
    """Return the page, Markdown, of all results in a folder."""
    sets = {
        file.stem: [json.loads(line) for line in file.read_text().splitlines()]
        for file in sorted(folder.glob("*.jsonl"))
    }
    lines = {name: [line for line in rows if not line["cell"]["taught"]] for name, rows in sets.items()}
    parts = [
        HEAD.format(**_about(lines)),
        *_accuracies(lines),
        _means(lines),
        _behind(lines),
        _estimates(lines),
        _added(sets),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


HEAD = """# Your own photos: `fit` beside what a person would do instead

`python benchmarks/photos.py FOLDER NAME=DATA ... --page docs/results/photos.md`. {sets}; features of the frozen EfficientNet-lite0, the
same for all; a process and one thread for each cell; torch {torch}, scikit-learn {sklearn}, {machine}. Three draws of the training
pictures (all pictures: one); test pictures as the sets say. `labelwise` is `lw.fit` without options. `version 0.1` is the default of that
version. Tuned logistic regression chooses C of six by cross-validation, on scaled features. `nearest mean` and `nearest neighbours` (5) go
by cosines. "-": not possible with so few pictures, or not measured.

fastai and AutoGluon's classifier of pictures are left out: both require torchvision, which this project does not."""


def _about(lines: dict[str, list[Line]]) -> dict[str, str]:
    versions = {"torch": version("torch"), "sklearn": version("scikit-learn"), "machine": platform.machine()}
    return {**versions, "sets": f"{len(lines)} sets ({', '.join(lines)})"}


def _shots(lines: dict[str, list[Line]]) -> list[int]:
    numbers = {line["cell"]["shots"] for rows in lines.values() for line in rows}
    return sorted(numbers, key=lambda shots: shots or 10**9)


def _words(shots: int) -> str:
    return f"{shots} a label" if shots else "all"


def _rivals(lines: dict[str, list[Line]]) -> list[str]:
    return list(dict.fromkeys(line["cell"]["rival"] for rows in lines.values() for line in rows))


def _figure(rows: Iterable[Line], rival: str, shots: int, what: str) -> float | None:
    """Return the mean over draws of a figure, None where it was not measured."""
    cells = [row for row in rows if row["cell"]["rival"] == rival and row["cell"]["shots"] == shots]
    values = [row[what] for row in cells if what in row]
    return fmean(values) if values and len(values) == len(cells) else None


def _text(value: float | None, digits: int = 1, unit: float = 100) -> str:
    return NONE if value is None else f"{unit * value:.{digits}f}"


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def _accuracies(lines: dict[str, list[Line]]) -> Iterable[str]:
    """Yield a table of accuracies for each number of pictures."""
    for shots in _shots(lines):
        rows = []
        for rival in _rivals(lines):
            values = [_figure(part, rival, shots, "accuracy") for part in lines.values()]
            whole = [value for value in values if value is not None]
            mean = fmean(whole) if whole and len(whole) == len(values) else None
            rows.append([rival, *(_text(value) for value in values), _text(mean)])
        yield f"## Accuracy, %: {_words(shots)}\n\n" + _table(["", *lines, "mean"], rows)


def _means(lines: dict[str, list[Line]]) -> str:
    """Return the other figures, means over sets."""
    kinds: dict[str, tuple[str, Callable[[float | None], str]]] = {
        "ECE, %": ("ece", _text),
        "NLL": ("nll", lambda value: _text(value, 2, 1)),
        "seconds": ("seconds", lambda value: _text(value, 1, 1)),
        "MB": ("memory_mb", lambda value: _text(value, 0, 1)),
    }
    parts = ["## Calibration, seconds of the head, memory: means over sets"]
    for title, (what, text) in kinds.items():
        rows = []
        for rival in _rivals(lines):
            cells = [[_figure(part, rival, shots, what) for part in lines.values()] for shots in _shots(lines)]
            means = [None if None in row else fmean(value for value in row if value is not None) for row in cells]
            rows.append([rival, *map(text, means)])
        parts.append(_table([title, *map(_words, _shots(lines))], rows))
    return "\n\n".join(parts)


def _behind(lines: dict[str, list[Line]]) -> str:
    """Return where the default is behind the best rival."""
    rivals = [rival for rival in _rivals(lines) if rival not in (LEAD, *HEADS)]
    rows = []
    for name, part in lines.items():
        for shots in _shots(lines):
            own = _figure(part, LEAD, shots, "accuracy")
            others = {rival: _figure(part, rival, shots, "accuracy") for rival in rivals}
            best, rival = max(
                ((value, rival) for rival, value in others.items() if value is not None), default=(0.0, "")
            )
            if own is not None and 100 * (best - own) > BEHIND:
                rows.append([name, _words(shots), _text(own), _text(best), rival])
    words = f"Where the default is more than {BEHIND} points behind the best of the others"
    return f"## {words}\n\n" + (_table(["set", "pictures", LEAD, "best", "which"], rows) if rows else "Nowhere.")


def _estimates(lines: dict[str, list[Line]]) -> str:
    """Return how near the accuracy estimated by leave-one-out is to that on test pictures."""
    rows, gaps = [], defaultdict(list)
    for name, part in lines.items():
        own = [row for row in part if row["cell"]["rival"] == LEAD and "estimate_accuracy" in row]
        for shots in _shots(lines):
            cells = [row for row in own if row["cell"]["shots"] == shots]
            if not cells:
                continue
            inside = sum(row["estimate_low"] <= row["accuracy"] <= row["estimate_high"] for row in cells)
            estimate, truth = fmean(row["estimate_accuracy"] for row in cells), fmean(row["accuracy"] for row in cells)
            gaps[shots].append(abs(estimate - truth) * 100)
            rows.append([name, _words(shots), _text(estimate), _text(truth), f"{inside} of {len(cells)}"])
    if not rows:
        return ""
    near = ", ".join(f"{_words(s)} {sum(g <= NEAR for g in gaps[s])} of {len(gaps[s])}" for s in gaps)
    head = f"## Accuracy by leave-one-out, without a test picture\n\nWithin {NEAR:.0f} points of the test accuracy: {near} sets."
    return head + "\n\n" + _table(["set", "pictures", "estimate", "test", "interval covers"], rows)


def _added(sets: dict[str, list[Line]]) -> str:
    """Return how well labels added later are told."""
    lines = {name: [row for row in rows if row["cell"]["taught"] and "new" in row] for name, rows in sets.items()}
    numbers = sorted({row["cell"]["taught"] for rows in lines.values() for row in rows})
    if not numbers:
        return ""
    rows = []
    for name, part in lines.items():
        for rival in _rivals({name: part}):
            texts = []
            for number in numbers:
                cells = [r for r in part if r["cell"]["rival"] == rival and r["cell"]["taught"] == number]
                pairs = [(row["new"], row["old"]) for row in cells]
                texts.append(" / ".join(_text(fmean(side)) for side in zip(*pairs, strict=True)) if pairs else NONE)
            rows.append([name, rival, *texts])
    words = "A fifth of the labels is added to a classifier of the others (20 pictures each); right on new / on old, %"
    return f"## Labels added later\n\n{words}.\n\n" + _table(["set", "", *(f"{n} examples" for n in numbers)], rows)
