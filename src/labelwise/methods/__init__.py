"""The methods: one file each, and their names. A file is imported when its method is asked for."""

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from labelwise.errors import UsageError, listing, suggest
from labelwise.training.stages import Method

if TYPE_CHECKING:
    from labelwise.methods.cgan import Cgan
    from labelwise.methods.clarel import Clarel
    from labelwise.methods.devise import Devise
    from labelwise.methods.discriminant import Discriminant
    from labelwise.methods.eszsl import Eszsl
    from labelwise.methods.indicator import Indicator
    from labelwise.methods.izf import Izf
    from labelwise.methods.multilabel import Multilabel
    from labelwise.methods.prototype import Prototype
    from labelwise.methods.ridge import Ridge
    from labelwise.methods.shared.linear import Encoder, ImageMethod
    from labelwise.methods.softmax import Softmax
    from labelwise.methods.supcon import Supcon
    from labelwise.methods.zero_label import ZeroLabel

# The class of each method, which lies in the file of its name.
_CLASSES = {
    "discriminant": "Discriminant",
    "indicator": "Indicator",
    "prototype": "Prototype",
    "softmax": "Softmax",
    "multilabel": "Multilabel",
    "supcon": "Supcon",
    "clarel": "Clarel",
    "eszsl": "Eszsl",
    "ridge": "Ridge",
    "devise": "Devise",
    "izf": "Izf",
    "cgan": "Cgan",
    "zero_label": "ZeroLabel",
}


class Methods(MutableMapping[str, type[Method]]):
    """Methods by name, in the order of ``_CLASSES``; one more may be put in."""

    def __init__(self) -> None:
        self._classes: dict[str, type[Method] | str] = dict(_CLASSES)

    def __getitem__(self, name: str) -> type[Method]:
        place = self._classes[name]
        if isinstance(place, str):
            place = self._classes[name] = getattr(import_module(f"labelwise.methods.{name}"), place)
        return place

    def __setitem__(self, name: str, method: type[Method]) -> None:
        self._classes[name] = method

    def __delitem__(self, name: str) -> None:
        del self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)


METHODS = Methods()


def method_class(name: str) -> type[Method]:
    """Return the method of this name, or raise an error that lists them."""
    if name not in METHODS:
        raise UsageError(f'No method "{name}".{suggest(name, METHODS)} Methods: {listing(METHODS)}.')
    return METHODS[name]


def __getattr__(name: str) -> Any:
    """Return a public name, importing where it lives on first use."""
    place = {kind: file for file, kind in _CLASSES.items()}.get(name)
    if place is None and name in ("Encoder", "ImageMethod"):
        place = "shared.linear"
    if place is None:
        raise AttributeError(f"module labelwise.methods has no attribute {name!r}")
    return getattr(import_module(f"labelwise.methods.{place}"), name)


__all__ = [
    "METHODS",
    "Cgan",
    "Clarel",
    "Devise",
    "Discriminant",
    "Encoder",
    "Eszsl",
    "ImageMethod",
    "Indicator",
    "Izf",
    "Method",
    "Multilabel",
    "Prototype",
    "Ridge",
    "Softmax",
    "Supcon",
    "ZeroLabel",
    "method_class",
]
