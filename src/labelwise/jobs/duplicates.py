"""Find all pairs of lookalikes among very many images; memory holds only their names and coordinates.

First the looks of all are written, by a job like any other (``looks``). Then images are divided into cells of near ones, by halves along the
direction in which they vary most, and a block is a cell, compared with itself and with those cells after it that its images may reach. Of images
whose looks are equal to the last bit, the first represents all.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labelwise.jobs.job import Job, as_text
from labelwise.jobs.parts import Parts, arrow
from labelwise.support.errors import DataError, UsageError
from labelwise.support.files import open_regular, read_regular, regular_path
from labelwise.support.processes import set_threads
from labelwise.support.writable import write_atomically, writing

if TYPE_CHECKING:
    from labelwise.images.split.lookalikes import Places, Rows

LOOKS, CELLS, BOXES = "_looks", "_cells", "boxes.json"
MOST = 20_000  # approximate number of images per cell
WRITTEN = 500_000  # pairs written at a time
DIRECTIONS = 16  # number of coordinates of an image
Looks = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class PairJob(Parts):
    """Find the pairs of similar images."""

    looks: Job  # subfolder with the fingerprints
    likeness: float  # least similarity of a pair

    @property
    def cells(self) -> Path:
        """The folder of fingerprints by cell; blocks exist once it does."""
        return Path(self.folder) / CELLS

    @cached_property
    def boxes(self) -> list[dict[str, Any]]:
        """The number of images per cell, and the bounds of its coordinates."""
        return list(self._division()["boxes"])

    @cached_property
    def made_of(self) -> str:
        """The identity of the job: any image may be similar to another."""
        digest = hashlib.blake2b(digest_size=16)
        for block in range(len(self.looks.sizes)):
            digest.update(self.looks.content(block))
        return digest.hexdigest()

    def _division(self) -> dict[str, Any]:
        """Return the description of the cells, or an empty one."""
        try:
            division = json.loads(read_regular(self.cells / BOXES))
        except (OSError, ValueError):
            division = None
        return division if isinstance(division, dict) else {}

    def content(self, block: int) -> bytes:
        """Return the identity of a block: it depends on all images, since any may be similar."""
        return f"{self.made_of} {block}".encode()

    @cached_property
    def sizes(self) -> list[int]:
        """The number of images per cell."""
        return [int(box["pictures"]) for box in self.boxes]

    def words(self, block: int) -> str:
        """Describe a block for messages."""
        return f"{self.sizes[block]} images to compare (cell {block})"

    def identity(self) -> dict[str, Any]:
        """Return the identity of the job, which must match to continue it."""
        return self.looks.identity() | {"question": "duplicates", "likeness": self.likeness}

    def divide(self) -> None:
        """Write the fingerprints of all images by cell, unless an earlier run did."""
        division = self._division()
        is_complete = all(
            box["digest"] == _digest(self.cells, cell) for cell, box in enumerate(division.get("boxes", ()))
        )
        if division.get("made_of") != self.made_of or not is_complete:
            if self.cells.is_symlink():
                raise UsageError(
                    f'"{self.cells}" is a link, and the files of that folder would be removed. Choose another --out.'
                )
            with writing(self.cells):
                self.cells.mkdir(exist_ok=True)
                _divide(self.looks, self.cells, self.made_of)

    def open(self, threads: int) -> None:
        """Limit the number of threads."""
        set_threads(threads)

    def answer(self, opened: None, block: int) -> None:  # noqa: ARG002 - nothing is kept between blocks
        """Write the pairs of a cell with itself and with later cells."""
        pyarrow, content = arrow(), self.content(block)
        text = pyarrow.string()
        schema = pyarrow.schema([("file", text), ("other", text), ("likeness", pyarrow.float32())])

        def names(rows: "Rows") -> Any:
            return pyarrow.array([as_text(self.looks.files[row]) for row in rows.tolist()], text)

        def tables() -> Iterator[Any]:
            for first, second, likeness in _pairs(self, block):
                for start in range(0, len(first), WRITTEN):
                    some = slice(start, start + WRITTEN)
                    both = np.sort(np.stack([first[some], second[some]]), 0)
                    columns = [names(both[0]), names(both[1]), pyarrow.array(likeness[some], pyarrow.float32())]
                    yield pyarrow.table(columns, schema=schema)

        self.write(block, content, schema, tables())


def _pairs(job: PairJob, block: int) -> "Iterator[tuple[Rows, Rows, Looks]]":
    """Yield the pairs of a cell with itself and with later cells: row numbers of all images, and similarity."""
    from labelwise.images.split.lookalikes import pairs_between, radius_of

    row, place, look = _cell(job, block)
    _, first, same = np.unique(look.view(f"V{look.shape[1] * 4}")[:, 0], return_index=True, return_inverse=True)
    copies = np.flatnonzero(first[same] != np.arange(len(same)))
    yield row[first[same[copies]]], row[copies], np.ones(len(copies), np.float32)
    first = np.sort(first)
    row, place, look = row[first], place[first], look[first]
    for one, second, likeness in pairs_between((look, look), (place, place), job.likeness):
        yield row[one], row[second], likeness
    reach, box = radius_of(job.likeness), job.boxes[block]
    for after in range(block + 1, len(job.boxes)):
        mine = _is_within(place, job.boxes[after], reach)
        if mine.any():
            their_row, their_place, their_look = _cell(job, after, box, reach)
            places = (place[mine], their_place)
            for one, second, likeness in pairs_between((look[mine], their_look), places, job.likeness):
                yield row[mine][one], their_row[second], likeness


def _is_within(places: "Places", box: dict[str, Any], reach: float) -> "NDArray[np.bool_]":
    """Return which coordinates ``[n, d]`` are within reach of a box."""
    outside = np.maximum(0, np.maximum(np.array(box["low"]) - places, places - np.array(box["high"])))
    return np.asarray((outside**2).sum(1) <= reach**2)


def _cell(job: PairJob, cell: int, box: dict[str, Any] | None = None, reach: float = 0) -> "tuple[Rows, Places, Looks]":
    """Return rows, coordinates and fingerprints of a cell, without repeats; optionally only those within reach of a box."""
    rows = np.fromfile(regular_path(job.cells / f"{cell}.rows"), np.int64)
    places = np.fromfile(regular_path(job.cells / f"{cell}.places"), np.float64).reshape(len(rows), -1)
    looks = np.memmap(regular_path(job.cells / f"{cell}.looks"), np.float32, "r").reshape(len(rows), -1)
    if box is None:
        return rows, places, np.array(looks)
    near = np.flatnonzero(_is_within(places, box, reach))
    some = np.array(looks[near])
    first = np.sort(np.unique(some.view(f"V{some.shape[1] * 4}")[:, 0], return_index=True)[1]) if len(some) else near
    return rows[near[first]], places[near[first]], some[first]


def _digest(folder: Path, cell: int) -> str:
    """Return the digest of the files of a cell; empty if one is missing."""
    digest = hashlib.sha256()
    with suppress(OSError):
        for kind in ("rows", "places", "looks"):
            with open_regular(folder / f"{cell}.{kind}") as file:
                while piece := file.read(2**20):
                    digest.update(piece)
        return digest.hexdigest()
    return ""


def _divide(looks: Job, folder: Path, made_of: str) -> None:
    """Write rows, coordinates and fingerprints by cell; uniformly grey images are skipped."""
    mean, directions = _directions(looks)
    rows, places = [np.empty(0, np.int64)], [np.empty((0, directions.shape[1]))]
    for row, look in _read(looks):
        rows.append(row)
        places.append((look.astype(np.float64) - mean) @ directions)
    row, place = np.concatenate(rows), np.concatenate(places)
    if not len(row):
        raise DataError(
            f'None of the {len(looks.files)} images can be compared: they are unreadable (see column reason of "{looks.folder}") or '
            "uniform. Give others."
        )
    cell = _halves(place)
    for file in folder.iterdir():
        file.unlink()
    order = np.argsort(cell, kind="stable")
    boxes, start = [], 0
    for number, size in enumerate(np.bincount(cell).tolist()):
        mine = order[start : start + size]
        start += size
        row[mine].tofile(folder / f"{number}.rows")
        place[mine].tofile(folder / f"{number}.places")
        low, high = place[mine].min(0).tolist(), place[mine].max(0).tolist()
        boxes.append({"pictures": size, "low": low, "high": high})
    count = 0
    for _, look in _read(looks):
        numbers = cell[count : count + len(look)]
        count += len(look)
        for number in np.unique(numbers).tolist():
            with (folder / f"{number}.looks").open("ab") as stream:
                stream.write(look[numbers == number].tobytes())
    boxes = [box | {"digest": _digest(folder, number)} for number, box in enumerate(boxes)]
    write_atomically(folder / BOXES, json.dumps({"made_of": made_of, "boxes": boxes}).encode())


def _read(looks: Job) -> "Iterator[tuple[Rows, Looks]]":
    """Yield the fingerprints of comparable images with their row numbers, in blocks."""
    parquet, start = import_module("pyarrow.parquet"), 0
    for block, size in enumerate(looks.sizes):
        column = parquet.read_table(regular_path(looks.place(block)), columns=["look"])["look"].to_pylist()
        present = [i for i, cell in enumerate(column) if cell is not None]
        if present:
            table = np.frombuffer(b"".join(column[i] for i in present), np.float32).reshape(len(present), -1)
            varied = table.any(1)  # not uniformly grey
            yield start + np.array(present, np.int64)[varied], table[varied]
        start += size


def _directions(looks: Job) -> "tuple[Places, Places]":
    """Return the mean fingerprint and the principal directions, from sums over all images."""
    count, total, products = 0, np.zeros(1), np.zeros((1, 1))
    for _, look in _read(looks):
        if len(look):
            wide = look.astype(np.float64)
            count, total, products = count + len(wide), total + wide.sum(0), products + wide.T @ wide
    mean = total / max(1, count)
    values = np.linalg.eigh(products - count * np.outer(mean, mean))[1]
    return mean, np.ascontiguousarray(values[:, ::-1][:, :DIRECTIONS])


def _halves(places: "Places") -> "Rows":
    """Return the cell of each point ``[n]`` by repeated halving, until a cell is small or all its points are equal."""
    cell, number = np.zeros(len(places), np.int64), 0
    waiting = [np.arange(len(places))] if len(places) else []
    while waiting:
        rows = waiting.pop()
        axis = int(np.ptp(places[rows], axis=0).argmax())
        values = places[rows, axis]
        is_left = values < np.median(values)
        if len(rows) <= MOST or not is_left.any():
            cell[rows] = number
            number += 1
        else:
            waiting += [rows[~is_left], rows[is_left]]
    return cell
