"""Corrections: a table of images and the labels that they should have, applied to data in memory; no file is touched."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import label_name
from labelwise.images.sources.delimited import read_fields
from labelwise.images.stored import FileImages
from labelwise.support.errors import DataError, UsageError
from labelwise.support.text import from_cell

IMAGE_COLUMNS = ("image", "file", "path")


def read_corrections(table: Path) -> dict[str, str]:
    """Return the label of each image that a table names, by its whole path; of an image named twice the last one counts.

    Paths start from the working folder, or from the folder of the table where the image is not there.
    """
    rows = read_fields(table, "label", what="table of corrections", errors="surrogateescape")
    column = next((name for name in IMAGE_COLUMNS if rows and name in rows[0][1]), None)
    if column is None:
        raise DataError(f'The table of corrections "{table}" needs one column "image", and a row for each image.')
    corrections: dict[str, str] = {}
    for number, fields in rows:
        name, word = from_cell(fields[column].strip()), from_cell(fields["label"].strip())
        places = [Path(name), table.parent / name]
        place = next((each for each in places if os.path.isfile(each)), None)
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
    """Return the data with corrected labels, how many were changed, and how many images were added to the training images.

    A label is matched without regard to case; one that is not there becomes a new label.
    """
    if data.multilabel or not data.own_images:
        raise UsageError("Corrections are for image files with one label each.")
    labels, meant = data.labels, {}
    for word in dict.fromkeys(corrections.values()):
        if (known := labels.find(word)) is None:
            labels, known = labels.add(word), word
        meant[word] = labels.index(known)
    rest, splits, changed = dict(corrections), {}, 0
    for name, split in data.splits.items():
        targets = split.targets.copy()
        for row, file in enumerate(split.files):
            word = rest.pop(os.path.realpath(file), "")
            if word and targets[row] != meant[word]:
                targets[row], changed = meant[word], changed + 1
        splits[name] = replace(split, targets=targets)
    if rest:
        shape = next(iter(splits.values())).shape
        files = tuple(map(_short, rest))
        more = Split(
            images=FileImages(files, shape), targets=np.array([meant[word] for word in rest.values()]), files=files
        )
        blanks: dict[str, Any] = {"groups": "", "moments": "", "domains": "", "texts": (), "weights": 1.0}
        columns = {what: (blank,) * len(more) for what, blank in blanks.items() if getattr(splits["train"], what)}
        more = replace(more, **columns)
        splits["train"] = splits["train"].join(more)
    return replace(data, labels=labels, splits=splits), changed, len(rest)


def _short(file: str) -> str:
    """Return the path of a file, from the working folder on where it is in it."""
    here = os.path.join(os.path.realpath(os.curdir), "")
    return file.removeprefix(here)
