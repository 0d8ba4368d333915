"""Print constraints that hold every dependency that pyproject.toml names at the lowest version it allows.

    python tools/lowest.py [--except torch] > lowest.txt && pip install --constraint lowest.txt '.[dev]'

`make lowest` installs them and runs the quick part of the tests: a bound is a promise, and this is where it is kept.
"""

import argparse
import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def lowest(project: Path, extras: tuple[str, ...] = ("dev", "serve", "export", "search", "parquet")) -> dict[str, str]:
    """Return the lowest version of each dependency of the project and of these extras."""
    table = tomllib.loads(project.read_text())["project"]
    wanted = [*table["dependencies"], *(one for name in extras for one in table["optional-dependencies"][name])]
    pairs = (re.match(r"([\w.-]+)(?:\[[^]]*\])?>=([\d.]+)", one) for one in wanted)
    return {pair[1]: pair[2] for pair in pairs if pair}


def main() -> None:
    """Print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--except", dest="left", action="append", default=[], help="A package to leave as it is.")
    given = parser.parse_args()
    for name, version in lowest(PROJECT).items():
        if name not in given.left:
            print(f"{name}=={version}")


if __name__ == "__main__":
    main()
