"""Print requirements that hold every dependency that pyproject.toml names at the lowest version it allows.

    python tools/lowest.py > lowest.txt && pip install --requirement lowest.txt

`make lowest` installs them and runs the quick part of the tests: a bound is a promise, and this is where it is kept. Torch is left
as it is installed, since a second one is hundreds of megabytes; tools of development are, since nobody else installs them.
"""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def lowest(project: Path, extras: tuple[str, ...] = ("serve", "train", "plots", "search", "parquet")) -> dict[str, str]:
    """Return the lowest version of each dependency of the project and of these extras."""
    table = tomllib.loads(project.read_text())["project"]
    wanted = [*table["dependencies"], *(one for name in extras for one in table["optional-dependencies"][name])]
    pairs = (re.match(r"([\w.-]+)(?:\[[^]]*\])?>=([\d.]+)", one) for one in wanted)
    return {pair[1]: pair[2] for pair in pairs if pair}


if __name__ == "__main__":
    for name, version in lowest(PROJECT).items():
        if name != "torch":
            print(f"{name}=={version}")
