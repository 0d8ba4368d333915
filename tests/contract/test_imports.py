"""Imports go down only, between packages and between modules: no cycle anywhere, imports inside functions counted too.

What type checkers alone import makes no cycle.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.contract.trees import ROOT, files, tree_of

# A module may import from rooms below its own, and from its own; never from above.
LAYERS = {
    "support": 0, "images": 1, "encoders": 2, "core": 3, "train": 4, "tasks": 5, "methods": 6, "fitting": 7, "label": 8, "jobs": 8,
    "evaluation": 9, "reporting": 10, "server": 10, "api": 10, "data": 10, "calls": 11, "sklearn": 12, "demo": 12, "cli": 13, "__main__": 14, "papers": 14,
}  # fmt: skip
# Arrows that still point up; each is to go.
OPEN = set[str]()


def modules() -> dict[str, Path]:
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files()}


@cache
def imported(path: Path) -> list[tuple[str, list[str], bool]]:
    """Return the modules that one names in imports, what it takes of each, and whether only type checkers follow that import."""
    taken: list[tuple[str, list[str], bool]] = []

    def walk(node: ast.AST, typed: bool) -> None:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            taken.append((node.module, [alias.name for alias in node.names], typed))
        elif isinstance(node, ast.Import):
            taken.extend((alias.name, [], typed) for alias in node.names)
        typed = typed or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr):  # no import is inside one
                walk(child, typed)

    walk(tree_of(path), False)
    return taken


def imports(path: Path, known: Mapping[str, Path], *, types: bool = True) -> set[str]:
    """Return the modules that one imports; those for type checkers alone only if asked for."""
    names: set[str] = set()
    for module, parts, typed in imported(path):
        if types or not typed:
            full = {f"{module}.{part}" for part in parts}
            names |= full if full and full <= set(known) else {*full, module}
    return names & set(known)


def layer(module: str) -> str:
    parts = module.split(".")
    return "papers" if parts[0] == "labelwise_papers" else parts[1] if len(parts) > 1 else "labelwise"


def violations(used: Mapping[str, set[str]]) -> list[str]:
    wrong = []
    for own, others in used.items():
        for other in others - {"labelwise"}:
            a, b = layer(own), layer(other)
            if a != b and LAYERS[b] > LAYERS[a]:
                wrong.append(f"{own} imports {other}")
    return sorted(wrong)


def cycles(used: Mapping[str, set[str]]) -> Iterator[tuple[str, ...]]:
    """Yield a cycle of modules for each import that closes one, by a walk from every module."""
    done: set[str] = set()

    def walk(module: str, trail: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if module in trail:
            yield (*trail[trail.index(module) :], module)
            return
        if module in done:
            return
        for other in sorted(used.get(module, ())):
            yield from walk(other, (*trail, module))
        done.add(module)

    for module in sorted(used):
        yield from walk(module, ())


def test_arrows_point_one_way() -> None:
    known = modules()
    used = {name: imports(path, known) for name, path in known.items() if name != "labelwise"}
    assert {layer(name) for name in used} <= set(LAYERS), "a new module needs a layer"
    assert set(violations(used)) == OPEN


def test_there_is_no_cycle() -> None:
    known = modules()
    packages = {name for name, path in known.items() if path.name == "__init__.py"}
    each = {name: imports(path, known, types=False) for name, path in known.items() if name != "labelwise"}
    used = {name: others - {"labelwise"} for name, others in each.items()}
    assert list(cycles(used)) == []
    assert packages


def test_a_wrong_arrow_and_a_cycle_are_seen() -> None:
    used = {"labelwise.core.scores": {"labelwise.methods.softmax"}, "labelwise.images.view": {"labelwise.tasks.ask"}}
    assert violations(used) == [
        "labelwise.core.scores imports labelwise.methods.softmax",
        "labelwise.images.view imports labelwise.tasks.ask",
    ]
    assert violations({"labelwise.images.catalogue": {"labelwise_papers.benchmarks"}})
    assert list(cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == [("a", "b", "c", "a")]
