"""What is known about labels: sentences, attributes, an order, shares and similarities, read from small files.

These files lie beside the data, each with one row, line or table for each label::

    labels.csv      label,text,order,share,can fly,has stripes   (every other column is an attribute)
    labels.toml     [labels."barn owl"]  texts = ["..."]  vector = [1, 0.2]  order = 3  share = 0.1
    labels.json     {"labels": {"barn owl": {"texts": ["..."], "vector": [1, 0.2]}}}
    similarity.csv  the labels in the first row and in the first column, numbers between
    order.txt       one label a line, from the lowest to the highest
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.nn.functional import pad

from labelwise.data.dataset import UNLABELLED, Dataset
from labelwise.data.labels.knowledge_files import (
    Row,
    Table,
    finite_number,
    label_name,
    read_table,
    read_tables,
    read_text,
    rows_of_table,
)
from labelwise.errors import DataError, UsageError, listing, suggest
from labelwise.labels import Labels, unfit_name

FILES = ("labels.csv", "labels.toml", "labels.json", "similarity.csv", "order.txt")

_PIECES = {
    "vectors": ("vectors", "attribute columns (numbers)", "labels.csv"),
    "texts": ("sentences", 'a column "text"', "labels.csv"),
    "order": ("an order", 'a column "order"', "labels.csv"),
    "shares": ("shares", 'a column "share"', "labels.csv"),
    "similarity": ("similarities", "a table of numbers, the labels in its first row and column, as", "similarity.csv"),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Knowledge:
    """Labels with all that is known about them, and the names of the attributes in their vectors (or none)."""

    labels: Labels
    attributes: tuple[str, ...] = ()


def read_knowledge(path: str | Path, names: Sequence[str] | None = None) -> Knowledge:
    """Return what one file says about labels.

    Args:
        path: a file of a kind that the top of this module lists, under any name.
        names: labels that must be there; they come first, in this order, then any others of the file. Without, all
            labels in the order of the file.
    """
    file = Path(path)
    kind = file.suffix.lower()
    if kind == ".csv":
        table = read_table(file)
        found = _similarity(file, table) if _is_matrix(file, table) else _assembled(file, *rows_of_table(file, table))
    elif kind in (".toml", ".json"):
        found = _assembled(file, *read_tables(file))
    elif kind == ".txt":
        found = _order(file)
    else:
        raise DataError(f'Cannot read "{file}": label knowledge is a .csv, .toml, .json or .txt file.')
    return found if names is None else _arranged(found, names, f'"{file}"')


def find_knowledge(folder: str | Path, names: Sequence[str] | None = None) -> Knowledge | None:
    """Return what the files beside the data say about labels together, or None where there is no such file.

    Args:
        folder: where the data lies.
        names: as for ``read_knowledge``.
    """
    files = [Path(folder) / name for name in FILES if (Path(folder) / name).is_file()]
    if not files:
        return None
    whole = read_knowledge(files[0])
    source: dict[str, Path] = {}
    for file in files:
        other = _arranged(read_knowledge(file), whole.labels.names, f'"{file}"')
        _arranged(whole, other.labels.names, f'"{files[0]}"')  # has all labels of the other file, too
        given = {piece: getattr(other.labels, piece) for piece in _PIECES if getattr(other.labels, piece) is not None}
        for piece in given:
            if source.setdefault(piece, file) != file:
                raise DataError(f'Both "{source[piece]}" and "{file}" give {_PIECES[piece][0]} of labels. Keep one.')
        whole = Knowledge(labels=replace(whole.labels, **given), attributes=whole.attributes or other.attributes)
    return whole if names is None else _arranged(whole, names, listing(f'"{file}"' for file in files))


def described_labels(folder: str | Path) -> frozenset[str]:
    """Return the labels that a file in a folder describes by sentences or attributes; none where there is no such file."""
    found = find_knowledge(folder)
    if found is None or (found.labels.texts is None and found.labels.vectors is None):
        return frozenset()
    return frozenset(found.labels.names)


def with_knowledge(dataset: Dataset, knowledge: Knowledge) -> Dataset:
    """Return the data set with what is known about its labels.

    Its labels keep their positions; labels that only the knowledge has come after them and have no images: they are
    unseen. What the data set knew and the knowledge does not say stays, unless there are such new labels.
    """
    labels = _arranged(knowledge, dataset.labels.names, "What is known about labels").labels
    if len(labels) == len(dataset.labels):
        before = {piece: getattr(dataset.labels, piece) for piece in _PIECES if getattr(labels, piece) is None}
        labels = replace(labels, **before)
    extra = len(labels) - len(dataset.labels)
    splits = {
        name: split if split.truths is None else replace(split, truths=pad(split.truths, (0, extra)))
        for name, split in dataset.splits.items()
    }
    return replace(dataset, labels=labels, splits=splits)


def with_files_beside(dataset: Dataset, folder: Path) -> Dataset:
    """Return the data set with what files in a folder say about its labels, or as it is where there is no such file.

    Images without any label get the labels that are described there.
    """
    if dataset.labels.names == (UNLABELLED,):
        alone = find_knowledge(folder)
        return replace(dataset, labels=alone.labels) if alone else dataset
    knowledge = find_knowledge(folder, dataset.labels.names)
    return with_knowledge(dataset, knowledge) if knowledge else dataset


def require(labels: Labels, piece: str, where: str) -> None:
    """Raise an error that says what to add, unless this piece of the labels is known.

    Args:
        labels: the labels.
        piece: "vectors", "texts", "order", "shares" or "similarity".
        where: who needs it, to begin the error: "Method clarel".
    """
    if piece not in _PIECES:
        raise UsageError(f'Labels have no piece "{piece}".{suggest(piece, _PIECES)} Pieces: {listing(_PIECES)}.')
    if getattr(labels, piece) is None:
        what, add, file = _PIECES[piece]
        joint = "" if add.endswith(" as") else " to"
        raise DataError(f"{where} reads {what}, and these labels have none. Add {add}{joint} {file} beside the data.")


def _arranged(knowledge: Knowledge, names: Sequence[str], where: str) -> Knowledge:
    """Return the knowledge with these labels first, in this order, then its others."""
    own = [label_name(name) for name in names]
    others = [name for name in knowledge.labels.names if name not in set(own)]
    missing = [name for name in own if name not in set(knowledge.labels.names)]
    if missing:
        raise DataError(
            f"{where} does not describe these labels: {listing(missing)}.{suggest(missing[0], others)} "
            f'Add a row (or line, or table) for "{missing[0]}".'
        )
    return replace(knowledge, labels=replace(knowledge.labels.select([*own, *others]), names=(*names, *others)))


def _assembled(file: Path, known: Mapping[str, Row], attributes: tuple[str, ...]) -> Knowledge:
    """Return the knowledge of all labels of a file, each piece for all labels or for none."""
    if not known:
        raise DataError(f'"{file}" describes no label. Add a row for each.')
    for name, row in known.items():
        if unfit := unfit_name(name):
            raise DataError(f"{row.where} cannot be a label: {unfit}. Write it in one line of UTF-8.")
    rows = list(known.values())
    for piece in ("texts", "vector", "order", "share"):
        without = [row for row in rows if getattr(row, piece) in (None, [])]
        if without and len(without) < len(rows):
            raise DataError(f'{without[0].where} has no "{piece}", and other labels do. Give it for all or for none.')
    size = len(attributes) or len(rows[0].vector)
    for row in rows:
        if len(row.vector) not in (0, size):
            raise DataError(f"{row.where}: its vector has {len(row.vector)} numbers, not {size} as expected.")
        blank = [text for text in row.texts if not isinstance(text, str) or not text.strip()]
        if blank:
            raise DataError(f'{row.where}, "texts": each must be a sentence; given {blank[0]!r}.')
    columns = attributes or tuple(f"vector[{i}]" for i in range(size))
    vectors = [
        [finite_number(x, row.where, at) for at, x in zip(columns, row.vector, strict=True)]
        for row in rows
        if row.vector
    ]
    labels = Labels(
        names=tuple(known),
        vectors=torch.tensor(vectors) if vectors else None,
        texts=tuple(tuple(map(str, row.texts)) for row in rows) if rows[0].texts else None,
        order=_ranks(file, rows) if rows[0].order is not None else None,
        shares=_shares(file, rows) if rows[0].share is not None else None,
    )
    return Knowledge(labels=labels, attributes=attributes if vectors else ())


def _ranks(file: Path, rows: Sequence[Row]) -> tuple[int, ...]:
    """Return the rank of each label, from 0."""
    given = [finite_number(row.order, row.where, "order") for row in rows]
    first = min(given)
    if first not in (0, 1) or sorted(given) != [first + i for i in range(len(given))]:
        raise DataError(
            f'The column "order" of "{file}" must hold the ranks 1 to {len(given)}, each once; given '
            f"{listing(f'{rank:g}' for rank in given)}."
        )
    return tuple(int(rank - first) for rank in given)


def _shares(file: Path, rows: Sequence[Row]) -> torch.Tensor:
    """Return the share of each label ``[k]``."""
    given = [finite_number(row.share, row.where, "share") for row in rows]
    if min(given) < 0:
        raise DataError(f"{rows[given.index(min(given))].where}: a share is at least 0; given {min(given):g}.")
    if abs(sum(given) - 1) > 1e-4:
        raise DataError(f'The column "share" of "{file}" must sum to 1; it sums to {sum(given):.4f}.')
    return torch.tensor(given)


def _is_matrix(file: Path, table: Table) -> bool:
    """Return whether a table names the same labels in its first row and its first column."""
    labels = {row[table.columns[0]] for _, row in table.rows}
    return file.name.casefold() == "similarity.csv" or bool(labels and labels == {*table.columns[1:]})


def _similarity(file: Path, table: Table) -> Knowledge:
    """Return the knowledge of a table of similarities."""
    first, *others = table.columns
    names = [label_name(column) for column in others]
    lines: dict[str, list[float]] = {}
    for number, row in table.rows:
        name, where = label_name(row[first]), f'Row {number} of "{file}"'
        if name not in names or name in lines:
            wrong = "comes twice. Keep one." if name in lines else f"is not in the first row.{suggest(name, names)}"
            raise DataError(f'{where}: label "{name}" {wrong}')
        lines[name] = [finite_number(row[column], where, column) for column in others]
    missing = [name for name in names if name not in lines]
    if missing or not names:
        raise DataError(f'"{file}" has no row for: {listing(missing) or "any label"}. Add one for each column.')
    return Knowledge(labels=Labels(names=tuple(names), similarity=torch.tensor([lines[name] for name in names])))


def _order(file: Path) -> Knowledge:
    """Return the knowledge of a file with one label a line, from the lowest to the highest."""
    names = [label_name(line) for line in read_text(file).splitlines() if line.strip()]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice or not names:
        raise DataError(f'"{file}" must name each label once, one a line; named twice: {listing(twice) or "none"}.')
    return Knowledge(labels=Labels(names=tuple(names), order=tuple(range(len(names)))))
