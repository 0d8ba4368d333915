"""Public names that are imported on first use; a module names each once, in an import for type checkers."""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(module: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a module from its imports under ``if TYPE_CHECKING``.

    if TYPE_CHECKING:
        from labelwise.core.classifier import Classifier as Classifier
    else:
        __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
    """
    block = next(node for node in ast.parse(Path(file).read_text("utf-8")).body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    places = {each.asname or each.name: (node.module or "", each.name) for node in imports for each in node.names}

    def load(name: str) -> Any:
        """Return a public name, importing where it lives."""
        if name not in places:
            raise AttributeError(f"module {module} has no attribute {name!r}")
        home, own = places[name]
        return import_module(f"{home}.{own}") if home == module else getattr(import_module(home), own)

    names = sorted(places)
    return load, lambda: names, names
