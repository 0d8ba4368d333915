"""Read CSV files row by row, with columns by name: names stay text, features go into one array."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from labelwise.images.sources.delimited import headed_rows
from labelwise.support.errors import DataError, listing, suggest
from labelwise.support.files import check_size, max_bytes
from labelwise.support.text import from_cell

Floats = npt.NDArray[np.float32]

_ONE_OF_EACH = ("path", "label", "labels", "split", "domain", "group", "sample_weight", "source")
_PATHS = ("file", "filename", "filepath", "image", "photo", "picture")  # accepted names of the column "path"
_LABELS = ("category", "class", "species", "target")  # accepted names of the column "label"
_TEXT = re.compile(r"text(?:_([0-9]+))?")
_NUMBERED = re.compile(r"(f|feature_)([0-9]{1,9})")


@dataclass(frozen=True, eq=False, kw_only=True)
class Columns:
    """The cells of a table."""

    file: str  # name of the table, for errors
    numbers: Sequence[int]  # number of each nonempty row in the file [n]
    # n stripped fields for each known column that is not a feature
    cells: Mapping[str, Sequence[str]]
    features: Floats | None = None  # ``[n, a]`` (float32), finite; or None

    def __len__(self) -> int:
        return len(self.numbers)

    def cell(self, row: int, column: str) -> str:
        """Return the start of an error message about a cell."""
        return f'Row {self.numbers[row]} of "{self.file}", column "{column}": '


@dataclass(frozen=True, kw_only=True)
class TableHeader:
    """The positions of the known columns."""

    names: tuple[str, ...]  # all columns, in lower case
    # positions of path, label or labels, split, domain, group and texts, if present
    cells: Mapping[str, int]
    features: tuple[int, ...]  # positions of the features in order, if there is no path


def read_header(columns: Sequence[str], file: str, *, beside: bool = False) -> TableHeader:
    """Return the positions of the columns, or raise an error that names the wrong or missing one.

    A table ``beside`` (next to) an array of features needs neither images nor features of its own.
    """
    names = tuple(name.strip().casefold() for name in columns)
    if not (beside or {"file", "split"} <= set(names) or any(map(_is_feature, names))):
        names = _usual(_usual(names, "path", _PATHS), "label", _LABELS, "labels")
    known_columns = [name for name in names if name in _ONE_OF_EACH or _TEXT.fullmatch(name)]
    features = () if "path" in names or beside else _feature_positions(names, file)
    counts, positions = Counter(names), {name: i for i, name in reversed([*enumerate(names)])}
    for name in known_columns:
        if counts[name] > 1:
            raise DataError(f'The table "{file}" has more than one column "{name}". Its columns: {listing(names)}.')
    if {"label", "labels"} <= set(names):
        raise DataError(
            f'The table "{file}" has both a column "label" and a column "labels". Keep "label" where each image has one '
            'label, "labels" where several may be true of an image.'
        )
    if not ("path" in names or features or beside):
        if {"file", "split"} <= set(names):
            raise DataError(
                f'"{file}" is a split, as "labelwise data split" writes it: it says which image is in which split, not where they '
                f'are. Give the images and the split: "labelwise fit PHOTOS --splits {file}". A table of images calls the column '
                'with their files "path".'
            )
        raise DataError(
            f'The table "{file}" has no column "path". Its columns: {listing(names)}. Rename the column of image files '
            'to "path" and that of labels to "label". A table of features has columns f0, f1, and so on.'
        )
    allowed = {"", *known_columns, *(names[i] for i in features)} - {"source"}
    unknown_columns = [name for name in names if name not in allowed and not _is_feature(name)]
    if not {"label", "labels"} & set(names) and unknown_columns:
        raise DataError(
            f'The table "{file}" has no column "label".{suggest("label", names)} Its columns: {listing(names)}. '
            f"Rename the column of labels; if there is none, remove the other columns: {listing(unknown_columns)}."
        )
    return TableHeader(
        names=names, cells={name: positions[name] for name in sorted(known_columns, key=_rank)}, features=features
    )


def _usual(names: tuple[str, ...], usual: str, others: tuple[str, ...], *alike: str) -> tuple[str, ...]:
    """Return the names of columns; the only one that means the same as ``usual`` gets that name."""
    spelt = [name for name in names if name in (usual, *alike, *others)]
    return tuple(usual if name in others and len(spelt) == 1 else name for name in names)


def _rank(name: str) -> tuple[int, str]:
    """Return the sort key of columns: texts by number."""
    match = _TEXT.fullmatch(name)
    return (int(match[1] or 0), "text") if match else (-1, name)


def _is_feature(name: str) -> bool:
    return name.startswith("feature_") or _NUMBERED.fullmatch(name) is not None


def _feature_positions(names: Sequence[str], file: str) -> tuple[int, ...]:
    """Return the positions of the features: by number, or, if named, from left to right."""
    positions = [i for i, name in enumerate(names) if _is_feature(name)]
    matches = [_NUMBERED.fullmatch(names[i]) for i in positions]
    numbered = [(int(match[2]), i) for match, i in zip(matches, positions, strict=True) if match]
    if len({match[1] for match in matches if match}) == 1 and len(numbered) == len(positions):
        numbers = sorted(number for number, _ in numbered)
        first = 0 if numbers[0] == 0 else 1
        for position, number in enumerate(numbers, first):
            if number != position:
                wrong = "twice" if number < position else "but not all before it"
                raise DataError(
                    f'The table "{file}" has the feature {number} {wrong} (column "{names[dict(numbered)[number]]}"). '
                    "Features are numbered from 0 without a gap."
                )
        return tuple(i for _, i in sorted(numbered))
    features = [names[i] for i in positions]
    misfits = [name for name in features if not name.startswith("feature_")]
    if misfits:
        raise DataError(
            f'The table "{file}" has features of two kinds: column "{misfits[0]}" and "feature_...". Rename one kind.'
        )
    if len(set(features)) < len(features):
        repeated = next(name for name, count in Counter(features).items() if count > 1)
        raise DataError(f'The table "{file}" has more than one column "{repeated}". Its columns: {listing(names)}.')
    return tuple(positions)


_POINTER = 8  # least bytes of a cell in memory, even an empty one


def read_csv(file: Path, *, beside: bool = False, errors: str = "strict") -> Columns:
    """Read a CSV file: UTF-8, separated by commas, semicolons or tabs, with a header row."""
    with closing(headed_rows(file, errors=errors)) as rows:
        _, first = next(rows, (0, None))
        if first is None:
            raise DataError(f'The table "{file}" is empty. Its first row must name the columns: path, label.')
        header = read_header(first, str(file), beside=beside)
        numbers: list[int] = []
        values = bytearray()
        cells: dict[str, list[str]] = {name: [] for name in header.cells}
        most, size = max_bytes(), 0
        for number, fields in rows:
            size += _POINTER * len(header.cells) + 4 * len(header.features)
            if size > most:
                check_size(file, size)
            for name, position in header.cells.items():
                cells[name].append(from_cell(fields[position].strip()))
            if header.features:
                values += _features(fields, header, f'Row {number} of "{file}"').tobytes()
            numbers.append(number)
    matrix = np.frombuffer(values, np.float32).reshape(len(numbers), len(header.features))
    return Columns(file=str(file), numbers=numbers, cells=cells, features=matrix if header.features else None)


def _features(fields: Sequence[str], header: TableHeader, place: str) -> Floats:
    """Return the features of one row ``[a]``."""
    values = _finite_numbers([fields[position] for position in header.features])
    if values is not None:
        return values
    wrong = next(position for position in header.features if _finite_numbers([fields[position]]) is None)
    field = fields[wrong].strip()
    reason = f'"{field:.40}" is not a finite number.' if field else "it is empty. Fill it or remove the row."
    raise DataError(f'{place}, column "{header.names[wrong]}": {reason}')


def _finite_numbers(fields: Sequence[str]) -> Floats | None:
    """Parse fields as numbers ``[a]``, or return None if one is not finite."""
    try:
        with np.errstate(over="ignore"):
            values = np.array([float(field) for field in fields], np.float32)
    except ValueError:
        return None
    return values if np.isfinite(values).all() and "_" not in "".join(fields) else None  # Python reads 1_0 as ten
