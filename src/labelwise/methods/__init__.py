"""The methods: one file each, and their names. A file is imported when its method is asked for."""

from collections import UserDict
from importlib import import_module
from typing import TYPE_CHECKING, Any

from labelwise.errors import UsageError, listing, suggest
from labelwise.plugins import plugins, what_lies_at
from labelwise.training.stages import Method

if TYPE_CHECKING:
    from labelwise.methods.clarel import Clarel
    from labelwise.methods.discriminant import Discriminant
    from labelwise.methods.eszsl import Eszsl
    from labelwise.methods.indicator import Indicator
    from labelwise.methods.izf import Izf
    from labelwise.methods.multilabel import Multilabel
    from labelwise.methods.prototype import Prototype
    from labelwise.methods.shared.linear import Encoder, ImageMethod
    from labelwise.methods.softmax import Softmax
    from labelwise.methods.zero_label import ZeroLabel

# The class of each method, which lies in the file of its name.
_CLASSES = {
    "discriminant": "Discriminant",
    "indicator": "Indicator",
    "prototype": "Prototype",
    "softmax": "Softmax",
    "multilabel": "Multilabel",
    "clarel": "Clarel",
    "eszsl": "Eszsl",
    "izf": "Izf",
    "zero_label": "ZeroLabel",
}


def _places() -> dict[str, str]:
    """Return where the class of each method lies, "module:Class"; one of a plug-in stands behind that whose baseline it is."""
    places = {name: f"labelwise.methods.{name}:{kind}" for name, kind in _CLASSES.items()}
    for name, (before, place) in ((name, more) for plugin in plugins() for name, more in plugin.METHODS.items()):
        at = list(places).index(before) + 1
        places = dict([*list(places.items())[:at], (name, place), *list(places.items())[at:]])
    return places


class Methods(UserDict[str, type[Method]]):
    """Methods by name; a class is imported when it is asked for, and one more may be put in."""

    def __getitem__(self, name: str) -> type[Method]:
        place: Any = self.data[name]
        if isinstance(place, str):
            self.data[name] = what_lies_at(place)
        return self.data[name]


METHODS = Methods()
METHODS.data |= _places()  # type: ignore[arg-type]


def method_class(name: str) -> type[Method]:
    """Return the method of this name, or raise an error that lists them."""
    if name not in METHODS:
        raise UsageError(f'No method "{name}".{suggest(name, METHODS)} Methods: {listing(METHODS)}.')
    return METHODS[name]


def __getattr__(name: str) -> Any:
    """Return a public name, importing where it lives on first use."""
    if name in ("Encoder", "ImageMethod"):
        return getattr(import_module("labelwise.methods.shared.linear"), name)
    method = next((method for method, place in _places().items() if place.endswith(f":{name}")), None)
    if method is None:
        raise AttributeError(f"module labelwise.methods has no attribute {name!r}")
    return METHODS[method]


__all__ = [
    "METHODS", "Clarel", "Discriminant", "Encoder", "Eszsl", "ImageMethod", "Indicator", "Izf", "Method",
    "Multilabel", "Prototype", "Softmax", "ZeroLabel", "method_class",
]  # fmt: skip
