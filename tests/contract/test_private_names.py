"""No private name of another package is used: not imported, not reached through a module, not overridden by ``super()``."""

import ast
from collections.abc import Iterator, Mapping

from tests.contract.trees import ROOT, files, tree_of

NAMED_TUPLE = {"_asdict", "_fields", "_make", "_replace"}  # documented in spite of their names
# Uses that remain; each is to go.
OPEN = set[str]()


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_own(module: str) -> bool:
    return module.partition(".")[0] in ("labelwise", "labelwise_papers")


def dotted(node: ast.expr) -> str:
    """Return the names of a chain of attributes, the first of them blank where it is no name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each local name that an import of another package makes, and what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.asname or each.name.partition(".")[0], each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((each.asname or each.name, f"{node.module}.{each.name}") for each in node.names)


def defined(tree: ast.AST) -> Iterator[str]:
    """Yield the private names of members that the classes of a module define."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from (each.name for each in node.body if isinstance(each, ast.FunctionDef))
            targets = (each.target if isinstance(each, ast.AnnAssign) else None for each in node.body)
            yield from (each.id for each in targets if isinstance(each, ast.Name))
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and dotted(node.value) in ("self", "cls")
        ):
            yield node.attr


def uses(tree: ast.AST, own: set[str]) -> Iterator[str]:
    """Yield the private names of other packages that a module uses; ``own`` are those that this package defines."""
    others = {name: full for name, full in imported(tree) if not is_own(full)}
    yield from (full for full in others.values() if any(map(is_private, full.split("."))))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not is_private(node.attr) or node.attr in NAMED_TUPLE:
            continue
        base = node.value
        if dotted(base).partition(".")[0] in others:
            yield dotted(node)
        elif isinstance(base, ast.Call) and dotted(base.func) == "super":
            yield f"super().{node.attr}"
        elif node.attr not in own:
            yield node.attr


def found(trees: Mapping[str, ast.AST]) -> set[str]:
    own = {name for tree in trees.values() for name in defined(tree)}
    return {f"{name}: {use}" for name, tree in trees.items() for use in uses(tree, own)}


def test_no_private_name_of_another_package_is_used() -> None:
    every = found({str(path.relative_to(ROOT)): tree_of(path) for path in files()})
    parts = {use for use in every if any(other.startswith(f"{use}.") for other in every)}  # of a longer chain
    assert {use for use in every - parts if not use.startswith("labelwise/server/")} <= OPEN


def test_private_names_are_seen() -> None:
    source = """
import torch
from uvicorn._types import Scope
class Model(torch.nn.Module):
    def _own(self): return self._own()
    def forward(self, pool):
        super()._call_impl()
        pool._processes.clear()
        return torch._foreach_add
"""
    wanted = {"uvicorn._types.Scope", "super()._call_impl", "_processes", "torch._foreach_add"}
    assert found({"a": ast.parse(source)}) == {f"a: {name}" for name in wanted}
