"""Encoders by name. Opening one never downloads anything."""

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from labelwise.encoders.efficientnet import FORM, VARIANTS, WIDTH, write_graph
from labelwise.encoders.encoder import Encoder
from labelwise.encoders.joined import JoinedEncoder
from labelwise.encoders.library import FILE, library, open_file, open_from_library
from labelwise.encoders.onnx import Card, OnnxEncoder, read_file
from labelwise.images.view import WHOLE, View
from labelwise.support.cache import GRAPHS, digest, is_on, user_folder
from labelwise.support.errors import UsageError, listing, suggest
from labelwise.support.plugins import import_object, plugins
from labelwise.support.writable import write_atomically

DEFAULT: Final = "efficientnet_lite0"


def open_encoder(name: str = DEFAULT, shape: tuple[int, ...] | None = None, view: View = WHOLE) -> Encoder:
    """Return the encoder of a name or at the path of an .onnx file.

    Args:
        name: ``efficientnet_lite0``, one that ``labelwise encoders`` lists, what a plug-in adds, the path of an .onnx file with a card
            or of a folder that holds one, or several of these joined by ``+``.
        shape: of the images ``(c, h, w)``; None is the one that the encoder was made for, and the only one that a file has.
        view: how images of the shape are seen.
    """
    if parts := joined_names(name):
        shape = next((fixed.shape for part in parts if (fixed := _fixed(part, view))), shape)
        return JoinedEncoder(tuple(open_encoder(part, shape, view) for part in parts))
    encoder = _fixed(name, view)
    if encoder is None:
        return open_registered(name, shape, view)
    if shape not in (None, encoder.shape):
        raise UsageError(f'"{name}" takes images of shape {list(encoder.shape)}; given {list(shape or ())}.')
    return encoder


def open_registered(name: str, shape: tuple[int, ...] | None, view: View) -> Encoder:
    """Return the encoder of a name, as ``open_encoder`` does; the path of a file is refused."""
    if name in VARIANTS:
        return _published(name, shape, view)
    if name in library():
        return open_from_library(name, view)
    added = {each: place for plugin in plugins() for each, place in plugin.ENCODERS.items()}
    if name in added:
        opened: Encoder = import_object(added[name])(shape, view)
        return opened
    known = [*VARIANTS, *library(), *added]
    raise UsageError(
        f'No encoder "{name}".{suggest(name, known)} Known: {listing(known)}, or the path of an .onnx file with a card.'
    )


def is_fixed(name: str) -> bool:
    """Return whether a name is of an ONNX file, which takes images of one shape and is not trained: of the library, a path, or joined."""
    return name in library() or _is_path(name) or bool(joined_names(name))


def joined_names(name: str) -> tuple[str, ...]:
    """Return the names that are joined by ``+`` in one; none where it is a single name or a path."""
    parts = tuple(part.strip() for part in name.split("+"))
    return parts if len(parts) > 1 and all(parts) and not _is_path(name) else ()


def _fixed(name: str, view: View) -> OnnxEncoder | None:
    """Return an encoder that takes images of one shape; None of any other."""
    if name in library():
        return open_from_library(name, view)
    return open_file(Path(name), view) if _is_path(name) else None


def _is_path(name: str) -> bool:
    return Path(name).exists() if "+" in name else name.endswith(".onnx") or (Path(name) / FILE).is_file()


def is_installed(name: str = DEFAULT) -> bool:
    """Return whether the weights of an encoder are there."""
    return VARIANTS[name].file() is not None


def _published(name: str, shape: tuple[int, ...] | None, view: View) -> OnnxEncoder:
    """Return an encoder with published weights, whose graph is written to the user's cache once."""
    size = view.size or VARIANTS[name].size
    if shape is None:
        shape = (3, view.side(size), view.side(size))
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise UsageError(f'"{name}" takes grey or colour images; given {list(shape)}.')
    card = Card(
        name=name, shape=shape, maps="maps", fit=view.fit, crop=view.crop, mirror=view.mirror,
        licence="Apache-2.0", source="https://github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite",
    )  # fmt: skip
    seen = (shape[0], *(part.stop - part.start for part in view.window(*shape[1:])))
    graph = f"{name}-{digest(repr((FORM, VARIANTS[name].sha256, seen, size)).encode()).hex()}"
    identity = digest(repr((graph, shape, view.fit, view.crop, view.mirror)).encode()).hex()
    return OnnxEncoder(card, identity, partial(_graph_file, name, graph, seen, size), WIDTH, view)


def _graph_file(name: str, graph: str, seen: tuple[int, ...], size: int) -> bytes:
    """Return the ONNX file of a published encoder: from the user's cache, or written again where it is absent or damaged.

    The name of the file ends with the digest of its content.
    """
    folder = user_folder() / GRAPHS
    with suppress(OSError):
        for file in sorted(folder.glob(f"{graph}.*.onnx")) if is_on() else ():
            content = read_file(file)
            if file.name == _file_name(graph, content):
                return content
            file.unlink()
    content = write_graph(VARIANTS[name], VARIANTS[name].weights(), seen, size)
    if is_on():
        with suppress(OSError):  # a full or read-only disk: it is written again next time
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.chmod(folder, 0o700)
            write_atomically(folder / _file_name(graph, content), content)
    return content


def _file_name(graph: str, content: bytes) -> str:
    return f"{graph}.{digest(content).hex()}.onnx"
