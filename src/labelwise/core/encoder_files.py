"""The encoder of a saved classifier: a reference to a shared one, or files of its own."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from labelwise.encoders.encoder import Encoder, Precomputed
from labelwise.encoders.joined import JoinedEncoder
from labelwise.encoders.onnx import OnnxEncoder, card_file, open_onnx
from labelwise.encoders.registry import open_registered
from labelwise.images.view import View
from labelwise.support.errors import StoreError, UnsupportedError
from labelwise.support.plugins import import_object
from labelwise.support.settings import from_plain, to_plain

ENCODER, CARD = "encoder.onnx", "encoder.json"


def encoder_files(encoder: Encoder) -> tuple[dict[str, Any], Mapping[str, bytes]]:
    """Return what a description says of an encoder, and the content of its own files, if it has any."""
    about = {"id": encoder.id, "name": encoder.name, "shape": list(encoder.shape), "width": encoder.width}
    if isinstance(encoder, Precomputed):
        return {"kind": "features", **about}, {}
    if isinstance(encoder, JoinedEncoder):
        parts, files = [], dict[str, bytes]()
        for place, part in enumerate(encoder.parts):
            described, own = encoder_files(part)
            parts.append(described)
            files |= {_numbered(name, place): content for name, content in own.items()}
        return {"kind": "joined", **about, "parts": parts}, files
    reference = getattr(encoder, "reference", None)
    if reference is not None:
        return {"kind": "shared", **about, "view": to_plain(reference)}, {}
    exported = as_onnx(encoder)
    about |= {"id": exported.id}
    return {"kind": "own", **about}, {ENCODER: exported.content, CARD: card_file(exported.card)}


def as_onnx(encoder: Encoder) -> OnnxEncoder:
    """Return an encoder as one that ONNX Runtime runs."""
    if isinstance(encoder, JoinedEncoder):
        raise UnsupportedError(f"{encoder.name} is several networks, and one file holds one. Fit with one of them.")
    exporter = getattr(encoder, "exporter", None)  # of one that runs in torch: what writes it as an ONNX file
    exported = encoder if exporter is None else import_object(exporter)(encoder)
    if not isinstance(exported, OnnxEncoder):
        raise UnsupportedError(f"The encoder {encoder.name} cannot be saved: it is no ONNX file, and shared by nobody.")
    return exported


def _numbered(name: str, place: int | None) -> str:
    """Return the name of a file of one part of a joined encoder."""
    return name if place is None else f"{place}-{name}"


def saved_encoder(about: Mapping[str, Any], folder: Path, place: int | None = None) -> Encoder:
    """Return the encoder of a description; its graph is read when it is first asked for features.

    ``place``: which part of a joined encoder it is.
    """
    kind, shape = about["kind"], tuple(about["shape"])
    encoder: Encoder
    if kind == "features" and len(shape) == 1:
        encoder = Precomputed(shape[0])
    elif kind == "shared":
        encoder = open_registered(about["name"], shape, from_plain(View, about["view"]))
    elif kind == "joined" and place is None:
        parts = enumerate(about["parts"])
        encoder = JoinedEncoder(tuple(saved_encoder(part, folder, number) for number, part in parts))
    elif kind == "own":
        opened = open_onnx(
            folder / _numbered(ENCODER, place)
        )  # its content stays as it is now, whatever becomes of the folder
        encoder = OnnxEncoder(opened.card, opened.id, partial(bytes, opened.content), int(about["width"]))
    else:
        raise StoreError(f'It has an encoder of the kind "{kind}", which this version does not know.')
    if encoder.id != about["id"] or encoder.shape != shape:
        raise StoreError(
            f"It was made with another encoder than {encoder.name} of this version: its features differ. Fit again."
        )
    return encoder
