"""The benchmarks of the papers by name: contents, location, and readers."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from labelwise.images.dataset import Dataset
from labelwise.support.errors import DataError, UsageError, listing, suggest
from labelwise_papers.benchmarks.download import download
from labelwise_papers.benchmarks.entries import ENTRIES, Entry, find_entry
from labelwise_papers.benchmarks.packs_at_hand import PACKS
from labelwise_papers.benchmarks.protocols import standard
from labelwise_papers.benchmarks.registry import PROTOCOLS, data_root, find_layout, find_official, find_packs
from labelwise_papers.benchmarks.special import load_audio, load_features

__all__ = [
    "ENTRIES",
    "Entry",
    "data_root",
    "download",
    "find_entry",
    "list_benchmarks",
    "load_benchmark",
    "where",
]


COLUMNS = ("name", "title", "what", "classes", "train", "test", "licence")  # of the list of benchmarks


def load_benchmark(
    name: str, *, root: str | Path | None = None, size: int | None = None, protocol: str | None = None, seed: int = 0
) -> Dataset:
    """Return a benchmark with its official splits; if there are none it is divided 70/10/20, as the seed says.

    The official layout is looked for in the folder of the benchmark in the root, then a packed file in the root
    itself. ``size`` is the side in pixels that images are brought to, or samples per second of sound; None is the
    ``side`` of the entry. The protocol is one of the ``protocols`` of the entry; None is the first.
    """
    entry, home = find_entry(name), data_root(root)
    protocol = protocol or entry.protocols[0]
    if protocol not in entry.protocols:
        raise UsageError(
            f'"{name}" has no protocol "{protocol}".{suggest(protocol, entry.protocols)} It has: {listing(entry.protocols)}.'
        )
    if entry.what == "images":
        data = _load_pictures(entry, home, protocol, size or entry.side, seed)
    elif entry.what == "features":
        data = load_features(entry, home, protocol, seed)
    else:
        data = load_audio(entry, home, protocol, size or entry.side)
    if data is None:
        raise DataError(where(name, root))
    return data


def _load_pictures(entry: Entry, home: Path, protocol: str, size: int, seed: int) -> Dataset | None:
    """Return a benchmark of images; None where it is not in the root."""
    layout, packed = find_layout(entry, home), find_packs(entry, home)
    if layout is not None:
        records = layout[0](layout[1])
    elif packed is not None:
        records = PACKS[entry.packs[0]](packed)
    else:
        return None
    divide = PROTOCOLS.get(entry.name, {"standard": standard})[protocol]
    return divide(replace(records, names=records.names or entry.labels), seed).dataset(entry.name, size)


def where(name: str, root: str | Path | None = None) -> str:
    """Return what to download for a benchmark, from where, and where to put it."""
    entry, home = find_entry(name), data_root(root)
    folder = home / entry.folder
    files = find_official(entry, home) or find_packs(entry, home)
    state = f'was found: "{files}"' if files else f'is not in "{home}"'
    lines = [f'"{name}" ({entry.title}) {state}. Licence: {entry.licence}.']
    if entry.remotes:
        lines.append(f"Download from {entry.homepage}:")
        for remote in entry.remotes:
            size = f"{remote.megabytes:,.4g} MB" if remote.megabytes else ""
            known = ", ".join(filter(None, (size, f"md5 {remote.md5}" if remote.md5 else "")))
            lines.append(f"  {remote.url}" + (f" ({known})" if known else ""))
        unpack = " and unpack it there" if any(remote.unpack for remote in entry.remotes) else ""
        lines.append(f'Put it into "{folder}"{unpack}, so that there are: {", ".join(entry.files)}.')
        lines.append(f"Or let it be done: labelwise data get {name}")
    else:
        lines.append(f"Official page: {entry.homepage}. {entry.get}")
        lines.append(f'Put it into "{folder}", so that there are: {", ".join(entry.files)}.')
    if entry.packs:
        lines.append(f'Or put the packed form into "{home}": {", ".join(entry.packs)}.')
    arrived = [remote.file for remote in entry.remotes if remote.unpack and (folder / remote.file).exists()]
    if arrived:
        lines.append(f"There already, but not unpacked: {', '.join(arrived)}.")
    return "\n".join(lines)


def list_benchmarks(root: str | Path | None = None) -> list[Mapping[str, Any]]:
    """Return one row for each benchmark, with where its files were found in the root, empty where they are missing."""
    home = data_root(root)
    return [
        {
            **{column: getattr(entry, column) for column in COLUMNS},
            "found": str(find_official(entry, home) or find_packs(entry, home) or ""),
        }
        for entry in ENTRIES.values()
    ]
