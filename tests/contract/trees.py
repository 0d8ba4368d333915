"""Syntax trees of the packages: each module is parsed once for all tests that walk it."""

import ast
from functools import cache
from pathlib import Path

import labelwise

ROOT = Path(labelwise.__file__).parent.parent


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the tree of a module."""
    return ast.parse(path.read_text())


@cache
def files() -> tuple[Path, ...]:
    """Return the modules of both packages."""
    return tuple(sorted(path for name in ("labelwise", "labelwise_papers") for path in (ROOT / name).rglob("*.py")))
