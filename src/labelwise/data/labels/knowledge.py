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
from typing import Any

import torch
from torch.nn.functional import pad

from labelwise.data.dataset import Dataset, Split
from labelwise.data.labels.knowledge_files import (
    Fields,
    Row,
    finite_number,
    label_name,
    read_table,
    read_tables,
    read_text,
    rows_of_table,
)
from labelwise.errors import DataError, UsageError, listing, suggest
from labelwise.labels import Labels, unfit_name

MOST_IMAGES = 100  # whose sentences describe one label
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
    """Labels with all that is known about them."""

    labels: Labels
    attributes: tuple[str, ...] = ()  # the names of the attributes in their vectors, or none
    source: str = "What is known about labels"  # where it was read, to begin an error

    @property
    def described(self) -> frozenset[str]:
        """The labels that sentences or attributes describe: they need no training picture."""
        silent = self.labels.texts is None and self.labels.vectors is None
        return frozenset() if silent else frozenset(self.labels.names)


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
        matrix = _is_matrix(file, *table)
        known = _similarity(file, *table) if matrix else _assembled(file, *rows_of_table(file, *table))
    elif kind in (".toml", ".json"):
        known = _assembled(file, *read_tables(file))
    elif kind == ".txt":
        known = _order(file)
    else:
        raise DataError(f'Cannot read "{file}": label knowledge is a .csv, .toml, .json or .txt file.')
    known = replace(known, source=f'"{file}"')
    return known if names is None else _arranged(known, names)


def find_knowledge(folder: str | Path, names: Sequence[str] | None = None) -> Knowledge | None:
    """Return what the files beside the data say about labels together, or None where there is no such file.

    Args:
        folder: where the data lies.
        names: as for ``read_knowledge``.
    """
    files = [Path(folder) / name for name in FILES if (Path(folder) / name).is_file()]
    if not files:
        return None
    first, *others = [read_knowledge(file) for file in files]
    whole, source = first, dict.fromkeys(_pieces(first.labels), first.source)
    for other in others:
        other = _arranged(other, first.labels.names)
        _arranged(first, other.labels.names)  # has all labels of the other file, too
        pieces = _pieces(other.labels)
        for piece in pieces:
            if source.setdefault(piece, other.source) != other.source:
                raise DataError(
                    f"Both {source[piece]} and {other.source} give {_PIECES[piece][0]} of labels. Keep one."
                )
        whole = Knowledge(labels=replace(whole.labels, **pieces), attributes=whole.attributes or other.attributes)
    whole = replace(whole, source=listing(f'"{file}"' for file in files))
    return whole if names is None else _arranged(whole, names)


def _pieces(labels: Labels) -> dict[str, Any]:
    """Return what is known about labels, without their names."""
    return {piece: getattr(labels, piece) for piece in _PIECES if getattr(labels, piece) is not None}


def with_knowledge(dataset: Dataset, knowledge: Knowledge) -> Dataset:
    """Return the data set with what is known about its labels.

    Its labels keep their positions; labels that only the knowledge has come after them and have no images: they are
    unseen. What the data set knew and the knowledge does not say stays, unless there are such new labels.
    """
    labels = _arranged(knowledge, dataset.labels.names).labels
    if len(labels) == len(dataset.labels):
        labels = replace(labels, **(_pieces(dataset.labels) | _pieces(labels)))
    extra = len(labels) - len(dataset.labels)
    splits = {
        name: replace(split, targets=pad(split.targets, (0, extra))) if split.multilabel else split
        for name, split in dataset.splits.items()
    }
    return replace(dataset, labels=labels, splits=splits)


def describe_labels(dataset: Dataset) -> Dataset:
    """Return the data with sentences for each label, taken from its training images where labels have none.

    Each label gets the sentences of its first images in train; a label that has none there, such as one held out to
    choose settings, those of its images in val. The test split is never read. Data whose labels have texts, or whose
    images have none, or several labels each, come back unchanged; so do data where some label would stay without but all have vectors.
    """
    labels = dataset.labels
    if labels.texts is not None or dataset.multilabel:  # a sentence about an image is not about each of its labels
        return dataset
    train, val = (_sentences(dataset.splits.get(name)) for name in ("train", "val"))
    if not train and not val:
        return dataset
    texts = tuple(train.get(i) or val.get(i) or () for i in range(len(labels)))
    silent = [name for name, sentences in zip(labels.names, texts, strict=True) if not sentences]
    if not silent:
        return replace(dataset, labels=replace(labels, texts=texts))
    if labels.vectors is not None:
        return dataset
    raise DataError(
        f'Nothing describes these labels of "{dataset.name}": {listing(silent)}. No training image of theirs has a '
        'sentence. Put a file labels.csv beside the data, with the columns "label" and "text" and a row for every label.'
    )


def _sentences(part: Split | None) -> dict[int, tuple[str, ...]]:
    """Return the sentences of the first images of each label in a split, for the labels that have any."""
    if part is None:
        return {}
    images: dict[int, list[tuple[str, ...]]] = {}
    for target, texts in zip(part.targets.tolist(), part.texts or [()] * len(part), strict=True):
        if texts and target >= 0:
            images.setdefault(target, []).append(texts)
    return {target: tuple(text for texts in every[:MOST_IMAGES] for text in texts) for target, every in images.items()}


def require(labels: Labels, piece: str, where: str) -> None:
    """Raise an error that says what to add, unless this piece of the labels is known; ``where`` says who needs it."""
    if piece not in _PIECES:
        raise UsageError(f'Labels have no piece "{piece}".{suggest(piece, _PIECES)} Pieces: {listing(_PIECES)}.')
    if getattr(labels, piece) is None:
        what, add, file = _PIECES[piece]
        joint = "" if add.endswith(" as") else " to"
        raise DataError(f"{where} reads {what}, and these labels have none. Add {add}{joint} {file} beside the data.")


def _arranged(knowledge: Knowledge, names: Sequence[str]) -> Knowledge:
    """Return the knowledge with these labels first, in this order, then its others."""
    own = [label_name(name) for name in names]
    known = {label_name(name): name for name in knowledge.labels.names}
    wanted = set(own)
    others = [name for name in known if name not in wanted]
    missing = [name for name in own if name not in known]
    if missing:
        raise DataError(
            f"{knowledge.source} does not describe these labels: {listing(missing)}.{suggest(missing[0], others)} "
            f'Add a row (or line, or table) for "{missing[0]}".'
        )
    labels = knowledge.labels.select([known[name] for name in (*own, *others)])
    return replace(knowledge, labels=replace(labels, names=(*names, *(known[name] for name in others))))


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
    ranks = [finite_number(row.order, row.where, "order") for row in rows]
    first = min(ranks)
    if first not in (0, 1) or sorted(ranks) != [first + i for i in range(len(ranks))]:
        raise DataError(
            f'The column "order" of "{file}" must hold the ranks 1 to {len(ranks)}, each once; given '
            f"{listing(f'{rank:g}' for rank in ranks)}."
        )
    return tuple(int(rank - first) for rank in ranks)


def _shares(file: Path, rows: Sequence[Row]) -> torch.Tensor:
    """Return the share of each label ``[k]``."""
    shares = [finite_number(row.share, row.where, "share") for row in rows]
    if min(shares) < 0:
        raise DataError(f"{rows[shares.index(min(shares))].where}: a share is at least 0; given {min(shares):g}.")
    if abs(sum(shares) - 1) > 1e-4:
        raise DataError(f'The column "share" of "{file}" must sum to 1; it sums to {sum(shares):.4f}.')
    return torch.tensor(shares)


def _is_matrix(file: Path, columns: Sequence[str], table: Fields) -> bool:
    """Return whether a table names the same labels in its first row and its first column."""
    labels = {row[columns[0]] for _, row in table}
    return file.name.casefold() == "similarity.csv" or bool(labels and labels == {*columns[1:]})


def _similarity(file: Path, columns: Sequence[str], table: Fields) -> Knowledge:
    """Return the knowledge of a table of similarities."""
    first, *others = columns
    names = [label_name(column) for column in others]
    lines: dict[str, list[float]] = {}
    for number, row in table:
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
