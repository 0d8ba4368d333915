"""The journal: one file of records beside a saved classifier, each on disk before it is acknowledged.

A record is a line: a checksum, a space, JSON. The first says which model the records belong to. A writer holds a lock, so that
several processes can share one journal; readers need none, for a line counts only when it is whole. The file grows at its end,
and is replaced as a whole when it has become longer than what it says.
"""

import fcntl
import json
import os
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelwise.checkpoint import write_atomically
from labelwise.errors import StoreError

FORMAT = 1
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Tail:
    """Records that a reader had not seen yet; all of them, from the start, where ``anew``."""

    records: list[Record]
    anew: bool


def line_of(record: Record) -> bytes:
    """Return a record as its line."""
    text = json.dumps(record, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
    return b"%08x " % zlib.crc32(text) + text + b"\n"


def record_of(line: bytes) -> Record | None:
    """Return the record of a line without its end; None if it is not whole."""
    try:
        if len(line) < 10 or int(line[:8], 16) != zlib.crc32(line[9:]):
            return None
        found = json.loads(line[9:])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


class Journal:
    """The records of one model as this process has read them so far.

    Attributes:
        folder: where the journal and its locks lie.
        file: the journal itself.
        records: how many this process has read.
    """

    def __init__(self, folder: Path, model: str) -> None:
        self.folder, self.model = folder, model
        self.file = folder / "journal"
        self.records = 0
        self._stream: int | None = None  # kept open, so that its number cannot become another file's
        self._inode, self._read = -1, 0

    def changed(self) -> bool:
        """Return whether there may be something new to read; takes microseconds."""
        try:
            found = os.stat(self.file)
        except FileNotFoundError:
            return self._stream is not None
        return found.st_ino != self._inode or found.st_size != self._read

    def read(self) -> Tail:
        """Return what is new since the last time, up to the last whole record."""
        anew = self._open()
        if self._stream is None:
            return Tail([], anew)
        found = []
        for line in self._lines():
            record = record_of(line)
            if record is None:
                break
            self._read += len(line) + 1
            found.append(record)
        if anew and found:
            self._check_head(found.pop(0))
        self.records = len(found) + (0 if anew else self.records)
        return Tail(found, anew)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock that writers of all processes share."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.folder / "write.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def append(self, record: Record) -> None:
        """Put a record on disk; only while ``writing``, and after everything was read. Raises ``OSError`` where it cannot."""
        if self._stream is None:
            self.replace([])
        assert self._stream is not None
        line = line_of(record)
        stream = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            try:
                written = os.write(stream, line)
                if written < len(line):
                    raise OSError(28, "the disk is full")
                os.fsync(stream)
            except OSError:
                os.ftruncate(stream, self._read)
                raise
        finally:
            os.close(stream)
        self._read += len(line)
        self.records += 1

    def replace(self, records: Sequence[Record]) -> None:
        """Put these records in place of all; only while ``writing``."""
        head = {"format": FORMAT, "model": self.model}
        write_atomically(self.file, b"".join(line_of(record) for record in (head, *records)))
        _sync_folder(self.folder)
        self._open()
        assert self._stream is not None
        self._read = os.fstat(self._stream).st_size
        self.records = len(records)

    def repair(self) -> Path | None:
        """Set aside what a killed writer left behind the last whole record, and return where; only while ``writing``."""
        self._open()
        if self._stream is None or (end := os.fstat(self._stream).st_size) == self._read:
            return None
        rest = os.pread(self._stream, end - self._read, self._read)
        if not self._read or any(record_of(line) is not None for line in rest.split(b"\n")[:-1]):
            raise StoreError(
                f"{self.file} is damaged: a record that is not the last one is not whole (at byte {self._read}). Restore it "
                f"from a copy, or move {self.folder} away to start without the taught labels."
            )
        aside = self.folder / f"torn.{time.time_ns()}"
        write_atomically(aside, rest)
        stream = os.open(self.file, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(stream, self._read)
            os.fsync(stream)
        finally:
            os.close(stream)
        return aside

    def close(self) -> None:
        """Let go of the file."""
        if self._stream is not None:
            os.close(self._stream)
        self._stream, self._inode, self._read = None, -1, 0

    def _open(self) -> bool:
        """Open the journal if there is one and it is not the one that is open; return whether reading starts anew."""
        try:
            stream = os.open(self.file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            was = self._stream is not None
            self.close()
            return was
        inode = os.fstat(stream).st_ino
        if self._stream is not None and inode == self._inode and os.fstat(stream).st_size >= self._read:
            os.close(stream)
            return False
        self.close()
        self._stream, self._inode = stream, inode
        return True

    def _lines(self) -> list[bytes]:
        """Return the ended lines behind what was read."""
        assert self._stream is not None
        found = b""
        while part := os.pread(self._stream, 2**24, self._read + len(found)):
            found += part
        return found.split(b"\n")[:-1]

    def _check_head(self, head: Record) -> None:
        if head.get("format") != FORMAT:
            raise StoreError(
                f"{self.file} has format {head.get('format')}; this version reads format {FORMAT}. Update labelwise."
            )
        if head.get("model") != self.model:
            raise StoreError(
                f"{self.folder} holds what was taught to another model: this one was trained anew since. Move the folder "
                "away to start without those labels."
            )


def _sync_folder(folder: Path) -> None:
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
