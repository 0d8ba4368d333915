"""Check what a source archive and a wheel contain, as ``python -m build`` writes them: ``make plain`` does.

python tools/package.py FOLDER
"""

import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("src", "tests", "benchmarks", "tools", "docs", "deploy", ".ci")
LEFT_BY_TOOLS = {"__pycache__", ".git", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
TOP = (
    "AGENTS.md", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile", "NOTICE", "README.md", "SECURITY.md", "constraints.txt",
    "pyproject.toml", "requirements.lock", ".pre-commit-config.yaml",
)  # fmt: skip


def files_under(folder: str) -> set[str]:
    """Return the files of a folder of the checkout, without what tools leave there."""
    every = (path for path in (ROOT / folder).rglob("*") if path.is_file())
    paths = (path.relative_to(ROOT) for path in every)
    return {path.as_posix() for path in paths if not LEFT_BY_TOOLS & set(path.parts)}


def check_wheel(names: set[str]) -> list[str]:
    """Return what is wrong with the files of a wheel: it holds all of ``src``, its licences, and nothing else."""
    packages = {name.removeprefix("src/") for name in files_under("src")}
    about = {name for name in names if name.partition("/")[0].endswith(".dist-info")}
    wrong = [f"the wheel lacks {name}" for name in sorted(packages - names)]
    wrong += [f"the wheel should not hold {name}" for name in sorted(names - about - packages)]
    licences = {name.rpartition("/licenses/")[2] for name in about}
    return wrong + [f"the wheel lacks {name}" for name in ("LICENSE", "NOTICE") if name not in licences]


def check_sdist(names: set[str]) -> list[str]:
    """Return what is wrong with the files of a source archive: everything that ``make test`` needs is there."""
    needed = {*TOP}.union(*map(files_under, SOURCES))
    wrong = [f"the source archive lacks {name}" for name in sorted(needed - names)]
    others = names - needed - {"PKG-INFO", ".gitignore"}
    return wrong + [f"the source archive should not hold {name}" for name in sorted(others)]


def main(folder: Path) -> None:
    """Check the one wheel and the one source archive of a folder; exit with 1 if something is wrong."""
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        wrong = check_wheel(set(archive.namelist()))
    with tarfile.open(sdist) as packed:
        wrong += check_sdist({name.partition("/")[2] for name in packed.getnames()})
    print(*wrong or (f"{wheel.name} and {sdist.name} are complete.",), sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
