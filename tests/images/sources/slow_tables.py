"""A slow second reading of tables, character by character, to compare ``data.table`` with."""

import math
import os
import re
import struct
import unicodedata
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

SPLIT_WORDS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
NAMED = ("path", "label", "labels", "split", "domain", "group", "text", "text_1", "text_2")
Fault = tuple[int | None, str | None]


@dataclass
class Reading:
    """What a table says, or what is wrong with it: (row, column), None where it is not about one."""

    faults: list[Fault] = field(default_factory=list)
    rows: list[dict[str, str]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    features: list[str] = field(default_factory=list)
    broken: bool = False  # no text at all, or quotes that do not match: other faults may come first


def split_text(text: str, separator: str) -> list[list[str]] | None:
    """The records of a CSV text, or None where quotes are wrong."""
    records: list[list[str]] = []
    fields: list[str] = []
    now, state, i = "", "start", 0
    while i < len(text):
        c = text[i]
        if state == "quoted":
            if c == '"':
                state = "closing"
            else:
                now += c
        elif state == "closing" and c == '"':
            now, state = now + '"', "quoted"
        elif c in "\r\n":
            i += c == "\r" and text[i + 1 : i + 2] == "\n"
            records.append([*fields, now] if fields or now or state != "start" else [])
            fields, now, state = [], "", "start"
        elif c == separator:
            fields, now, state = [*fields, now], "", "start"
        elif state == "closing":
            return None
        elif c == '"' and state == "start":
            state = "quoted"
        else:
            now, state = now + c, "plain"
        i += 1
    if state == "quoted":
        return None
    if fields or now or state != "start":
        records.append([*fields, now])
    return records


def number(text: str) -> float | None:
    """A finite float32, or None."""
    try:
        value = struct.unpack("f", struct.pack("f", float(text.replace("_", "?"))))[0]
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def is_label(name: str) -> bool:
    """Whether a label may have this name: one line that shows something, no longer than 200 letters, and no word for "no label"."""
    control = any(ord(one) < 32 or 127 <= ord(one) < 160 or one in "\u2028\u2029" for one in name)
    shows = re.search(r"[^\s\ufeff\u200b-\u200f\u2060\u115f\u1160\u2800\u3164\uffa0]", name)
    return bool(shows) and not control and len(name) <= 200 and name.lower() not in ("unknown", "none", "unsure")


def read(content: bytes, folder: Path) -> Reading:
    """The rows of a table, each a dict of what it says, or its faults."""
    found = Reading()
    try:
        text = content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        return Reading(faults=[(None, None)], broken=True)
    first = text.splitlines()[0] if text.strip("\r\n") else ""
    records = split_text(text, max(",;\t", key=first.count))
    if "\0" in text or records is None or any(len(cell) > 131072 for record in records for cell in record):
        return Reading(faults=[(None, None)], broken=True)
    numbered = [(i, record) for i, record in enumerate(records, 1) if any(cell.strip() for cell in record)]
    if not numbered:
        return Reading(faults=[(None, None)])
    names = [name.strip().lower() for name in numbered[0][1]]
    _check_names(names, found)
    for i, record in numbered[1:] if not found.faults else ():
        if any(cell.strip() for cell in record[len(names) :]):
            found.faults.append((i, None))
        cells = dict(zip(names, [*(cell.strip() for cell in record), *[""] * len(names)], strict=False))
        found.rows.append({name: cells[name] for name in (*NAMED, *found.features) if name in cells})
        for name in ("label", "domain", "group"):
            if name in cells:
                found.rows[-1][name] = unicodedata.normalize("NFC", cells[name])
        if "labels" in cells:  # in one order, so that rows can be compared
            parts = sorted(unicodedata.normalize("NFC", part.strip()) for part in cells["labels"].split(";"))
            found.rows[-1]["labels"] = ";".join(parts)
            if cells["labels"] and ("" in parts or len(set(parts)) < len(parts)):
                found.faults.append((i, "labels"))
        found.numbers.append(i)
    if not found.rows:
        found.faults.append((None, None))
    elif "labels" in names and not any(row["labels"] for row in found.rows):
        found.faults.append((None, "labels"))
    _check_cells(found, folder)
    return found


def _check_names(names: list[str], found: Reading) -> None:
    features = [name for name in names if re.fullmatch(r"f[0-9]+|feature_.*", name)]
    for name in names:
        if names.count(name) > 1 and (name in NAMED or (name in features and "path" not in names)):
            found.faults.append((None, name))
    numbers = sorted(int(name[1:]) for name in features if not name.startswith("feature_"))
    if "path" not in names and numbers:
        found.features = [f"f{i}" for i in numbers]
        if len(numbers) < len(features) or numbers not in (list(range(len(numbers))), list(range(1, len(numbers) + 1))):
            found.faults += [(None, name) for name in features]
    elif "path" not in names:
        found.features = features
        found.faults += [(None, "path")] * (not features)
    if "label" in names and "labels" in names:
        found.faults.append((None, "label"))
    if not {"label", "labels"} & set(names) and any(
        name and name not in NAMED and name not in features for name in names
    ):
        found.faults.append((None, "label"))


def _check_cells(found: Reading, folder: Path) -> None:
    divided = any(row.get("split") for row in found.rows)
    homes: dict[str, set[str]] = defaultdict(set)
    pictures: dict[str, tuple[int, dict[str, str]]] = {}
    for i, row in zip(found.numbers, found.rows, strict=True):
        found.faults += [(i, name) for name in ("path", "label") if row.get(name) == ""]
        for name, parts in (("label", [row.get("label", "")]), ("labels", row.get("labels", "").split(";"))):
            found.faults += [(i, name)] * any(part and not is_label(part) for part in parts)
        found.faults += [(i, name) for name in found.features if number(row[name]) is None]
        if divided:
            row["split"] = SPLIT_WORDS.get(row["split"].lower(), "")
            found.faults += [(i, "split")] * (not row["split"])
            there = "path" not in row or os.path.isfile(os.path.join(folder, row["path"]))  # others are skipped
            if row.get("group") and there:
                homes[row["group"]].add(row["split"])
        if row.get("path"):
            full = os.path.normpath(os.path.join(folder, row["path"]))
            if os.path.commonpath([full, folder]) != str(folder):
                found.faults.append((i, "path"))
            said = {name: value for name, value in row.items() if name != "path"}
            said["texts"] = "|".join(filter(None, [said.pop(name, "") for name in ("text", "text_1", "text_2")]))
            before = pictures.setdefault(full, (i, said))
            if before[1] != said:
                found.faults += [(before[0], None), (i, None)]
    if any(len(splits) > 1 for splits in homes.values()):
        found.faults.append((None, None))
