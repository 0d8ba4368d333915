"""Draws how many CIFAR-10 pictures stand attacks, from the weakest to the strongest, beside the paper's figures.

    python benchmarks/prototype_plot.py RESULTS.jsonl OUT.png

Ours are those of benchmarks/prototype.py; the paper's stand in the recipe prototype/table1.
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure
from prototype_tables import read, values

from labelwise_papers.recipe import find_recipes

ATTACKS = {"FGSM": "fgsm", "PGD 7": "pgd-7", "PGD 20": "pgd-20", "worst of six": ""}
MODELS = {
    "similarity": ("prototype", "sim", "SIM, CIFAR-10"),
    "softmax": ("softmax", "softmax", "Undefended, CIFAR-10"),
    "similarity, adversarial training": ("prototype+at", "sim", "SIM+AT, CIFAR-10"),
    "softmax, adversarial training": ("softmax+at", "softmax", ""),
}


def main(results: Path, out: Path) -> None:
    """Write the picture."""
    (recipe,) = find_recipes("prototype/table1")
    rows = {row.name: row.expect["cifar10"] for row in recipe.rows if "cifar10" in row.expect}
    methods = read(results)["cifar10"]
    figure = Figure(figsize=(6.4, 4.4), layout="constrained", facecolor="white")
    place = figure.subplots()
    for number, (title, (method, view, paper)) in enumerate(MODELS.items()):
        paths = [(view, "attacks", name) if name else (view, "worst") for name in ATTACKS.values()]
        ours = [values(methods[method], *path)[0] for path in paths]
        place.plot(list(ATTACKS), ours, f"C{number}o-", label=title)
        if paper:
            printed = [(name, rows[paper][name]) for name in ATTACKS if name in rows[paper]]
            place.plot(*zip(*printed, strict=True), f"C{number}x:", label=f"{title}: the paper's")
    place.set_ylabel("pictures that stand, %")
    place.grid(alpha=0.3)
    place.spines[["top", "right"]].set_visible(False)
    place.set_ylim(-4, 118)
    place.legend(fontsize=8, frameon=False, ncols=2, loc="upper center")
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
