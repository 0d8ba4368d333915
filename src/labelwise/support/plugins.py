"""Lazy imports of public names, and plug-ins that add methods, backbones, data sets, layouts and verbs.

A plug-in is a module with members of ``Plugin``; what it leaves out it does not offer. A package names its module in the entry-point
group ``labelwise.plugins``. The module must be quick to import: ``labelwise --help`` reads its verbs.
"""

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast
from warnings import warn

from labelwise.support.errors import LabelwiseWarning

PLUGINS = ("labelwise_papers.plugin",)
GROUP = "labelwise.plugins"  # of entry points: "name = module"


class Plugin(Protocol):
    """The extensions of a plug-in."""

    VERBS: Mapping[
        str, Sequence[Callable[..., None]]
    ]  # functions that become commands of ``labelwise``, by group of --help
    DATA_VERBS: Sequence[Callable[..., None]]  # and of ``labelwise data``
    METHODS: Mapping[str, tuple[str, str]]  # by name: the method before it in lists, and its place, "module:Class"
    STUDIES: Mapping[str, str]  # where each method is that only recipes name
    BACKBONES: Mapping[str, str]  # where each is, likewise
    ON_FEATURES: Sequence[str]  # the backbones that take features or waveforms, not images
    ENCODERS: Mapping[str, str]  # where each is: a function of shape and view, see ``open_encoder``
    HEADS: Mapping[str, str]  # where each kind of head is, likewise

    def names(self) -> Iterable[str]:
        """Return the names of the data sets that ``load`` knows."""

    def load(self, name: str, *, root: str | Path | None, size: int | None, protocol: str | None, seed: int) -> Any:
        """Load a data set by name, with a way to divide or label it."""

    def reads(self, path: Path) -> bool:
        """Return whether ``read`` supports the layout of a folder."""

    def read(self, path: Path, seed: int) -> Any:
        """Return the ``Dataset`` of a folder."""

    def rows(self, root: str | Path | None) -> list[Mapping[str, Any]]:
        """Return a row for each data set: name, what, classes, train, test, and where it was found."""


class _Offers:
    """A plug-in from a module that may leave members out."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        empty: dict[str, Any] = {
            "names": tuple, "reads": lambda _: False, "rows": lambda _: [], "DATA_VERBS": (), "ON_FEATURES": (),
        }  # fmt: skip
        return getattr(self._module, name, empty.get(name, {}))


@cache
def plugins() -> tuple[Plugin, ...]:
    """Return the plug-ins that are installed; one that cannot be imported is left out, with a warning."""
    modules = [cast(Plugin, import_module(name)) for name in PLUGINS if find_spec(name.partition(".")[0]) is not None]
    for entry in metadata.entry_points(group=GROUP):
        try:
            modules.append(cast(Plugin, _Offers(import_module(entry.value))))
        except Exception as error:  # whatever the code of others raises
            words = f'The plug-in "{entry.name}" ({entry.value}) is left out, because it cannot be imported: {error}.'
            warn(words, LabelwiseWarning, stacklevel=2)
    return tuple(modules)


def plugin_with(name: str) -> Plugin | None:
    """Return the plug-in that has a data set of this name, if any."""
    return next((plugin for plugin in plugins() if name in plugin.names()), None)


def plugin_for(folder: Path) -> Plugin | None:
    """Return the plug-in that reads the layout of a folder, if any."""
    return next((plugin for plugin in plugins() if plugin.reads(folder)), None)


def lazy_names(module: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a module from its imports under ``if TYPE_CHECKING``.

    if TYPE_CHECKING:
        from labelwise.core.classifier import Classifier as Classifier
    else:
        __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
    """
    block = next(node for node in ast.parse(Path(file).read_text("utf-8")).body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    places = {alias.asname or alias.name: (node.module or "", alias.name) for node in imports for alias in node.names}

    def load(name: str) -> Any:
        """Import the module of a public name, and return the object."""
        if name not in places:
            raise AttributeError(f"module {module} has no attribute {name!r}")
        home, own = places[name]
        return import_module(f"{home}.{own}") if home == module else getattr(import_module(home), own)

    names = sorted(places)
    return load, lambda: names, names
