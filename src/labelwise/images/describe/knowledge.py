"""Knowledge about labels: sentences, attributes, an order, shares and similarities, read from small files.

These files are next to the data, each with one row, line or table for each label::

    labels.csv      label,text,order,share,parent,can fly,has stripes   (every other column is an attribute)
    labels.toml     [labels."barn owl"]  texts = ["..."]  vector = [1, 0.2]  order = 3  share = 0.1  parents = ["owl"]
    labels.json     {"labels": {"barn owl": {"texts": ["..."], "vector": [1, 0.2]}}}
    similarity.csv  the labels in the first row and in the first column, numbers between
    order.txt       one label a line, from the lowest to the highest
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.knowledge_files import read_labels
from labelwise.images.describe.labels import Labels, normal_name
from labelwise.support.errors import DataError, UsageError, listing, suggest
from labelwise.support.files import open_regular

MOST_IMAGES = 100  # images whose sentences describe a label
FILES = ("labels.csv", "labels.toml", "labels.json", "similarity.csv", "order.txt")

_PIECES = {
    "vectors": ("vectors", "attribute columns (numbers)", "labels.csv"),
    "texts": ("sentences", 'a column "text"', "labels.csv"),
    "order": ("an order", 'a column "order"', "labels.csv"),
    "shares": ("shares", 'a column "share"', "labels.csv"),
    "similarity": ("similarities", "a table of numbers, the labels in its first row and column, as", "similarity.csv"),
    "parents": ("parents", 'a column "parent"', "labels.csv"),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Knowledge:
    """Labels and their descriptions."""

    labels: Labels
    attributes: tuple[str, ...] = ()  # names of the attributes in their vectors, or none
    source: str = "What is known about labels"  # its source, the start of an error

    @property
    def names_described(self) -> frozenset[str]:
        """The labels with sentences or attributes, which need no training image."""
        silent = self.labels.texts is None and self.labels.vectors is None
        return frozenset() if silent else frozenset(self.labels.names)


def read_knowledge(path: str | Path, names: Sequence[str] | None = None) -> Knowledge:
    """Read label descriptions from a file; the module docstring lists the formats, whatever the file name.

    ``names`` must be there and come first, in this order, then any others of the file.
    """
    file = Path(path)
    labels, attributes = read_labels(file)
    knowledge = Knowledge(labels=labels, attributes=attributes, source=f'"{file}"')
    return knowledge if names is None else _arranged(knowledge, names)


def find_knowledge(folder: str | Path, names: Sequence[str] | None = None) -> Knowledge | None:
    """Read and merge label descriptions from a folder (``names`` as in ``read_knowledge``), or return None."""
    files = [file for name in FILES if (file := Path(folder) / name).is_file() and not _is_of_images(file)]
    if not files:
        return None
    first, *extras = [read_knowledge(file) for file in files]
    merged, source = first, dict.fromkeys(_pieces(first.labels), first.source)
    for extra in extras:
        extra = _arranged(extra, first.labels.names)
        _arranged(first, extra.labels.names)  # includes all labels of the other file
        pieces = _pieces(extra.labels)
        for piece in pieces:
            if source.setdefault(piece, extra.source) != extra.source:
                raise DataError(
                    f"Both {source[piece]} and {extra.source} give {_PIECES[piece][0]} of labels. Keep one."
                )
        merged = Knowledge(labels=replace(merged.labels, **pieces), attributes=merged.attributes or extra.attributes)
    merged = replace(merged, source=listing(f'"{file}"' for file in files))
    return merged if names is None else _arranged(merged, names)


def _is_of_images(file: Path) -> bool:
    """Return whether a file ``labels.json`` is FiftyOne's: image labels, starting with the classes."""
    if file.suffix != ".json":
        return False
    with open_regular(file, None) as stream:
        return b'"classes"' in stream.read(256)


def _pieces(labels: Labels) -> dict[str, Any]:
    """Return the label descriptions, without the names."""
    return {piece: getattr(labels, piece) for piece in _PIECES if getattr(labels, piece) is not None}


def with_knowledge(dataset: Dataset, knowledge: Knowledge) -> Dataset:
    """Return the data set with label descriptions.

    Its labels keep their positions; labels that only the knowledge has come after them and have no images: they are
    unseen. What the data set knew and the knowledge does not say stays, unless there are such new labels.
    """
    labels = _arranged(knowledge, dataset.labels.names).labels
    if len(labels) == len(dataset.labels):
        labels = replace(labels, **(_pieces(dataset.labels) | _pieces(labels)))
    extra = len(labels) - len(dataset.labels)
    splits = {
        name: replace(split, targets=np.pad(split.targets, ((0, 0), (0, extra)))) if split.multilabel else split
        for name, split in dataset.splits.items()
    }
    return replace(dataset, labels=labels, splits=splits)


def describe_labels(dataset: Dataset) -> Dataset:
    """Return the data with sentences per label, taken from training images for labels without any.

    Each label gets the sentences of its first images in train; a label that has none there, such as one held out to
    choose settings, those of its images in val. The test split is never read. Data whose labels have texts, or whose
    images have none, or several labels each, come back unchanged; so do data where some label would stay without but all have vectors.
    """
    labels = dataset.labels
    if labels.texts is not None or dataset.multilabel:  # sentences of a multi-label image do not describe each label
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
        'sentence. Put a file labels.csv next to the data, with the columns "label" and "text" and a row for every label.'
    )


def _sentences(part: Split | None) -> dict[int, tuple[str, ...]]:
    """Return the sentences of the first images of each label in a split."""
    if part is None:
        return {}
    images: dict[int, list[tuple[str, ...]]] = {}
    for target, texts in zip(part.targets.tolist(), part.texts or [()] * len(part), strict=True):
        if texts and target >= 0:
            images.setdefault(target, []).append(texts)
    return {target: tuple(text for texts in every[:MOST_IMAGES] for text in texts) for target, every in images.items()}


def require(labels: Labels, piece: str, source: str) -> None:
    """Raise an error with advice unless the labels have this piece; ``source`` names who needs it."""
    if piece not in _PIECES:
        raise UsageError(f'Labels have no piece "{piece}".{suggest(piece, _PIECES)} Pieces: {listing(_PIECES)}.')
    if getattr(labels, piece) is None:
        words, add, file = _PIECES[piece]
        joint = "" if add.endswith(" as") else " to"
        raise DataError(
            f"{source} reads {words}, but these labels have none. Add {add}{joint} {file} next to the data."
        )


def _arranged(knowledge: Knowledge, names: Sequence[str]) -> Knowledge:
    """Return the knowledge with these labels first, in this order."""
    own = [normal_name(name) for name in names]
    own_names = {normal_name(name): name for name in knowledge.labels.names}
    asked_names = set(own)
    other_names = [name for name in own_names if name not in asked_names]
    missing = [name for name in own if name not in own_names]
    if missing:
        raise DataError(
            f"{knowledge.source} does not describe these labels: {listing(missing)}.{suggest(missing[0], other_names)} "
            f'Add a row (or line, or table) for "{missing[0]}".'
        )
    labels = knowledge.labels.select([own_names[name] for name in (*own, *other_names)])
    return replace(knowledge, labels=replace(labels, names=(*names, *(own_names[name] for name in other_names))))
