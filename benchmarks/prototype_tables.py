"""Tables of what benchmarks/prototype.py measured, as Markdown.

    python benchmarks/prototype_tables.py RESULTS.jsonl

Figures are in per cent, means over seeds, with the standard deviation where there are several. Results of ``--quick``, ``--held-out`` and
``--set`` are left out.
"""

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
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


def cell(figures: Figures, pick: Callable[[dict[str, Any]], float | None]) -> str:
    """Return the mean of a figure over seeds, in per cent; a dash where it was not measured."""
    values = [100 * value for value in map(pick, figures) if value is not None]
    if not values:
        return "-"
    spread = f" +- {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


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
            picks = [
                cell(figures, lambda f, v=view: f[v].get("all images", f[v])["clean"]),  # type: ignore[misc]
                *(cell(figures, lambda f, v=view, a=a: f[v]["attacks"].get(a)) for a in attacks),  # type: ignore[misc]
                cell(figures, lambda f, v=view: f[v]["worst"]),  # type: ignore[misc]
                cell(figures, lambda f, v=view: f[v].get("all images", {}).get("pgd-20")),  # type: ignore[misc]
            ]
            rows.append([shown.replace("+at", " + AT"), *picks])
    return table(title, ["", "clean", *attacks, "worst of all", "pgd-20, all images"], rows)


def pairs(title: str, methods: dict[str, Figures]) -> str:
    """Return the table of retrieval and verification."""
    rows = []
    for name, figures in methods.items():
        for by in figures[0]["retrieval"]:
            picks = [cell(figures, lambda f, b=by, r=r: f["retrieval"][b][r]) for r in (*RANKS, "map_at_r")]  # type: ignore[misc]
            picks.append(cell(figures, lambda f, b=by: f["verification"][b]["eer"]))  # type: ignore[misc]
            rows.append([name, by, *picks])
    return table(title, ["", "compared by", *(f"R@{r}" for r in RANKS), "MAP@R", "EER"], rows)


def episodes(title: str, methods: dict[str, Figures]) -> str:
    """Return the table of episodes, with 95 % intervals over them for one seed."""
    kinds = [key for key in next(iter(methods.values()))[0] if "shot" in key]
    rows = []
    for name, figures in methods.items():
        for rule in figures[0][kinds[0]]:
            picks = []
            for kind in kinds:
                error = f" +- {100 * figures[0][kind][rule]['error']:.1f}" if len(figures) == 1 else ""
                picks.append(cell(figures, lambda f, k=kind, r=rule: f[k][r]["mean"]) + error)  # type: ignore[misc]
            rows.append([name, rule, *picks])
    return table(f"{title}: 600 episodes", ["", "rule", *kinds], rows)


def domains(title: str, methods: dict[str, Figures]) -> str:
    """Return the table of domains left out."""
    rows = []
    for name, figures in methods.items():
        for view, first in figures[0].items():
            shown = name if view == name else f"{name}, {view}"
            each = [cell(figures, lambda f, v=view, d=d: f[v]["domains"][d]["strict"]) for d in first["domains"]]  # type: ignore[misc]
            means = [cell(figures, lambda f, v=view, r=r: f[v][r]) for r in ("strict", "oracle")]  # type: ignore[misc]
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
