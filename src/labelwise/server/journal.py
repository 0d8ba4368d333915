"""A journal of the first version, taken over once: its records become the first rows of the database, the file is kept as a copy.

A record is a line: a checksum, a space, JSON. The first says which model the records belong to.
"""

import json
import logging
import time
import zlib
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from labelwise.errors import StoreError
from labelwise.files import write_atomically
from labelwise.server.lessons import Change, Lesson, State

LOG = logging.getLogger("labelwise.server")
NAME, COPY = "journal", "journal.taken-over"
Record = Mapping[str, Any]


class Rows(Protocol):
    """A database of changes, see ``database``."""

    def append(self, state: State, change: Change) -> State:
        """Write a change."""

    def undo(self, state: State) -> State:
        """Take the last change back."""

    def head(self) -> Any:
        """Return where the changes stand."""

    def write(self, head: Any) -> None:
        """Write that."""


def take_over(records: Sequence[Record], database: Rows) -> None:
    """Write what the records of a journal say into an empty database; only in a transaction."""
    state = State()
    for record in records:
        match record["action"]:
            case "teach":
                state = database.append(state, state.teaching(_lesson(record["lesson"])))
            case "forget":
                state = database.append(state, state.forgetting(record["label"]))
            case "undo":
                state = database.undo(state)
            case "start":  # a journal that was made shorter: what came before cannot be undone
                for label in record["forgotten"]:
                    state = database.append(state, state.forgetting(label))
                for lesson in record["taught"]:
                    state = database.append(state, state.teaching(_lesson(lesson)))
                state = replace(state, undoable=())
                database.write(replace(database.head(), settled=state.change))
            case "count":
                database.write(replace(database.head(), change=record["change"]))
            case other:
                raise StoreError(f'The journal has a record "{other}", which this version does not know.')


def records_of(folder: Path, model: str, *, keep: bool) -> Sequence[Record]:
    """Return the records of a journal that belongs to a model; none where there is no journal.

    Args:
        folder: where it lies.
        model: the checksum of the model.
        keep: rename the file, and set aside in a file of its own what a killed writer left behind the last whole record.
    """
    file, copy = folder / NAME, folder / COPY
    if keep and file.exists():
        file.rename(copy)
    file = copy if copy.exists() else file
    content = file.read_bytes() if file.exists() else b""
    if not content:
        return []
    lines = content.split(b"\n")
    records = [_record(line) for line in lines[:-1]]
    whole = next((i for i, record in enumerate(records) if record is None), len(records))
    read = sum(len(line) + 1 for line in lines[:whole])
    if whole == 0 or any(record is not None for record in records[whole:]):
        raise StoreError(
            f"{file} is damaged: a record that is not the last one is not whole (at byte {read}). Restore it from a copy, or "
            f"move {folder} away to start without the taught labels."
        )
    if rest := content[read:]:
        LOG.warning("%s: its last record was cut off (%s bytes) and is left out", file, len(rest))
        if keep:
            write_atomically(folder / f"torn.{time.time_ns()}", rest)
    head, *found = [record for record in records if record is not None]
    if head.get("format") != 1:
        raise StoreError(f"{file} has format {head.get('format')}; this version reads format 1. Update labelwise.")
    if head.get("model") != model:
        raise StoreError(
            f"{folder} holds what was taught to another model: this one was trained anew since. Move the folder away to start "
            "without those labels."
        )
    return found


def _record(line: bytes) -> Record | None:
    """Return the record of a line; None if it is not whole."""
    try:
        if len(line) < 10 or int(line[:8], 16) != zlib.crc32(line[9:]):
            return None
        found = json.loads(line[9:])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _lesson(plain: Record) -> Lesson:
    rows = {"scale": torch.tensor([plain["scale"]]), "offset": torch.tensor([plain["offset"]])}
    rows |= {"unseen": torch.tensor([plain["described"]]), "embedding": _tensor(plain["code"])[None]}
    rows |= {"vector": _tensor(plain["vector"])[None]} if "vector" in plain else {}
    rows |= {
        name: _tensor(plain[old]) for name, old in (("memory", "memory"), ("train_hashes", "seen")) if old in plain
    }
    words = {name: plain[name] for name in ("label", "source", "examples")}
    return Lesson(**words, texts=tuple(plain["texts"]), rows=rows)


def _tensor(plain: Record) -> Tensor:
    if plain["type"] not in ("<f4", "<f8", "<i8", "<f2"):
        raise StoreError(f"The journal holds numbers of type {plain['type']}, which this version does not read.")
    flat = np.frombuffer(b64decode(plain["data"]), plain["type"])
    return torch.from_numpy(flat.reshape(plain["shape"]).copy())
