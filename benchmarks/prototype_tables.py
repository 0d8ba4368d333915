"""Tables of what benchmarks/prototype.py measured, as Markdown.

    python benchmarks/prototype_tables.py RESULTS.jsonl

Figures are in per cent, means over seeds, with the standard deviation where there are several. Results of ``--quick``, ``--held-out`` and
``--set`` are left out.
"""

import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

NAMES = {
    "mnist": "MNIST, epsilon 0.3",
    "cifar10": "CIFAR-10, epsilon 8/255",
    "pacs": "PACS at 64 pixels, the domain left out",
    "cub": "CUB-200 at 64 pixels, 100 new labels",
    "omniglot": "Omniglot, characters of new alphabets",
    "audio": "AudioMNIST, 20 new speakers",
}
RANKS = ("1", "2", "4", "8", "16")
Figures = list[dict[str, Any]]  # of one method, one for each seed


def read(path: Path) -> dict[str, dict[str, Figures]]:
    """Return figures by job, method and seed."""
    found: dict[str, dict[str, Figures]] = {name: {} for name in NAMES}
    for line in path.read_text().splitlines():
        one = json.loads(line)
        if not one["quick"] and not one["held_out"] and not one["set"]:
            found[one["job"]].setdefault(one["name"], []).append(one["figures"])
    return {job: dict(sorted(methods.items(), key=_place)) for job, methods in found.items() if methods}


def _place(item: tuple[str, object]) -> tuple[bool, int]:
    name = item[0].removesuffix("+at")
    order = ("softmax", "prototype", "multi-similarity", "proxy-anchor", "triplet")
    return item[0].endswith("+at"), order.index(name)


def cell(figures: Figures, *path: str) -> str:
    """Return the mean over seeds of the figure at a path, in per cent; a dash where it was not measured."""
    shares = values(figures, *path)
    if not shares:
        return "-"
    spread = f" +- {statistics.stdev(shares):.1f}" if len(shares) > 1 else ""
    return f"{statistics.mean(shares):.1f}{spread}"


def values(figures: Figures, *path: str) -> list[float]:
    """Return the figure at a path in per cent, one for each seed that has it."""
    return [100 * value for value in (_at(one, path) for one in figures) if value is not None]


def _at(figures: Any, path: Sequence[str]) -> float | None:
    for key in path:
        figures = {} if figures is None else figures.get(key)
    return figures if isinstance(figures, float) else None


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table under a heading."""
    lines = [f"### {title}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def attacked(title: str, methods: dict[str, Figures]) -> str:
    """Return the table of accuracies under attack."""
    first = next(iter(methods.values()))[0]
    attacks = list(next(iter(v for v in first.values() if isinstance(v, dict)))["attacks"])
    rows = []
    for name, figures in methods.items():
        for view in (each for each in figures[0] if each != "data"):
            shown = name if view == name.removesuffix("+at") else f"{name}, {view}"
            own = "all images" in figures[0][view]
            picks = [cell(figures, view, "all images", "clean") if own else cell(figures, view, "clean")]
            picks += [cell(figures, view, "attacks", attack) for attack in attacks]
            picks += [cell(figures, view, "worst"), cell(figures, view, "all images", "pgd-20")]
            rows.append([shown.replace("+at", " + AT"), *picks])
    return table(title, ["", "clean", *attacks, "worst of all", "pgd-20, all images"], rows)


def pairs(title: str, methods: dict[str, Figures]) -> str:
    """Return the table of retrieval and verification."""
    rows = []
    for name, figures in methods.items():
        for by in dict.fromkeys(by for one in figures for by in one["retrieval"]):
            picks = [cell(figures, "retrieval", by, rank) for rank in (*RANKS, "map_at_r")]
            picks.append(cell(figures, "verification", by, "eer"))
            rows.append([name, by, str(sum(by in one["retrieval"] for one in figures)), *picks])
    return table(title, ["", "compared by", "seeds", *(f"R@{r}" for r in RANKS), "MAP@R", "EER"], rows)


def episodes(title: str, methods: dict[str, Figures]) -> str:
    """Return the table of episodes: with the spread over seeds, or for one seed with 95 % intervals over its episodes."""
    kinds = [key for key in next(iter(methods.values()))[0] if "shot" in key]
    rows = []
    for name, figures in methods.items():
        for rule in figures[0][kinds[0]]:
            picks = []
            for kind in kinds:
                error = f" +- {100 * figures[0][kind][rule]['error']:.1f}" if len(figures) == 1 else ""
                picks.append(cell(figures, kind, rule, "mean") + error)
            rows.append([name, rule, str(len(figures)), *picks])
    return table(f"{title}: 600 episodes", ["", "rule", "seeds", *kinds], rows)


def domains(title: str, methods: dict[str, Figures]) -> str:
    """Return the table of domains left out."""
    rows = []
    for name, figures in methods.items():
        for view, first in figures[0].items():
            shown = name if view == name else f"{name}, {view}"
            each = [cell(figures, view, "domains", domain, "strict") for domain in first["domains"]]
            means = [cell(figures, view, rule) for rule in ("strict", "oracle")]
            rows.append([shown, *each, *means])
    names = [domain.replace("_", " ") for domain in next(iter(next(iter(methods.values()))[0].values()))["domains"]]
    return table(title, ["", *names, "mean, strict", "mean, oracle"], rows)


def tables(path: Path) -> str:
    """Return all tables."""
    found = []
    for job, methods in read(path).items():
        if job in ("mnist", "cifar10"):
            found.append(attacked(NAMES[job], methods))
        elif job == "pacs":
            found.append(domains(NAMES[job], methods))
        else:
            found.append(pairs(NAMES[job], methods))
            if any("shot" in key for key in next(iter(methods.values()))[0]):
                found.append(episodes(NAMES[job], methods))
    return "\n".join(found)


if __name__ == "__main__":
    print(tables(Path(sys.argv[1])), end="")
