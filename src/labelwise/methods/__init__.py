"""The methods: one file each, and their names."""

from labelwise.errors import UsageError, listing, suggest
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
from labelwise.training.stages import Method

_TRAINED = (Discriminant, Indicator, Prototype, Softmax, Multilabel, Supcon)
_EVERY = (*_TRAINED, Clarel, Eszsl, Ridge, Devise, Izf, Cgan, ZeroLabel)
METHODS: dict[str, type[Method]] = {method.name: method for method in _EVERY}


def method_class(name: str) -> type[Method]:
    """Return the method of this name, or raise an error that lists them."""
    if name not in METHODS:
        raise UsageError(f'No method "{name}".{suggest(name, METHODS)} Methods: {listing(METHODS)}.')
    return METHODS[name]


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
