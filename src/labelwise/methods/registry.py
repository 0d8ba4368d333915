"""Methods by name. A class is imported on first use."""

from collections import UserDict
from functools import cache
from pkgutil import resolve_name
from typing import Any

from labelwise.core.classifier import Classifier
from labelwise.support.errors import StoreError, UnsupportedError, UsageError, listing, needs_torch, suggest
from labelwise.support.plugins import plugins
from labelwise.support.settings import from_plain
from labelwise.train.method import Method

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
    """Return the place of each method's class, "module:Class"; a plug-in's baseline follows its method."""
    places = {name: f"labelwise.methods.{place}" for name, place in _CLASSES.items()}
    for name, (before, place) in ((name, entry) for plugin in plugins() for name, entry in plugin.METHODS.items()):
        at = [*places, before].index(before) + 1
        places = dict([*list(places.items())[:at], (name, place), *list(places.items())[at:]])
    return places


@cache
def _studies() -> dict[str, str]:
    """Return where the classes of methods are that only recipes name."""
    return {name: place for plugin in plugins() for name, place in plugin.STUDIES.items()}


class Methods(UserDict[str, type[Method]]):
    """Methods by name; a class is imported on first use, and methods can be added.

    Studies of a plug-in are found by name, but no list shows them.
    """

    def __contains__(self, name: object) -> bool:
        return name in self.data or name in _studies()

    def __getitem__(self, name: str) -> type[Method]:
        place: Any = self.data[name] if name in self.data else resolve_name(_studies()[name])
        if isinstance(place, str):
            try:
                self.data[name] = resolve_name(place)
            except ModuleNotFoundError as error:
                raise needs_torch(f'Method "{name}"', error) from None
            return self.data[name]
        return place  # type: ignore[no-any-return]


METHODS = Methods()
METHODS.data |= _places()  # type: ignore[arg-type]


def needs_of(name: str) -> tuple[str, ...]:
    """Return the pieces of data that a method trains on, as ``images.overview.inspect`` names them; "torch" where that is missing."""
    try:
        method = METHODS[name]
    except UsageError:
        return ("torch",)
    own = () if method.multilabel else ("one_label",)
    held_out = "targets" in method.needs and not (method.leaves_out or method.zero_shot)
    return (*method.needs, *own, *(("enough",) if held_out else ()))


def method_class(name: str) -> type[Method]:
    """Return the method of this name, or raise an error that lists them."""
    if name not in METHODS:
        raise UsageError(f'No method "{name}".{suggest(name, METHODS)} Methods: {listing(METHODS)}.')
    return METHODS[name]


def method_of(classifier: Classifier) -> Method:
    """Return the method that made a classifier."""
    record = classifier.origin.method
    if record is None:
        raise UnsupportedError("This classifier has no record of the method that made it.")
    if record.name not in METHODS:
        raise StoreError(f'It was made by the method "{record.name}", which this version lacks.')
    return from_plain(METHODS[record.name], record.settings)
