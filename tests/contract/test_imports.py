"""Imports only go one way between the layers."""

import ast
from pathlib import Path

import labelwise

ROOT = Path(labelwise.__file__).parent
# A module may import from layers below its own, and from its own; never from above.
LAYERS = {
    "errors": 0, "interruption": 0, "core": 1, "ops": 1, "metrics": 1, "settings": 1, "nn": 2, "data": 2, "checks": 2,
    "optimization": 2, "checkpoint": 2, "progress": 2, "distributed": 3, "training": 4, "methods": 5, "tasks": 5,
    "adversarial": 3, "writable": 1, "choice": 6, "encoding": 3, "zero_shot": 6, "toy": 3, "pages": 3, "fitting": 6, "rebuild": 6, "store": 6, "evaluate": 6, "export": 6, "report": 7, "server": 7, "recipe": 6, "reproduce": 7, "demo": 7, "demo_pictures": 7, "cli": 8, "__main__": 9,
}  # fmt: skip


def imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level == 0]
    names += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    return {name.split(".")[1] for name in names if name.startswith("labelwise.")}


def violations(files: dict[str, set[str]]) -> list[str]:
    wrong = []
    for own, used in files.items():
        for name in used:
            if LAYERS[name] > LAYERS[own] or {own, name} == {"methods", "tasks"}:
                wrong.append(f"{own} imports {name}")
    return sorted(wrong)


def test_arrows_point_one_way() -> None:
    found: dict[str, set[str]] = {}
    for path in ROOT.rglob("*.py"):
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if own != "__init__":
            found.setdefault(own, set()).update(imports(path) - {own})
    assert set(found) <= set(LAYERS), "a new module needs a layer"
    assert violations(found) == []


def test_an_arrow_the_wrong_way_is_seen() -> None:
    assert violations({"core": {"methods"}, "tasks": {"methods"}}) == ["core imports methods", "tasks imports methods"]
