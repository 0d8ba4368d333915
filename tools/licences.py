"""Write docs/licences.md: what is installed beside labelwise, and under which licence.

    python tools/licences.py

Of the packages that the core and each extra ask for, and of all that these ask for, as far as they are installed here.
"""

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("serve", "postgres", "export", "search", "gallery", "parquet")
LONGEST = 60  # letters: some packages put the whole text where the name of the licence belongs


def needed(name: str, extras: tuple[str, ...] = (), known: set[str] | None = None) -> set[str]:
    """Return the names of all packages that one asks for with these extras, and that are installed."""
    known = set() if known is None else known
    try:
        wanted = distribution(name).requires or []
    except PackageNotFoundError:
        return known
    for line in wanted:
        other, marker = re.split(r"[ ;<>=!~\[(]", line)[0].lower().replace("_", "-"), line.partition(";")[2]
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", marker)
        if other in known or other == name or (extra and extra[1] not in extras):
            continue
        try:
            distribution(other)
        except PackageNotFoundError:
            continue  # for another system or another Python
        known.add(other)
        needed(other, tuple(re.findall(r"\[([\w-]+)\]", line.partition(";")[0])), known)
    return known


def licence(name: str) -> str:
    """Return the licence that a package says it has."""
    about = distribution(name).metadata
    classes = [
        line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or [] if line.startswith("License ::")
    ]
    expression, words = (about[key] if key in about else "" for key in ("License-Expression", "License"))  # noqa: SIM401 - its type has no get
    named = expression or ", ".join(classes) or words.strip()
    return named if named and len(named) <= LONGEST else "see the package"


def main() -> None:
    """Write the page."""
    lines = [
        "# Licences",
        "",
        "What `labelwise` and its extras serve, postgres, export, search, gallery and parquet bring along, as `tools/licences.py` finds it in the",
        "packages themselves. Benchmarks name their own: `labelwise data where NAME`.",
        "",
        "| package | version | licence |",
        "|---|---|---|",
    ]
    for name in sorted(needed("labelwise", EXTRAS) - {"labelwise"}):
        lines.append(f"| {name} | {distribution(name).version} | {licence(name).replace('|', '/')} |")
    (ROOT / "docs" / "licences.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
