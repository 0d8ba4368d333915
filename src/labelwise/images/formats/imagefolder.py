"""The ``imagefolder`` of Hugging Face: images and a table ``metadata.csv`` or ``metadata.jsonl`` whose column ``file_name`` names them.

``label`` (or ``labels``) and ``text`` (or ``caption``) describe an image, ``objects`` (``bbox`` and ``categories``) boxes in it.
Without a label, the folder of an image is its label, unless it is the folder of a split.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from labelwise.images.formats.annotations import GUESS, Annotations, Record
from labelwise.images.sources.delimited import read_fields
from labelwise.images.sources.paths import SPELLINGS
from labelwise.support.files import MAX_TEXT, check_size, json_size, open_regular, read_regular
from labelwise.support.text import from_cell

NAMES = ("metadata.csv", "metadata.jsonl")
PLACES = (
    NAMES,
    tuple(f"{split}/{name}" for split in SPELLINGS for name in NAMES),
)  # in a folder, or in those of splits
TEXTS = ("text", "caption")


def accepts(file: Path) -> bool:
    """Return whether a file is the table of an image folder, by its name and its first line."""
    if file.name not in NAMES or not file.is_file():
        return False
    with open_regular(file, None) as stream:
        return b"file_name" in stream.readline(1 << 20)


def read(file: Path) -> Annotations:
    """Read the records of the table."""
    rows = (
        _lines(file)
        if file.suffix == ".jsonl"
        else (row for _, row in read_fields(file, "file_name", errors="surrogateescape"))
    )
    split = SPELLINGS.get(file.parent.name.casefold(), "")
    records = tuple(record for row in rows for record in _records(row, split))
    return Annotations(source=file, home=file.parent, records=records, folders=("",))


def _lines(file: Path) -> Iterator[Mapping[str, Any]]:
    content = read_regular(file, MAX_TEXT)
    check_size(file, json_size(content))
    return (json.loads(line) for line in content.decode("utf-8-sig").split("\n") if line.strip())


def _records(row: Mapping[str, Any], split: str) -> Iterator[Record]:
    """Yield the record of an image, or those of its boxes."""
    parts = PurePosixPath(from_cell(str(row["file_name"]))).parts
    named = SPELLINGS.get(parts[0].casefold(), "") if len(parts) > 1 else ""
    texts = tuple(str(row[key]) for key in TEXTS if row.get(key))
    about: dict[str, Any] = {"file": "/".join(parts), "split": split or named, "texts": texts}
    if (objects := row.get("objects")) is not None:
        for box, label in zip(objects["bbox"], objects["categories"], strict=True):
            left, top, width, height = map(float, box)
            yield Record(**about, box=(left, top, width, height, False), labels=(str(label),))
        return
    labels = _labels(row, parts)
    yield Record(**about, labels=labels, guess=(labels or ()) if row.get("source") == GUESS else ())


def _labels(row: Mapping[str, Any], parts: tuple[str, ...]) -> tuple[str, ...] | None:
    several = row.get("labels")
    if several is not None:
        return tuple(map(str, several if isinstance(several, list) else filter(None, str(several).split(";"))))
    if (label := row.get("label")) is not None:
        return (from_cell(str(label)),) if str(label) else None
    folder = parts[-2] if len(parts) > 1 else ""
    return (folder,) if folder and folder.casefold() not in SPELLINGS else None
