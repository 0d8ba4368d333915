"""Work in blocks, each of which becomes a Parquet file in a folder.

The folder is the state of the work. A block is done if its file matches the digest in a second file, and its inputs are
unchanged. So stopped or killed work resumes with the missing or damaged blocks, and changed images are answered again.
"""

import hashlib
import io
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from labelwise.support.errors import LabelwiseError, StoreError, UsageError
from labelwise.support.files import read_regular
from labelwise.support.writable import write_atomically, write_file, writing

ABOUT = "_job.json"  # Parquet readers skip names with a leading underscore
MOST_ABOUT = 2**20  # most bytes of it
MOST_RECORD = 2**12  # most bytes of a block's record
PART = re.compile(r"\.(_job\.json|_?part-\d{6,}\.(parquet|made))\.\d+\.part")  # leftovers of killed processes
TRIES = 3  # retries of a block whose process dies
AHEAD = 2  # queued blocks per process
Done = Callable[[int], None]  # called with the number of images of a finished block


@dataclass(frozen=True, kw_only=True)
class Parts(ABC):
    """Work in blocks; picklable, for other processes and machines."""

    folder: str  # folder of the Parquet files
    device: str = "cpu"  # or cuda, or auto: the best one of the machine

    @property
    @abstractmethod
    def sizes(self) -> Sequence[int]:
        """The number of images per block."""

    @abstractmethod
    def open(self, threads: int) -> Any:
        """Open what a process keeps between blocks, with this many threads."""

    @abstractmethod
    def answer(self, opened: Any, block: int) -> None:
        """Write the file of a block."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return the identity of the job, which must match to continue it."""

    @abstractmethod
    def content(self, block: int) -> bytes:
        """Return the identity of a block, which changes with its content."""

    @abstractmethod
    def words(self, block: int) -> str:
        """Describe a block for messages."""

    def place(self, block: int) -> Path:
        """Return the file of a block."""
        return Path(self.folder) / f"part-{block:06d}.parquet"

    @property
    def missing(self) -> list[int]:
        """The blocks to do."""
        return [block for block in range(len(self.sizes)) if not self.is_done(block)]

    def is_done(self, block: int) -> bool:
        """Return whether the file of a block is intact and matches the block's present identity."""
        try:
            record = read_regular(self._record(block), MOST_RECORD)
            return record == _record_of(self.content(block), read_regular(self.place(block)))
        except OSError:
            return False

    def _record(self, block: int) -> Path:
        """Return the record next to the file of a block: its identity and digest."""
        return Path(self.folder) / f"_part-{block:06d}.made"

    def begin(self) -> None:
        """Create the folder, or continue an earlier run of the same job; refuse the folder of another job."""
        arrow()
        folder, identity = Path(self.folder), self.identity()
        if folder.exists() and not folder.is_dir():
            raise UsageError(
                f'"{folder}" is a file; answers are written to a folder of Parquet files. Choose another name.'
            )
        file = folder / ABOUT
        if folder.is_dir() and any(folder.iterdir()) and not file.exists():
            raise UsageError(f'"{folder}" holds other files. Choose a folder that does not exist yet.')
        if file.exists():
            stored_identity = _read(file)
            different = sorted(
                key for key in {*identity, *stored_identity} if identity.get(key) != stored_identity.get(key)
            )
            if different:
                raise UsageError(
                    f'"{folder}" has answers of another job (different {", ".join(different)}) and cannot be continued. Choose another --out, '
                    "or delete that folder."
                )
            for leftover in folder.iterdir():
                if PART.fullmatch(leftover.name):
                    with suppress(OSError):
                        leftover.unlink()
            return
        with writing(folder):
            folder.mkdir(exist_ok=True)
            write_atomically(file, json.dumps(identity, indent=1).encode())

    def write(self, block: int, content: bytes, schema: Any, tables: Iterable[Any]) -> None:
        """Write pyarrow tables atomically as the file of a block; ``content`` is its identity before the work."""
        sink = io.BytesIO()
        with import_module("pyarrow.parquet").ParquetWriter(sink, schema) as writer:
            for table in tables:
                writer.write_table(table)
        write_file(self.place(block), sink.getbuffer())
        write_file(self._record(block), _record_of(content, sink.getbuffer()))

    def deadly(self, block: int) -> LabelwiseError:
        """Return the error of a block whose process died at every attempt."""
        return LabelwiseError(
            f"A process that read {self.words(block)} was killed {TRIES} times, perhaps for lack of memory. The other "
            "answers are saved: use fewer --workers, or remove these images, and run the same command again."
        )


def _record_of(content: bytes, data: bytes | memoryview) -> bytes:
    return content + b"\n" + hashlib.sha256(data).hexdigest().encode()


def _read(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(read_regular(file, MOST_ABOUT))
    except (OSError, ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise StoreError(f'"{file}" is damaged, so the job of this folder is unknown. Delete the folder.')
    return document


def arrow() -> Any:
    """Import pyarrow, or raise an error that says how to install it."""
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError:
        raise UsageError('Parquet needs pyarrow: pip install "labelwise[parquet]".') from None
