"""The table of benchmarks: every set that the papers use, by name, read from ``entries.toml``."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labelwise.errors import UsageError, listing, suggest
from labelwise_papers.benchmarks.entry import Entry, Remote


def _entry(name: str, table: Mapping[str, Any]) -> Entry:
    """Return the entry that a table of the file states."""
    pieces: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    remotes = tuple(Remote(**remote) for remote in pieces.pop("remotes", ()))
    return Entry(name=name, remotes=remotes, **{"train": None, "test": None, **pieces})


ENTRIES: dict[str, Entry] = {
    name: _entry(name, table)
    for name, table in tomllib.loads((Path(__file__).parent / "entries.toml").read_text(encoding="utf-8")).items()
}


def find_entry(name: str) -> Entry:
    """Return the entry of a name, or raise an error that suggests the nearest."""
    if name not in ENTRIES:
        raise UsageError(f'No benchmark "{name}".{suggest(name, ENTRIES)} Benchmarks: {listing(ENTRIES, 40)}.')
    return ENTRIES[name]
