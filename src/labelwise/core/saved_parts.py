"""Convert heads and encoders to plain settings, arrays and files, and back.

A head is a frozen dataclass. Its arrays, those of the dataclasses inside it and those in mappings become named arrays
(``projection/mean``); its ``Labels`` become words and arrays; every other field is a plain JSON setting. What is read is checked
against the types and the declared shapes before anything is computed with it.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, cast, get_origin

import numpy as np

from labelwise.core.head import Array, Head
from labelwise.encoders.encoder import Encoder, Precomputed
from labelwise.encoders.joined import JoinedEncoder
from labelwise.encoders.onnx import OnnxEncoder, card_file, open_onnx
from labelwise.encoders.registry import open_registered
from labelwise.images.describe.labels import Labels
from labelwise.images.view import View
from labelwise.support.errors import StoreError, UnsupportedError, UsageError
from labelwise.support.plugins import plugins
from labelwise.support.settings import convert, from_plain, hints_of, options_of, to_plain

# The class of each kind of head, imported when needed; plug-ins may add more.
HEADS = {
    "discriminant": "labelwise.methods.discriminant.head:DiscriminantHead",
    "linear": "labelwise.methods.shared.head:LinearHead",
    "bilinear": "labelwise.methods.shared.head:BilinearHead",
    "prototype": "labelwise.methods.prototype.head:PrototypeHead",
    "clarel": "labelwise.methods.clarel.head:ClarelHead",
    "words_and_images": "labelwise.methods.words.words_and_images:WordsAndImagesHead",
    "words": "labelwise.methods.words.head:WordsHead",
    "izf": "labelwise.methods.izf.head:IzfHead",
    "izf_softmax": "labelwise.methods.izf.head:IzfSoftmaxHead",
    "named_clusters": "labelwise.methods.zero_label.head:NamedHead",
}
ARRAYS = ("vectors", "shares", "similarity")  # the pieces of labels that are arrays


@dataclass(frozen=True)
class Packed:
    """A head as saved."""

    kind: str
    settings: Mapping[str, Any]  # plain JSON values
    arrays: Mapping[str, Array]


def shaped(*shape: str | int, dtype: str = "f", optional: bool = False) -> Any:
    """Return the field of an array of this shape: letters, ``d+1``, or numbers.

    A letter is one size everywhere in a head; with ``_`` before it, in one dataclass. ``dtype`` is the kind of numbers: f (float),
    i (integer) or b (bool).
    """
    metadata = {"shape": shape, "dtype": dtype}
    return field(default=None, metadata=metadata) if optional else field(metadata=metadata)


def head_class(kind: str) -> type[Any]:
    """Return the class of a kind of head, importing it."""
    places = {**HEADS, **{name: place for plugin in plugins() for name, place in plugin.HEADS.items()}}
    if kind not in places:
        raise StoreError(f'It has a head of unknown kind "{kind}". Update labelwise, or fit again.')
    return cast(type[Any], resolve_name(places[kind]))


def pack(head: Head) -> Packed:
    """Return a head as plain settings and arrays."""
    arrays: dict[str, Array] = {}
    return Packed(head.kind, _pack(head, "", arrays), arrays)


def unpack(content: Packed) -> Head:
    """Rebuild a packed head; raise an error if a part does not fit its class."""
    remaining = dict(content.arrays)
    sizes: dict[str, int] = {}
    head = _unpack(head_class(content.kind), content.settings, "", remaining, sizes)
    if remaining:
        raise UsageError(f'a head of the kind "{content.kind}" has no array "{min(remaining)}"')
    return cast(Head, head)


def label_words(labels: Labels) -> dict[str, Any]:
    """Return label descriptions as plain values, without arrays."""
    words = {"names": list(labels.names), "texts": to_plain(labels.texts), "order": to_plain(labels.order)}
    return words if labels.parents is None else {**words, "parents": to_plain(labels.parents)}


def label_arrays(labels: Labels) -> dict[str, Array]:
    """Return the arrays of label descriptions."""
    pieces = {name: getattr(labels, name) for name in ARRAYS}
    return {name: np.asarray(piece) for name, piece in pieces.items() if piece is not None}


def labels_of(words: Mapping[str, Any], arrays: Mapping[str, Any]) -> Labels:
    """Rebuild labels from plain values and arrays."""
    tuples = tuple[tuple[str, ...], ...]
    texts = None if words["texts"] is None else convert(words["texts"], tuples, "texts")
    parents = None if words.get("parents") is None else convert(words["parents"], tuples, "parents")
    order = None if words["order"] is None else tuple(words["order"])
    for name, array in arrays.items():
        if array.dtype.kind != "f":
            raise UsageError(f'"{name}" of labels holds {array.dtype} numbers')
    return Labels(names=tuple(words["names"]), texts=texts, order=order, parents=parents, **arrays)


def _pack(part: Any, prefix: str, arrays: dict[str, Array]) -> dict[str, Any]:
    """Return the settings of a dataclass; add its arrays to ``arrays``."""
    settings: dict[str, Any] = {}
    for item in fields(part):
        name, value = f"{prefix}{item.name}", getattr(part, item.name)
        if isinstance(value, np.ndarray):
            arrays[name] = value
        elif isinstance(value, Labels):
            settings[item.name] = label_words(value)
            arrays |= {f"{name}/{piece}": array for piece, array in label_arrays(value).items()}
        elif _holds_arrays(value):
            arrays |= {f"{name}/{key}": array for key, array in value.items()}
        elif is_dataclass(value):
            settings[item.name] = _pack(value, f"{name}/", arrays)
        elif "shape" not in item.metadata:
            settings[item.name] = to_plain(value)
    return settings


def _holds_arrays(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(item, np.ndarray) for item in value.values())


def _unpack(
    kind: type[Any], settings: Mapping[str, Any], prefix: str, arrays: dict[str, Array], sizes: dict[str, int]
) -> Any:
    """Rebuild a dataclass from its settings and its arrays, which are removed from ``arrays``."""
    if not isinstance(settings, Mapping):
        raise UsageError(f'"{prefix}" must be a table of names and values')
    hints, values = hints_of(kind), dict[str, Any]()
    if unknown := set(settings) - {item.name for item in fields(kind)}:
        raise UsageError(f'No setting "{prefix}{min(unknown)}" of {kind.__name__}.')
    for item in fields(kind):
        name, hint = f"{prefix}{item.name}", hints[item.name]
        part = next((option for option in options_of(hint) if is_dataclass(option)), None)
        if "shape" in item.metadata:
            values[item.name] = _array(name, item, arrays, sizes)
        elif get_origin(hint) is Mapping and hint.__args__[1] == Array:
            inside = [key for key in arrays if key.startswith(f"{name}/")]
            values[item.name] = {key.removeprefix(f"{name}/"): arrays.pop(key) for key in inside}
        elif item.name not in settings and item.default is MISSING:
            raise UsageError(f'There is no "{name}", which must be given.')
        elif hint is Labels:
            own = [f"{name}/{piece}" for piece in ARRAYS if f"{name}/{piece}" in arrays]
            pieces = {key.removeprefix(f"{name}/"): arrays.pop(key) for key in own}
            values[item.name] = labels_of(settings[item.name], pieces)
            _bind(f"labels of {name}", ("k",), (len(values[item.name]),), sizes)
        elif part is not None and settings.get(item.name) is not None:
            values[item.name] = _unpack(cast(type[Any], part), settings[item.name], f"{name}/", arrays, sizes)
        elif item.name in settings:
            values[item.name] = convert(settings[item.name], hint, name)
    return kind(**values)


def _array(name: str, of: Field[Any], arrays: dict[str, Array], sizes: dict[str, int]) -> Array | None:
    """Return an array with the declared kind and shape, or None if it is optional and missing."""
    if name not in arrays:
        if of.default is MISSING:
            raise UsageError(f'there is no array "{name}"')
        return None
    array = arrays.pop(name)
    if array.dtype.kind != of.metadata["dtype"]:
        raise UsageError(f'"{name}" holds {array.dtype} numbers')
    _bind(name, of.metadata["shape"], array.shape, sizes)
    return array


def _bind(name: str, declared: tuple[str | int, ...], shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    """Check a shape against its declaration; a letter seen first takes its size from the shape."""
    fits = len(declared) == len(shape)
    for letter, size in zip(declared, shape, strict=False):
        base, _, extra = str(letter).partition("+")
        key = name.rpartition("/")[0] + base if base.startswith("_") else base
        expected = int(base) if base.isdigit() else sizes.setdefault(key, size - int(extra or 0))
        fits = fits and expected + int(extra or 0) == size
    if not fits:
        raise UsageError(f'"{name}" has the shape {list(shape)}, not {list(declared)} with {sizes}')


FREE = ("method", "summary")  # parts of a description that may hold any number, since nothing is computed from them
ENCODER, CARD = "encoder.onnx", "encoder.json"


def check_finite(description: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Raise an error that names the first value that is not finite."""
    bad = next((name for key in description if key not in FREE for name in _not_finite(description[key], key)), None)
    for name, array in arrays.items():
        if bad is None and array.dtype.kind == "f" and not np.isfinite(array).all():
            bad = name
    if bad is not None:
        raise StoreError(
            f'"{bad}" is not finite (NaN or infinity), probably because training diverged. Fit again with a lower '
            "learning rate (--set optimizer.lr=...), or without extreme values in the data."
        )


def _not_finite(value: Any, name: str) -> Iterator[str]:
    """Yield the dotted names of values that are not finite."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from _not_finite(part, f"{name}.{key}")
    if isinstance(value, float) and not math.isfinite(value):
        yield name


def checksum(description: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a description."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def encoder_files(encoder: Encoder) -> tuple[dict[str, Any], Mapping[str, bytes]]:
    """Return the description of an encoder, and the content of its own files, if any."""
    description = {"id": encoder.id, "name": encoder.name, "shape": list(encoder.shape), "width": encoder.width}
    if isinstance(encoder, Precomputed):
        return {"kind": "features", **description}, {}
    if isinstance(encoder, JoinedEncoder):
        parts, files = [], dict[str, bytes]()
        for place, part in enumerate(encoder.parts):
            part_description, own = encoder_files(part)
            parts.append(part_description)
            files |= {_numbered(name, place): content for name, content in own.items()}
        return {"kind": "joined", **description, "parts": parts}, files
    reference = getattr(encoder, "reference", None)
    if reference is not None:
        return {"kind": "shared", **description, "view": to_plain(reference)}, {}
    onnx_encoder = as_onnx(encoder)
    description |= {"id": onnx_encoder.id}
    return {"kind": "own", **description}, {ENCODER: onnx_encoder.content, CARD: card_file(onnx_encoder.card)}


def as_onnx(encoder: Encoder) -> OnnxEncoder:
    """Return the ONNX form of an encoder."""
    if isinstance(encoder, JoinedEncoder):
        raise UnsupportedError(f"{encoder.name} joins several networks, but one file holds one. Fit with one of them.")
    exporter = getattr(encoder, "exporter", None)  # a torch encoder names the function that exports it
    onnx_encoder = encoder if exporter is None else resolve_name(exporter)(encoder)
    if not isinstance(onnx_encoder, OnnxEncoder):
        raise UnsupportedError(
            f"The encoder {encoder.name} cannot be saved: it is neither an ONNX file nor a shared encoder."
        )
    return onnx_encoder


def _numbered(name: str, place: int | None) -> str:
    """Return the file name of one part of a joined encoder."""
    return name if place is None else f"{place}-{name}"


def saved_encoder(description: Mapping[str, Any], folder: Path, place: int | None = None) -> Encoder:
    """Rebuild the encoder of a description; its graph is read on first use.

    ``place``: which part of a joined encoder it is.
    """
    kind, shape = description["kind"], tuple(description["shape"])
    encoder: Encoder
    if kind == "features" and len(shape) == 1:
        encoder = Precomputed(shape[0])
    elif kind == "shared":
        encoder = open_registered(description["name"], shape, from_plain(View, description["view"]))
    elif kind == "joined" and place is None:
        parts = enumerate(description["parts"])
        encoder = JoinedEncoder(tuple(saved_encoder(part, folder, number) for number, part in parts))
    elif kind == "own":
        onnx_encoder = open_onnx(
            folder / _numbered(ENCODER, place)
        )  # a copy: later changes of the folder do not affect it
        encoder = OnnxEncoder(
            onnx_encoder.card, onnx_encoder.id, partial(bytes, onnx_encoder.content), int(description["width"])
        )
    else:
        raise StoreError(f'It has an encoder of unknown kind "{kind}". Update labelwise, or fit again.')
    if encoder.id != description["id"] or encoder.shape != shape:
        raise StoreError(
            f"It was made with a different version of the encoder {encoder.name}, whose features differ. Fit again."
        )
    return encoder
