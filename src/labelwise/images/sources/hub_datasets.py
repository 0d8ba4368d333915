"""Load objects of the package ``datasets`` (Hugging Face): a ``Dataset``, or a ``DatasetDict`` of splits.

They are known by what they offer, so the package is not imported here. Images stay files: they are read as Arrow, not decoded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from labelwise.images.dataset import Dataset
from labelwise.images.file_images import Content, StoredImages
from labelwise.images.images import Images, Unreadable, join
from labelwise.images.sources.build import build, readable_rows
from labelwise.images.sources.rows import Rows, named_rows
from labelwise.images.split.make import split_name
from labelwise.support.errors import DataError, listing


class DatasetImages(StoredImages):
    """The images of a column of a ``datasets.Dataset``."""

    def __init__(self, data: Any, column: str, ids: Sequence[str] = ()) -> None:
        super().__init__(ids or [f"image {row}" for row in range(len(data))])
        self._cells = data.with_format("arrow")
        self._column = column

    def contents(self, rows: Sequence[int]) -> list[Content | Unreadable]:
        """Return the file of each image: its bytes or its path."""
        cells = self._cells[list(rows)].column(self._column).to_pylist() if len(rows) else []
        return [
            (cell and (cell.get("bytes") or cell.get("path"))) or Unreadable("there is no image in this row.")
            for cell in cells
        ]


def is_dataset(value: object) -> bool:
    """Return whether an object is a ``datasets.Dataset``, or a mapping of splits to such objects."""
    if isinstance(value, Mapping):
        return bool(value) and all(is_dataset(part) for part in value.values())
    return all(hasattr(value, name) for name in ("features", "column_names", "with_format"))


def dataset_images(data: Any) -> Images:
    """Return the images of a ``datasets.Dataset``, or of all its splits."""
    parts = data.values() if isinstance(data, Mapping) else [data]
    return join([DatasetImages(part, _column(part, "Image")) for part in parts])


def from_datasets(data: Any, seed: int = 0) -> Dataset:
    """Load a ``datasets.Dataset``, or a ``DatasetDict`` with its splits."""
    parts = dict(data) if isinstance(data, Mapping) else {"": data}
    labels = [row_labels for part in parts.values() for row_labels in _labels(part)]
    several = any(isinstance(row_labels, tuple) for row_labels in labels)
    rows = named_rows([] if several else labels, labels if several else ())  # type: ignore[arg-type]
    splits = [split_name(name, "The data: ") for name, part in parts.items() for _ in range(len(part)) if name]
    files = [f"{name or 'image'} {row}" for name, part in parts.items() for row in range(len(part))]
    images = join([DatasetImages(part, _column(part, "Image")) for part in parts.values()])
    rows = readable_rows(replace(rows, images=images, splits=splits, files=tuple(files)))
    if not several:
        rows = _labelled(rows)
    title = str(getattr(next(iter(parts.values())), "builder_name", None) or "dataset")
    return replace(build(title, replace(rows, by="lookalike"), seed=seed), own_images=True)


def _labelled(rows: Rows) -> Rows:
    """Return the labelled rows (test sets may hide labels as -1), without unused labels."""
    some = [row for row, target in enumerate(rows.targets.tolist()) if target >= 0]
    return rows.select(some).without_absent() if some else rows


def _column(data: Any, kind: str) -> str:
    """Return the first column of this kind of feature, or raise an error."""
    name = next((name for name, feature in data.features.items() if type(feature).__name__ == kind), None)
    if name is None:
        raise DataError(
            f"The data have no column of {kind}. Columns: {listing(data.column_names)}. Cast one: "
            f'data.cast_column("image", datasets.{kind}()).'
        )
    return str(name)


def _labels(data: Any) -> list[str | None] | list[tuple[str, ...]]:
    """Return the label name of each row (None: hidden), or all labels of each row."""
    lists = {name: getattr(feature, "feature", None) for name, feature in data.features.items()}
    several = next((name for name, inner in lists.items() if type(inner).__name__ == "ClassLabel"), None)
    if several is not None:
        names = lists[several].names  # type: ignore[union-attr]
        return [tuple(names[number] for number in cell) for cell in data[several]]
    column = _column(data, "ClassLabel")
    names = data.features[column].names
    return [names[number] if number is not None and number >= 0 else None for number in data[column]]
