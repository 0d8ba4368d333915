"""Folders that labelwise fills: their record file, and unique names that are safe on every system."""

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from labelwise.support.files import read_text

RECORD: Final = ".labelwise.json"
ANSWERS: Final = "answers"  # images in a folder for each answer of a classifier
GROUPS: Final = "groups"  # images in a folder for each group of images that look alike
LONGEST = 200  # bytes of the name of a folder or of the stem of a file: room for an ending, and for a number


def numbered(name: str) -> Iterator[str]:
    """Yield a file name, then numbered variants."""
    yield name
    stem, ending = os.path.splitext(name)
    number = 2
    while True:
        yield f"{shorten(stem)} ({number}){ending}"
        number += 1


def folder_names(words: Iterable[str]) -> dict[str, str]:
    """Return a folder name for each word: safe on every system, and unique regardless of case."""
    names: dict[str, str] = {}
    used: set[str] = set()
    for word in dict.fromkeys(words):
        name = safe_name(word)
        numbers = (f"{name} ({i})" for i in range(2, len(names) + 3))
        names[word] = next(candidate for candidate in (name, *numbers) if candidate.casefold() not in used)
        used.add(names[word].casefold())
    return names


def safe_name(word: str) -> str:
    """Return a valid folder name: no slashes, control characters or names that other systems reserve."""
    name = re.sub(r'[\x00-\x1f\x7f-\x9f/\\:*?"<>|]', "_", word).strip().rstrip(". ")
    name = shorten(f"_{name.lstrip('.')}" if name.startswith(".") else name)
    is_reserved = re.fullmatch(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?", name)
    return f"_{name}" if is_reserved or not name else name


def shorten(name: str, most: int = LONGEST) -> str:
    """Cut a name to at most ``most`` bytes, between characters."""
    return os.fsencode(name)[:most].decode("utf-8", "ignore").rstrip(". ") if len(os.fsencode(name)) > most else name


def read_record(root: Path) -> dict[str, Any]:
    """Read the record of a folder that labelwise filled; empty for any other folder."""
    file = root / RECORD
    try:
        document = json.loads(read_text(file)) if file.is_file() and not file.is_symlink() else {}
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
