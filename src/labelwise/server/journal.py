"""A journal of the first version, taken over once: its records become the first rows of the database, the file is kept as a copy.

A record is a line: a checksum, a space, JSON. The first says which model the records belong to.
"""

import json
import logging
import time
import zlib
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as bytes_of
from torch import Tensor

from labelwise.server.lessons import Lesson, State
from labelwise.support.errors import StoreError
from labelwise.support.files import sync_folder, write_atomically

LOG = logging.getLogger("labelwise.server")
NAME, COPY = "journal", "journal.taken-over"
Record = Mapping[str, Any]


def state_of_journal(folder: Path, model: str, *, keep: bool) -> State:
    """Return the state after all records of a journal of the model with this checksum; of no change where there is none.

    ``keep`` renames the file, and sets aside in a file of its own what a killed writer left behind the last whole record.
    """
    file, copy = folder / NAME, folder / COPY
    if keep and file.exists():
        file.rename(copy)
        sync_folder(folder)
    file = copy if copy.exists() else file
    content = file.read_bytes() if file.exists() else b""
    state = State()
    for record in _records(file, content, model, keep=keep) if content else ():
        state = _after(state, record)
    return state


def _after(state: State, record: Record) -> State:
    match record["action"]:
        case "teach":
            return state.teach(_lesson(record["lesson"]))
        case "forget":
            return state.forget(record["label"])
        case "undo":
            return state.undo()
        case "start":  # a journal that was made shorter: what came before cannot be undone
            for label in record["forgotten"]:
                state = state.forget(label)
            for lesson in record["taught"]:
                state = state.teach(_lesson(lesson))
            return replace(state, settled=state.change)
        case "count":
            return replace(state, change=record["change"])
        case other:
            raise StoreError(f'The journal has a record "{other}", which this version does not know.')


def _records(file: Path, content: bytes, model: str, *, keep: bool) -> list[Record]:
    """Return the records of a journal but for the first, which is checked."""
    lines = content.split(b"\n")
    records = [_record(line) for line in lines[:-1]]
    whole = next((i for i, record in enumerate(records) if record is None), len(records))
    if whole == 0 or whole < len(records):  # it has its end, so it was written to the end: a torn one has none
        raise StoreError(
            f"{file} is damaged: record {whole} differs from its checksum (at byte {sum(len(line) + 1 for line in lines[:whole])}). "
            f"Restore it from a copy, or move {file.parent} away to start without the taught labels."
        )
    rest = lines[-1]
    if last := _record(rest) or _record(rest[:-1]):  # only what ends it is missing, or is not what it was
        records.append(last)
    elif rest:
        LOG.warning("%s: its last record was cut off (%s bytes) and is left out", file, len(rest))
        if keep:
            write_atomically(file.parent / f"torn.{time.time_ns()}", rest)
    head, *others = [record for record in records if record is not None]
    if head.get("format") != 1:
        raise StoreError(f"{file} has format {head.get('format')}; this version reads format 1. Update labelwise.")
    if head.get("model") != model:
        raise another_model(str(file), f"move {file.parent} away")
    return others


def another_model(name: str, remedy: str) -> StoreError:
    """Return the error that changes belong to another model."""
    return StoreError(
        f"{name} holds what was taught to another model: this one was trained anew since. To start without those labels, "
        f"{remedy}."
    )


def _record(line: bytes) -> Record | None:
    """Return the record of a line; None if it is not whole."""
    try:
        record = json.loads(line[9:]) if int(line[:8], 16) == zlib.crc32(line[9:]) else None
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _lesson(plain: Record) -> Lesson:
    rows = {"scale": torch.tensor([plain["scale"]]), "offset": torch.tensor([plain["offset"]])}
    rows |= {"unseen": torch.tensor([plain["described"]]), "embedding": _tensor(plain["code"])[None]}
    rows |= {"vector": _tensor(plain["vector"])[None]} if "vector" in plain else {}
    former = {"memory": "memory", "train_hashes": "seen"}
    rows |= {name: _tensor(plain[key]) for name, key in former.items() if key in plain}
    words = {name: plain[name] for name in ("label", "source", "examples")}
    return Lesson(**words, texts=tuple(plain["texts"]), content=bytes_of(rows))


def _tensor(plain: Record) -> Tensor:
    if plain["type"] not in ("<f4", "<f8", "<i8", "<f2"):
        raise StoreError(f"The journal holds numbers of type {plain['type']}, which this version does not read.")
    flat = np.frombuffer(b64decode(plain["data"]), plain["type"])
    return torch.from_numpy(flat.reshape(plain["shape"]).copy())
