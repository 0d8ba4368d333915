"""What a file of another tool says about images: records, brought to the rows that every source makes."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from xml.parsers.expat import ExpatError

from labelwise.images.decode.crops import LARGEST, Box, crop_address, file_of
from labelwise.images.describe.labels import normal_name, unfit_name
from labelwise.images.formats.taxonomy import lineages
from labelwise.images.images import Skipped
from labelwise.images.sources.paths import SPELLINGS, locate
from labelwise.images.sources.rows import Rows, named_rows
from labelwise.support.errors import DataError, listing

FOLDERS = ("", "images", "data")  # where images may start from, below the folder of a file
HOMES = ("annotations", "labels")  # folders whose images are next to them
GUESS = "guess"  # the "source" of a label that nobody answered
LEAST = 0.2  # the confidence from which boxes of detectors count, as the makers of MegaDetector 5 advise
FAULTS = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, ExpatError)


@dataclass(frozen=True, kw_only=True)
class Record:
    """An annotation of an image, or of a box in it."""

    file: str  # as the format spells it
    labels: tuple[str, ...] | None = None  # None: nobody has labelled it
    guess: tuple[str, ...] = ()  # what a program calls it, where no person has said; it may be in ``labels``, too
    box: Box | None = None
    seconds: float | None = None  # since the beginning of a video, of a frame of one
    split: str = ""
    group: str = ""  # the event or sequence of the image
    domain: str = ""  # the place or camera
    texts: tuple[str, ...] = ()
    confidence: float | None = None  # of a detector in its box
    scanned: bool = False  # whether a detector looked for boxes in the whole image
    detected: str = ""  # what a detector calls it where it is no animal: it is not classified
    ranks: tuple[str, ...] = ()  # the groups that hold its label, as ``taxonomy.ranks_of`` returns them

    def __post_init__(self) -> None:
        """Raise one of ``FAULTS`` for a name that is not text, or a box that is not of finite numbers."""
        words = (self.file, self.split, self.group, self.domain, *self.texts, *(self.labels or ()), *self.guess)
        "".join(words).encode(errors="surrogateescape")
        if self.box is not None and not all(abs(number) < LARGEST for number in self.box[:4]):
            raise ValueError(f"a box has the numbers {listing(map(str, self.box[:4]))}")


@dataclass(frozen=True, kw_only=True)
class Annotations:
    """The records of one file."""

    source: Path
    home: Path  # the folder that images may not be outside of
    records: tuple[Record, ...]
    folders: tuple[str, ...] = FOLDERS  # below ``home``, where the names of images may start

    def located(self, root: Path | None = None, *, outside: bool = False) -> Iterator[tuple[str, Record]]:
        """Yield the address of each image or box, and its record.

        ``root`` is another folder that the images are in; ``outside`` allows any place, where no image is going to be read.
        """
        known: dict[str, str] = {}
        for record in self.records:
            if record.file not in known:
                known[record.file] = self._locate(record.file, root, outside=outside)
            yield crop_address(known[record.file], record.box, record.seconds), record

    def _locate(self, file: str, root: Path | None, *, outside: bool) -> str:
        if not file or "\0" in file:
            raise DataError(f'"{self.source}" names an image {file!r:.60}. Give each image the name of its file.')
        starts = [self.home / folder for folder in self.folders] if root is None else [root, self.home]
        return locate(file, starts, None if outside else starts[0] if root else self.home, f'"{self.source}": ')


def files_named(folder: Path, pattern: str) -> list[Path]:
    """Return the files of a folder whose names match a pattern, sorted; pipes, folders and broken links are none."""
    return sorted(file for file in folder.glob(pattern) if file.is_file())


def home_of(file: Path) -> Path:
    """Return the folder that the images of an annotation file are in or below."""
    return file.parent.parent if file.parent.name.casefold() in HOMES else file.parent


def split_of(file: Path) -> str:
    """Return the split that the name of a file or its folder begins with, or nothing: ``instances_train2017.json``."""
    words = [file.parent.name, *file.stem.replace("-", "_").split("_")]
    plain = (word.rstrip("0123456789").casefold() for word in words)
    return next((SPELLINGS[word] for word in plain if word in SPELLINGS), "")


@contextmanager
def shaped(source: Path, what: str) -> Iterator[None]:
    """Raise what goes wrong where a file has not the form of its format as an error for people."""
    try:
        yield
    except OSError as error:
        file = error.filename or source
        raise DataError(f'Cannot read "{file}": {error.strerror}. Check the path and its rights.') from None
    except FAULTS as error:
        words = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f'"{source}" does not have the form of {what} ({words:.200}). Export it again.') from None


def rows_of(parts: Sequence[Annotations], root: Path | None = None) -> Rows:
    """Return the labelled images of some files as rows: boxes where there are any, otherwise whole images."""
    located = [pair for part in parts for pair in part.located(root) if is_sure(pair[1])]
    labelled = [(address, record) for address, record in located if record.labels is not None]
    boxes = [pair for pair in labelled if pair[1].box is not None]
    merged = _merged(boxes or labelled or located)
    several = any(len(record.labels or ()) > 1 for record in merged.values())
    if not several and labelled:
        merged = {address: record for address, record in merged.items() if record.labels}
    if not merged:
        raise DataError(f'"{parts[0].source}" has no image with a label.')
    merged, open_ = _without_groups(merged)
    records = list(merged.values())
    names = [tuple(_label(name, parts[0].source) for name in record.labels or ()) for record in records]
    rows = named_rows([each[0] if each else None for each in names], [tuple(sorted(set(n))) for n in names] * several)
    return replace(
        rows,
        files=tuple(merged),
        splits=[record.split for record in records] if all(record.split for record in records) else (),
        groups=_groups(merged),
        domains=_column(record.domain for record in records),
        texts=tuple(record.texts for record in records) if any(record.texts for record in records) else (),
        parents=_parents(records),
        skipped=tuple(open_),
    )


def _without_groups(merged: dict[str, Record]) -> tuple[dict[str, Record], list[Skipped]]:
    """Return the records without those whose label is a group that holds another label: which of these it is, is open."""
    groups = {group for one in merged.values() for group in one.ranks if group not in (one.labels or ())}
    vague = {address: one.labels[0] for address, one in merged.items() if one.labels and groups.issuperset(one.labels)}
    rest = {address: one for address, one in merged.items() if address not in vague}
    return rest, [
        Skipped(file=address, reason=f'it is known as "{label}" only, which holds other labels.')
        for address, label in vague.items()
    ]


def _parents(records: Iterable[Record]) -> Mapping[str, tuple[str, ...]]:
    """Return the groups that hold each label, where records name any."""
    ranked = {normal_name(record.labels[0]): record.ranks for record in records if record.labels and record.ranks}
    return {label: path for label, path in lineages(ranked).items() if path}


def is_sure(record: Record, least: float = LEAST) -> bool:
    """Return whether a detector is as confident of a box as it must be; whole images and boxes of people always count."""
    return record.confidence is None or record.confidence >= least


def _merged(pairs: Iterable[tuple[str, Record]]) -> dict[str, Record]:
    """Return one record for each address: an image has all labels that are said of it, a box the first."""
    merged: dict[str, Record] = {}
    for address, record in pairs:
        known = merged.setdefault(address, record)
        if known is not record and record.box is None:
            labels = tuple(dict.fromkeys((*(known.labels or ()), *(record.labels or ()))))
            merged[address] = replace(known, labels=labels)
    return merged


def _groups(records: Mapping[str, Record]) -> tuple[str, ...]:
    """Return the groups that splits keep together: events, and the boxes of one image."""
    homes = [file_of(address) for address in records]
    boxes = Counter(homes)
    return _column(r.group or home * (boxes[home] > 1) for home, r in zip(homes, records.values(), strict=True))


def _column(cells: Iterable[str]) -> tuple[str, ...]:
    column = tuple(map(normal_name, cells))
    return column if any(column) else ()


def _label(name: str, source: Path) -> str:
    if unfit := unfit_name(name):
        raise DataError(f'"{source}" has a label that cannot be one: {unfit}. Rename it there.')
    return normal_name(name)


def path_below(file: str, home: Path) -> str:
    """Return the path of an image from a folder that it must be in, with slashes."""
    path = Path(os.path.relpath(os.path.abspath(file), os.path.abspath(home))).as_posix()
    if path.startswith("../"):
        raise DataError(f'"{file}" is outside the folder "{home}". Name the folder of all images: --data-root FOLDER.')
    return path


def relative(folder: Path, home: Path) -> str:
    """Return a folder below a home as a start for the names of images."""
    return os.path.relpath(folder, home) if folder != home else ""
