"""Corrections: a table of images and their right labels, applied in memory; files stay the same."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import label_name
from labelwise.images.file_images import FileImages
from labelwise.images.sources.delimited import read_fields
from labelwise.support.errors import DataError, UsageError
from labelwise.support.text import from_cell

IMAGE_COLUMNS = ("image", "file", "path")


def read_corrections(table: Path) -> dict[str, str]:
    """Read the label of each image in a table, by full path; the last entry of an image counts.

    Paths start from the working folder, or from the folder of the table where the image is not there.
    """
    rows = read_fields(table, "label", noun="table of corrections", errors="surrogateescape")
    column = next((name for name in IMAGE_COLUMNS if rows and name in rows[0][1]), None)
    if column is None:
        raise DataError(f'The table of corrections "{table}" needs one column "image", and a row for each image.')
    corrections: dict[str, str] = {}
    for number, fields in rows:
        name, word = from_cell(fields[column].strip()), from_cell(fields["label"].strip())
        places = [Path(name), table.parent / name]
        place = next((candidate for candidate in places if os.path.isfile(candidate)), None)
        if place is None:
            raise DataError(
                f'Row {number} of "{table}": there is no image "{name}". Run the command where it was answered.'
            )
        try:
            corrections[os.path.realpath(place)] = label_name(word)
        except UsageError as error:
            raise DataError(f'Row {number} of "{table}": {error}') from None
    return corrections


def correct(data: Dataset, corrections: Mapping[str, str]) -> tuple[Dataset, int, int]:
    """Return the data with corrected labels, the number of changes, and the number of images added to training.

    A label is matched without regard to case; one that is not there becomes a new label.
    """
    if data.multilabel or not data.own_images:
        raise UsageError("Corrections are for image files with one label each.")
    labels, label_positions = data.labels, {}
    for word in dict.fromkeys(corrections.values()):
        if (position := labels.find(word)) is None:
            labels, position = labels.add(word), word
        label_positions[word] = labels.index(position)
    remaining, splits, changes = dict(corrections), {}, 0
    for name, split in data.splits.items():
        targets = split.targets.copy()
        for row, file in enumerate(split.files):
            word = remaining.pop(os.path.realpath(file), "")
            if word and targets[row] != label_positions[word]:
                targets[row], changes = label_positions[word], changes + 1
        splits[name] = replace(split, targets=targets)
    if remaining:
        shape = next(iter(splits.values())).shape
        files = tuple(map(_short, remaining))
        added_split = Split(
            images=FileImages(files, shape),
            targets=np.array([label_positions[word] for word in remaining.values()]),
            files=files,
        )
        blanks: dict[str, Any] = {"groups": "", "moments": "", "domains": "", "texts": (), "weights": 1.0}
        columns = {
            column: (blank,) * len(added_split) for column, blank in blanks.items() if getattr(splits["train"], column)
        }
        added_split = replace(added_split, **columns)
        splits["train"] = splits["train"].join(added_split)
    return replace(data, labels=labels, splits=splits), changes, len(remaining)


def _short(file: str) -> str:
    """Return a path, relative if it is inside the working folder."""
    prefix = os.path.join(os.path.realpath(os.curdir), "")
    return file.removeprefix(prefix)
