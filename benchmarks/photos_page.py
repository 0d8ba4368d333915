"""The page, and its pictures, that ``photos.py`` writes from what it measured."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

from photos_plots import draw_mean, draw_sets

LEAD = "labelwise"  # the default
EARLIER = "version 0.1"
BEHIND = 0.5  # points behind the best rival that are told
NEAR = 2.0  # points that an estimate may be off
HEADS = ("softmax", "indicator", "prototype")  # other methods of the library: no rivals of its default
Line = dict[str, Any]
Results = dict[str, list[Line]]  # of each set
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
}  # what it holds, which split, whether settings were chosen looking at its test pictures


def write_page(folder: Path, file: Path) -> None:
    """Write the page, Markdown, of all results in a folder, and its pictures into the folder ``pictures`` beside its own."""
    names = {path.stem for path in folder.glob("*.jsonl")}
    order = [name for name in SETS if name in names] + sorted(names - set(SETS))
    sets = {name: [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()] for name in order}
    plain = {name: [row for row in rows if _is_plain(row["cell"])] for name, rows in sets.items()}
    pictures = file.parent.parent / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    rivals = [rival for rival in _rivals(plain) if rival not in HEADS]
    values = {
        name: {rival: {s: _figure(rows, rival, s, "accuracy") for s in _shots(plain)} for rival in rivals}
        for name, rows in plain.items()
    }
    draw_mean(values, pictures / "photos-mean.png")
    draw_sets(values, pictures / "photos-sets.png")
    first, notes = folder / "first_run.json", folder / "notes.md"  # notes: what is to be known of this run alone
    parts = [
        HEAD.format(summary=_summary(plain), limit=_late(plain), **json.loads((folder / "machine.json").read_text())),
        notes.read_text().strip() if notes.exists() else "",
        _sets(plain),
        _first_run(json.loads(first.read_text())) if first.exists() else "",
        *_accuracies(plain),
        _behind(plain),
        _means(plain),
        _alone(sets),
        _estimates(plain),
        _added(sets),
        _domains(sets),
    ]
    file.write_text("\n\n".join(part for part in parts if part) + "\n")


HEAD = """# Your own photos: `fit` beside what a person would do instead

`labelwise fit photos/` turns each photo into 1,280 numbers with a network that has seen millions of pictures (EfficientNet-lite0), and then fits a small
head on these numbers, by default [discriminant](../discriminant.md). This page asks whether that head is any good: everybody else here gets **the same numbers**.
The others are three lines of scikit-learn (logistic regression as it comes, on scaled features, and with C and scaling chosen by cross-validation),
the nearest mean, the 5 nearest neighbours, and the default of version 0.1.

{summary}

Where the default is behind, how well it knows its own accuracy, and what happens to labels added later stands further down, with the figures of each set.

![Accuracy against pictures a label, mean over sets](../pictures/photos-mean.png)

![The same, set by set](../pictures/photos-sets.png)

**How it was measured.** `python benchmarks/photos.py FOLDER NAME=DATA ... --page docs/results/photos.md`; torch {torch}, scikit-learn {sklearn}, {machine}. Three
draws of the training pictures (all pictures: one draw; softmax, indicator, prototype: one); the same test pictures for all. A process and one thread for each
cell, {jobs} at a time, so seconds are too long, for all alike; a few were timed alone, too. `version 0.1` is that version's own code. "-": not possible with so few pictures, not measured, or
{limit}. Of large sets some pictures of each label and some test pictures were drawn once (below: how many); features were kept in half precision. fastai and AutoGluon's
classifier of pictures are left out: both require torchvision, which this project does not."""


def _late(lines: Results) -> str:
    """Return what is said of cells that were not waited for."""
    late = {row["error"] for rows in lines.values() for row in rows if "more than" in row.get("error", "")}
    return " or ".join(sorted(late)) or "too slow"


def _summary(lines: Results) -> str:
    """Return in sentences how the default does on average."""
    sentences = []
    for shots in (shots for shots in _shots(lines) if shots in (1, 5, 20, 0)):
        means = {rival: _mean(lines, rival, shots, "accuracy") for rival in _rivals(lines) if rival not in HEADS}
        others = {rival: mean for rival, mean in means.items() if mean is not None and rival != LEAD}
        if means.get(LEAD) is None or not others:
            continue
        best = max(others, key=lambda rival: others[rival])
        before = f"; version 0.1 {_text(others[EARLIER])} %" if EARLIER in others and best != EARLIER else ""
        sentences.append(
            f"- **{_words(shots)}**: `labelwise` is right on {_text(means[LEAD])} % of test pictures, the best of the others ({best}) on {_text(others[best])} %{before}."
        )
    return f"Means over {len(lines)} sets of photos, by training pictures a label:\n\n" + "\n".join(sentences)


def _is_plain(cell: Line) -> bool:
    return not (cell["taught"] or cell["alone"] or cell["domain"])


def _shots(lines: Results) -> list[int]:
    numbers = {row["cell"]["shots"] for rows in lines.values() for row in rows}
    return sorted(numbers, key=lambda shots: shots or 10**9)


def _words(shots: int) -> str:
    return f"{shots} a label" if shots else "all"


def _rivals(lines: Results) -> list[str]:
    """Return who was measured, the default first and its kin last."""
    names = dict.fromkeys(row["cell"]["rival"] for rows in lines.values() for row in rows)
    return sorted(names, key=lambda rival: (rival != LEAD, rival in HEADS, rival))


def _figure(rows: Iterable[Line], rival: str, shots: int, what: str) -> float | None:
    """Return the mean over draws of a figure, None where it was not measured."""
    cells = [row for row in rows if row["cell"]["rival"] == rival and row["cell"]["shots"] == shots]
    values = [row[what] for row in cells if what in row]
    return fmean(values) if values and len(values) == len(cells) else None


def _mean(lines: Results, rival: str, shots: int, what: str) -> float | None:
    """Return the mean over sets, None where one of them was not measured."""
    values = [_figure(part, rival, shots, what) for part in lines.values()]
    return None if None in values else fmean(value for value in values if value is not None)


def _text(value: float | None, digits: int = 1, unit: float = 100) -> str:
    return NONE if value is None else f"{unit * value:.{digits}f}"


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def _sets(lines: Results) -> str:
    """Return what the sets are."""
    rows = []
    for name, part in lines.items():
        what, split, seen = SETS.get(name, ("", "", ""))
        sizes = [(row["images"], row["tested"]) for row in part if "images" in row]
        train, test = max(sizes, default=(0, 0))
        rows.append([name, what, split, f"{train:,}", f"{test:,}", seen])
    words = "Settings of `labelwise` were chosen looking at test pictures of Flowers, Pets and BMW: there its figures are optimistic. No setting was chosen by test pictures of CUB, PACS and TinyImageNet; but training pictures of PACS showed that sketches were taken for copies of each other, which was mended (a test figure of it was seen before that)."
    head = ["set", "what", "split", "train, at most", "test", "settings chosen on it"]
    return f"## The sets\n\n{words}\n\n" + _table(head, rows)


def _first_run(result: Line) -> str:
    """Return the tables of ``first_run.py``."""
    times: dict[str, list[list[float]]] = result["fit"]
    rows = [[name, *(f"{wall:.1f} ({busy:.1f})" for wall, busy in runs)] for name, runs in times.items()]
    before, now = times[EARLIER], times[LEAD]
    for title, place in (("times as fast", 0), ("by the processor", 1)):
        rows.append([title, *(f"{before[0][place] / run[place]:.1f}" for run in now)])
    start = [[name, f"{wall:.2f}", f"{busy:.2f}"] for name, (wall, busy) in result["start"].items()]
    words = f"`labelwise fit` on {result['about']}: wall seconds (those of the processor). The second run finds features in the cache."
    return "\n\n".join(
        [
            f"## From photos to a classifier\n\n{words}",
            _table(["", "first run", "second run"], rows),
            _table(["one command, seconds", "wall", "processor"], start),
        ]
    )


def _accuracies(lines: Results) -> Iterable[str]:
    """Yield a table of accuracies for each number of pictures."""
    for shots in _shots(lines):
        rows = []
        for rival in _rivals(lines):
            values = [_figure(part, rival, shots, "accuracy") for part in lines.values()]
            if any(value is not None for value in values):
                rows.append([rival, *map(_text, values), _text(_mean(lines, rival, shots, "accuracy"))])
        yield f"## Accuracy, %: {_words(shots)}\n\n" + _table(["", *lines, "mean"], rows)


def _means(lines: Results) -> str:
    """Return the other figures, means over sets."""
    kinds: dict[str, tuple[str, Callable[[float | None], str]]] = {
        "ECE, %": ("ece", _text),
        "NLL": ("nll", lambda value: _text(value, 2, 1)),
        "seconds": ("seconds", lambda value: _text(value, 1, 1)),
        "MB": ("memory_mb", lambda value: _text(value, 0, 1)),
    }
    words = "ECE: how far probabilities are from how often they are right. NLL: minus the mean log probability of the right label. MB: memory beyond the features."
    parts = [f"## Calibration, seconds of the head, memory: means over sets\n\n{words}"]
    for title, (what, text) in kinds.items():
        rows = [[rival, *(text(_mean(lines, rival, s, what)) for s in _shots(lines))] for rival in _rivals(lines)]
        parts.append(_table([title, *map(_words, _shots(lines))], rows))
    return "\n\n".join(parts)


def _alone(sets: Results) -> str:
    """Return seconds and memory of cells that ran alone."""
    lines = {name: [row for row in rows if row["cell"]["alone"]] for name, rows in sets.items()}
    lines = {name: rows for name, rows in lines.items() if rows}
    if not lines:
        return ""
    columns = [(name, shots) for name in lines for shots in _shots({name: lines[name]})]
    rows = []
    for rival in _rivals(lines):
        figures = [
            (_figure(lines[n], rival, s, "seconds"), _figure(lines[n], rival, s, "memory_mb")) for n, s in columns
        ]
        rows.append(
            [rival, *(f"{_text(a, 2, 1)} s, {_text(b, 0, 1)} MB" if a is not None else NONE for a, b in figures)]
        )
    words = "One thread, nothing else on the machine."
    return f"## Seconds of the head, alone\n\n{words}\n\n" + _table(
        ["", *(f"{n}, {_words(s)}" for n, s in columns)], rows
    )


def _behind(lines: Results) -> str:
    """Return where the default is behind the best rival."""
    rivals = [rival for rival in _rivals(lines) if rival not in (LEAD, *HEADS)]
    rows, count = [], 0
    for name, part in lines.items():
        for shots in _shots(lines):
            own = _figure(part, LEAD, shots, "accuracy")
            others = {rival: _figure(part, rival, shots, "accuracy") for rival in rivals}
            best, rival = max(
                ((value, rival) for rival, value in others.items() if value is not None), default=(0.0, "")
            )
            count += own is not None
            if own is not None and 100 * (best - own) > BEHIND:
                rows.append([name, _words(shots), _text(own), _text(best), rival])
    title = f"## Where the default is more than {BEHIND} points behind the best of the others"
    words = f"In {len(rows)} of {count} cells. The best is chosen anew for each cell, looking at the test pictures."
    return f"{title}\n\n{words}" + ("\n\n" + _table(["set", "pictures", LEAD, "best", "which"], rows) if rows else "")


def _estimates(lines: Results) -> str:
    """Return how near the accuracy estimated by leave-one-out is to that on test pictures."""
    rows: list[list[str]] = []
    gaps: dict[int, list[float]] = defaultdict(list)
    covered: dict[int, list[bool]] = defaultdict(list)
    for name, part in lines.items():
        own = [row for row in part if row["cell"]["rival"] == LEAD and "as_trained" in row]
        for shots in _shots(lines):
            cells = [row for row in own if row["cell"]["shots"] == shots]
            if not cells:
                continue
            inside = [row["estimate_low"] <= row["as_trained"] <= row["estimate_high"] for row in cells]
            keys = ("estimate_accuracy", "as_trained", "accuracy")
            estimate, truth, plain = (fmean(row[key] for row in cells) for key in keys)
            gaps[shots].append(abs(estimate - truth) * 100)
            covered[shots] += inside
            figures = (_text(each) for each in (estimate, truth, plain))
            rows.append([name, _words(shots), *figures, f"{sum(inside)} of {len(cells)}"])
    if not rows:
        return ""
    near = ", ".join(f"{_words(s)} {sum(g <= NEAR for g in gaps[s])} of {len(gaps[s])}" for s in gaps)
    cover = ", ".join(f"{_words(s)} {sum(covered[s])} of {len(covered[s])}" for s in covered)
    words = (
        "The estimate is of pictures whose labels are as frequent as in training; *test, labels as in training* counts the test pictures so (the test part of Flowers has more of the hard ones). "
        f"Sets where it is within {NEAR:.0f} points of that: {near}. Draws whose 95 % interval holds it: {cover}."
    )
    return f"## Accuracy by leave-one-out, without a test picture\n\n{words}\n\n" + _table(
        ["set", "pictures", "estimate", "test, labels as in training", "test", "interval covers"], rows
    )


def _added(sets: Results) -> str:
    """Return how well labels added later are told."""
    lines = {name: [row for row in rows if row["cell"]["taught"]] for name, rows in sets.items()}
    numbers = sorted({int(key[4:]) for rows in lines.values() for row in rows for key in row if key.startswith("new_")})
    if not numbers:
        return ""
    names = [name for name, rows in lines.items() if rows]
    tables = []
    for number in numbers:
        rows = []
        for rival in _rivals(lines):
            pairs = [[_figure_of(lines[name], rival, f"{side}_{number}") for side in ("new", "old")] for name in names]
            means = [None if None in side else fmean(side) for side in zip(*pairs, strict=True)]
            rows.append([rival, *(" / ".join(map(_text, pair)) for pair in (*pairs, means))])
        tables.append(_table([f"{number} example{'s' * (number > 1)}", *names, "mean"], rows))
    words = (
        "A fifth of the labels is added, with so many examples each, to a classifier of the others (20 pictures each); right on new / on old labels, %. "
        "`labelwise` and version 0.1 are taught label by label; what is refitted is fitted to everything at once."
    )
    return f"## Labels added later\n\n{words}\n\n" + "\n\n".join(tables)


def _figure_of(rows: Iterable[Line], rival: str, what: str) -> float | None:
    values = [row[what] for row in rows if row["cell"]["rival"] == rival and what in row]
    return fmean(values) if values else None


def _domains(sets: Results) -> str:
    """Return how well a domain is told that was not trained on."""
    parts = []
    for name, rows in sets.items():
        lines = [row for row in rows if row["cell"]["domain"]]
        domains = sorted({row["cell"]["domain"] for row in lines})
        table = []
        for rival in _rivals({name: lines}):
            values = [_figure((r for r in lines if r["cell"]["domain"] == d), rival, 0, "accuracy") for d in domains]
            mean = None if None in values else fmean(value for value in values if value is not None)
            table.append([rival, *map(_text, values), _text(mean)])
        if domains:
            words = "Accuracy, %, on test pictures of one kind after training on the other kinds alone."
            parts.append(
                f"## A kind of picture not trained on: {name}\n\n{words}\n\n" + _table(["", *domains, "mean"], table)
            )
    return "\n\n".join(parts)
