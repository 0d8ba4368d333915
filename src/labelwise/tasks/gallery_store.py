"""A gallery on disk in a LanceDB table: larger than memory, with metadata filters, opened without loading.

Each added block is one transaction, so an interrupted build leaves a valid gallery. Rows hold embeddings or whitened embeddings, see
``StoredGallery.by``. Writers take turns; readers see the newest version without waiting.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from labelwise.core.classifier import Classifier
from labelwise.support.errors import StoreError, UsageError
from labelwise.support.files import read_text
from labelwise.support.writable import check_writable, turn, write_atomically, writing
from labelwise.tasks.gallery import Gallery, check_probe, probe_embeddings
from labelwise.tasks.gallery_rows import (
    READ_BACK,
    VECTORS,
    Kind,
    in_words,
    quote,
    row_vectors,
    table_description,
    table_rows,
    table_schema,
)
from labelwise.tasks.similarity import By, best_score, comparable

SUFFIX, TABLE = ".lance", "images"
INDEXED = 50_000  # smaller galleries are as fast without an index
OUTGROWN = 4  # growth factor at which the index is rebuilt
LOOKED_AT = 64  # regions per query
NAMED = 1_024  # files per SQL condition
KEPT = timedelta(minutes=10)  # how long old versions stay for open readers


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Candidates for a query."""

    embeddings: NDArray[np.float32]  # embeddings to compare [c, d]
    files: list[str]
    labels: list[str | None]


class StoredGallery:
    """A gallery on disk. Open it with ``open_gallery``."""

    def __init__(self, path: Path, table: Any) -> None:
        self.path, self._table = path, table
        description = table_description(path, table)
        self.by: Kind = description["by"]  # plain or whitened embeddings
        self.made_by: str = description["made_by"]  # description of the classifier that made it
        self.probe = np.array(description["probe"], np.float32)

    def __len__(self) -> int:
        with in_words(self.path):
            return int(self._table.count_rows())

    def __repr__(self) -> str:
        return f"<StoredGallery: {len(self)} images in {self.path}, by {self.by}>"

    def check(self, classifier: Classifier, by: By | None = None) -> None:
        """Raise an error if another model made the gallery, or it stores another kind of embeddings."""
        if by is not None and (by == "whitened") != (self.by == "whitened"):
            holds = "whitened embeddings" if self.by == "whitened" else "plain embeddings"
            alternatives = "--by whitened" if self.by == "whitened" else "--by similarity, cosine or sum"
            raise UsageError(
                f'{self.path} holds {holds} and cannot be searched by "{by}". Search with {alternatives}, or build another gallery.'
            )
        if classifier.head not in self._models:
            try:
                check_probe(self.probe, _probe(classifier, self.by))
            except UsageError as error:
                raise UsageError(f"{self.path} was made by {self.made_by}. {error}") from None
            self._models.add(classifier.head)

    @cached_property
    def _models(self) -> "WeakSet[Any]":
        """Models already checked."""
        return WeakSet()

    def near(
        self, query: NDArray[np.float32], count: int, *, where: str | None = None, approximate: bool = True
    ) -> Candidates:
        """Return the ``count`` images nearest to a query ``[d]`` by cosine, best first, optionally filtered.

        ``where`` is a condition of SQL on file, label, date and folder. An approximate search uses the index, if there is one.
        """
        search = self._table.search(query, vector_column_name=VECTORS).distance_type("cosine")
        near = search.minimum_nprobes(LOOKED_AT).maximum_nprobes(0)  # search more regions if a filter leaves too few
        search = near if approximate else search.bypass_vector_index()
        search = search.where(where, prefilter=True) if where else search
        with in_words(self.path, where):
            rows = search.limit(count).select([*READ_BACK, "_distance"]).to_arrow()
        vectors = row_vectors(self.path, rows)
        return Candidates(embeddings=vectors, files=rows["file"].to_pylist(), labels=rows["label"].to_pylist())

    def scan(self, where: str | None = None) -> Iterator[Candidates]:
        """Yield all images that pass a filter, in blocks."""
        search = self._table.search().select(list(READ_BACK))
        with in_words(self.path, where):
            for rows in (search.where(where) if where else search).to_batches():
                files, labels = rows["file"].to_pylist(), rows["label"].to_pylist()
                yield Candidates(embeddings=row_vectors(self.path, rows), files=files, labels=labels)

    def add(self, classifier: Classifier, part: Gallery, dates: Sequence[str] = ()) -> int:
        """Add new images and return how many; ``dates`` are ISO dates, one per image, or none.

        All of them are added in one transaction.
        """
        if dates and len(dates) != len(part):
            raise UsageError(f"A date for each image or none; given {len(dates)} for {len(part)}.")
        self.check(classifier)
        part.check(classifier)
        embeddings = _comparable(classifier, part.embeddings, self.by)
        labels: Sequence[str | None] = part.labels or (None,) * len(part)
        dates = dates or ("",) * len(part)
        with self._writing():
            stored_rows = self.rows_of(part.files)
            rows = [i for i, file in enumerate(part.files) if file not in stored_rows]
            if rows:
                files, dated = [part.files[i] for i in rows], [dates[i] for i in rows]
                self._table.add(table_rows(embeddings[rows], files, [labels[i] for i in rows], dated))
        return len(rows)

    def rows_of(self, files: Sequence[str]) -> dict[str, int]:
        """Return the stored ones of these names, each with the checksum of its row, see ``with_checksum``."""
        if not files:
            return {}
        names = ", ".join(map(quote, files))
        rows = self._table.search().where(f"file IN ({names})").select(["file", "crc"]).limit(len(files))
        with in_words(self.path):
            table = rows.to_arrow()
        return dict(zip(table["file"].to_pylist(), table["crc"].to_pylist(), strict=True))

    def with_checksum(self, crc: int) -> list[str]:
        """Return the names of images with this row checksum, usually one; reads no other column."""
        with in_words(self.path):
            return list(self._table.search().where(f"crc = {crc}").select(["file"]).to_arrow()["file"].to_pylist())

    def files_below(self, folder: str | Path) -> set[str]:
        """Return the names of all images under a folder."""
        top = os.path.join(os.path.realpath(folder), "")
        after = top[:-1] + chr(ord(top[-1]) + 1)  # the first string after all strings with this prefix
        with in_words(self.path):
            names = self._table.search().where(f"file >= {quote(top)} AND file < {quote(after)}").select(["file"])
            return {name for batch in names.to_batches() for name in batch["file"].to_pylist()}

    def remove(self, where: str) -> int:
        """Remove the images that match a condition, such as ``"label = 'wren'"``, and return how many."""
        with self._writing(where):
            count = int(self._table.count_rows(where))
            if count:
                self._table.delete(where)
        return count

    def remove_files(self, files: Sequence[str]) -> None:
        """Remove images by name."""
        for start in range(0, len(files), NAMED):
            self.remove(f"file IN ({', '.join(map(quote, files[start : start + NAMED]))})")

    def tidy(self, at_least: int = INDEXED) -> None:
        """Join small files and update the index. An index exists from ``at_least`` rows on and is rebuilt when outgrown."""
        with self._writing():
            self._table.optimize(cleanup_older_than=KEPT)
            rows = len(self)
            if rows < max(2, at_least):
                return
            from lancedb.index import Bitmap, BTree, IvfRq

            indices = self._table.list_indices()
            indexed = {column for index in indices for column in index.columns}
            for column, config in {"file": BTree(), "date": BTree(), "folder": Bitmap(), "label": Bitmap()}.items():
                if column not in indexed:
                    self._table.create_index(column, config=config)
            if VECTORS not in indexed or rows >= OUTGROWN * self._indexed_at():
                self._table.create_index(VECTORS, config=IvfRq(distance_type="cosine"))
                self._note_indexed(rows)

    def _indexed_at(self) -> int:
        """Return the number of rows when the index was built."""
        return int(read_text(self.path / "indexed")) if (self.path / "indexed").exists() else 0

    def _note_indexed(self, rows: int) -> None:
        write_atomically(self.path / "indexed", str(rows).encode())

    def verify(self) -> int:
        """Read all rows and return their number; raise an error if a row was changed."""
        return sum(len(part.files) for part in self.scan())

    @contextmanager
    def _writing(self, where: str | None = None) -> Iterator[None]:
        """Lock the gallery against other writers, and see their changes."""
        with turn(self.path / ".lock"), in_words(self.path, where):
            self._table.checkout_latest()
            yield


def is_stored(path: str | Path) -> bool:
    """Return whether a path is a gallery table on disk."""
    return Path(path).suffix == SUFFIX


def open_gallery(path: str | Path) -> StoredGallery:
    """Open a gallery that ``create_gallery`` made, without loading it."""
    path, lancedb = Path(path), need_lancedb()
    if not (path / f"{TABLE}{SUFFIX}").is_dir():
        raise StoreError(
            f"{path} is not a gallery. Build one: labelwise retrieve MODEL --gallery FOLDER --index {path.with_suffix(SUFFIX)}."
        )
    with in_words(path):
        return StoredGallery(path, lancedb.connect(path, read_consistency_interval=timedelta(0)).open_table(TABLE))


def create_gallery(path: str | Path, classifier: Classifier, by: By | None = None) -> StoredGallery:
    """Open or create a gallery; raise an error if another model made it."""
    path, lancedb = Path(path), need_lancedb()
    if not is_stored(path):
        raise UsageError(f'The name of a gallery on disk must end in {SUFFIX}; given "{path}".')
    if not (path / f"{TABLE}{SUFFIX}").exists():
        kind: Kind = "whitened" if (by or best_score(classifier.head)) == "whitened" else "cosine"
        schema = table_schema(_probe(classifier, kind).tolist(), kind, repr(classifier))
        check_writable(path)
        is_new = not path.exists()
        try:
            with writing(path):
                path.mkdir(exist_ok=True)
                with turn(path / ".lock"), in_words(path):
                    lancedb.connect(path).create_table(TABLE, schema=schema, exist_ok=True)
        except BaseException:
            if is_new:
                shutil.rmtree(path, ignore_errors=True)
            raise
    gallery = open_gallery(path)
    gallery.check(classifier, by)
    return gallery


def need_lancedb() -> Any:
    """Import lancedb, or say what to install."""
    try:
        import lancedb
    except ModuleNotFoundError:
        raise UsageError('A gallery on disk needs LanceDB: pip install "labelwise[gallery]".') from None
    return lancedb


def _probe(classifier: Classifier, by: Kind) -> NDArray[np.float32]:
    """Return the stored form of the embeddings of fixed noise images ``[p, d]``."""
    return _comparable(classifier, probe_embeddings(classifier), by)


def _comparable(classifier: Classifier, embeddings: NDArray[np.float32], by: Kind) -> NDArray[np.float32]:
    """Return the stored form of embeddings ``[n, d]``."""
    return comparable(classifier.head, embeddings, by)[0].astype(np.float32)
