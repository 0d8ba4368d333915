"""The record that labelwise leaves in a folder that it filled: from what, and which files it put there."""

import json
from pathlib import Path
from typing import Any, Final, Literal

from labelwise.support.regular import read_text

RECORD: Final = ".labelwise.json"
ANSWERS: Final = "answers"  # images in a folder for each answer of a classifier
GROUPS: Final = "groups"  # images in a folder for each group of images that look alike
LabelsBy = Literal["", "answers", "groups"]  # what chose the labels, if not a person


def read_record(root: Path) -> dict[str, Any]:
    """Return what is recorded in a folder that labelwise filled; nothing of any other."""
    file = root / RECORD
    try:
        document = json.loads(read_text(file)) if file.is_file() and not file.is_symlink() else {}
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def labels_by(root: Path) -> LabelsBy:
    """Return what chose the labels of a folder, though a person may have renamed them since."""
    source = read_record(root).get("source")
    return source if source in (ANSWERS, GROUPS) else ""
