"""The table of benchmarks that the papers use: metadata known before reading any data (``entries.toml``)."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelwise.support.errors import UsageError, listing, suggest


@dataclass(frozen=True, kw_only=True)
class Remote:
    """One file at an official address."""

    url: str  # where it lies
    file: str  # what it is called on disk, inside the folder of the benchmark
    megabytes: float | None = None  # its size; None where it is not known
    md5: str | None = None  # its published checksum; None where none is published
    unpack: bool = True  # True for an archive that is unpacked after it has arrived


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A benchmark by name."""

    name: str  # the word that ``load_benchmark`` takes
    title: str  # its full name
    what: str = "images"  # images, features or audio
    classes: int  # how many labels it has
    labels: tuple[str, ...] = ()  # their names, where the files do not hold them
    train: int | None = None  # training images as the papers state them; None where there is no fixed number
    test: int | None = None  # test images, likewise
    side: int  # the side in pixels that images are brought to, or samples per second of sound, unless asked otherwise
    licence: str  # the terms in a few words
    citation: str  # one line
    homepage: str  # the official page
    files: tuple[str, ...]  # what has to lie in its folder, as the official archives hold it
    # files that can be downloaded without registering; empty where that is not possible
    remotes: tuple[Remote, ...] = ()
    get: str = ""  # what to do by hand where ``remotes`` is empty
    packs: tuple[str, ...] = ()  # packed files that serve in place of the official layout, relative to the root
    folder: str  # its folder in the root; sets made from the same files share one
    protocols: tuple[str, ...] = ("standard",)  # other ways to divide or label it; the first is the default
    notes: str = ""  # the kind of images, and what differs between the papers and the files


def _entry(name: str, table: Mapping[str, Any]) -> Entry:
    pieces: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    remotes = tuple(Remote(**remote) for remote in pieces.pop("remotes", ()))
    return Entry(name=name, remotes=remotes, **pieces)


ENTRIES: dict[str, Entry] = {
    name: _entry(name, table)
    for name, table in tomllib.loads((Path(__file__).parent / "entries.toml").read_text(encoding="utf-8")).items()
}


def find_entry(name: str) -> Entry:
    """Return the entry of a name, or raise an error that suggests the nearest."""
    if name not in ENTRIES:
        raise UsageError(f'No benchmark "{name}".{suggest(name, ENTRIES)} Benchmarks: {listing(ENTRIES, 40)}.')
    return ENTRIES[name]
