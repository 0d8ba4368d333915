"""The methods: one file each, and their names. A file is imported when its method is asked for."""

from collections import UserDict
from importlib import import_module
from typing import TYPE_CHECKING, Any

from labelwise.support.errors import UsageError, listing, suggest
from labelwise.support.plugins import plugins, what_lies_at
from labelwise.train.stages import Method

if TYPE_CHECKING:
    from labelwise.methods.clarel.method import Clarel
    from labelwise.methods.discriminant.method import Discriminant
    from labelwise.methods.eszsl import Eszsl
    from labelwise.methods.indicator.method import Indicator
    from labelwise.methods.izf.method import Izf
    from labelwise.methods.multilabel import Multilabel
    from labelwise.methods.prototype.method import Prototype
    from labelwise.methods.shared.linear import Encoder, ImageMethod
    from labelwise.methods.softmax import Softmax
    from labelwise.methods.zero_label.method import ZeroLabel

# Where the class of each method is.
_CLASSES = {
    "discriminant": "discriminant.method:Discriminant",
    "indicator": "indicator.method:Indicator",
    "prototype": "prototype.method:Prototype",
    "softmax": "softmax:Softmax",
    "multilabel": "multilabel:Multilabel",
    "clarel": "clarel.method:Clarel",
    "eszsl": "eszsl:Eszsl",
    "izf": "izf.method:Izf",
    "zero_label": "zero_label.method:ZeroLabel",
}


def _places() -> dict[str, str]:
    """Return where the class of each method lies, "module:Class"; one of a plug-in stands behind that whose baseline it is."""
    places = {name: f"labelwise.methods.{place}" for name, place in _CLASSES.items()}
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
