"""Open files that a user names, with memory limits; read and write safetensors with checksums."""

import errno
import gzip
import hashlib
import io
import json
import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from io import BufferedReader
from itertools import chain
from os import SEEK_END
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from safetensors import SafetensorError, safe_open

from labelwise.support.errors import DataError, LabelwiseError, StoreError, UsageError
from labelwise.support.writable import write_atomically

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

MAX_BYTES = 2**30  # of an image or a sound: 100 million pixels of four 16-bit values have 0.8 GB uncompressed
MAX_TEXT = 2**28  # of names, settings, a log
CHUNK = 2**20  # bytes read or unpacked at a time
VARIABLE = "LABELWISE_MAX_GB"
SHARE = 0.5  # default limit, as a share of this machine's memory
_MAX_GB: ContextVar[float | None] = ContextVar("max_gb", default=None)
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class NotAFileError(OSError):
    """A path that is not a regular file."""


def open_regular(path: str | Path, most: int | None = MAX_BYTES) -> BufferedReader:
    """Return the content of a file as a stream, or raise an ``OSError`` if it is not a file or has more bytes than ``most``.

    Links are followed. Devices and pipes are not opened: a device may have side effects, and a pipe blocks.
    """
    _check(path, os.stat(path), most)
    stream = open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")  # noqa: SIM115
    try:
        _check(path, os.fstat(stream.fileno()), most)  # it may have been replaced meanwhile
    except OSError:
        stream.close()
        raise
    return stream


def read_regular(path: str | Path, most: int = MAX_BYTES) -> bytes:
    """Return the content of a file, as ``open_regular`` opens it."""
    with open_regular(path, most) as stream:
        return stream.read(most)  # it may grow


def read_text(path: str | Path, most: int = MAX_TEXT, encoding: str = "utf-8") -> str:
    """Return the text of a file, as ``open_regular`` opens it."""
    return read_regular(path, most).decode(encoding)


def regular_path(path: str | Path, most: int | None = None) -> str:
    """Check a path for a library that opens files itself; raise the errors of ``open_regular``."""
    _check(path, os.stat(path), most)
    return os.fspath(path)


def _check(path: str | Path, about: os.stat_result, most: int | None) -> None:
    if not stat.S_ISREG(about.st_mode):
        kind = _KINDS.get(stat.S_IFMT(about.st_mode), "something else")
        raise NotAFileError(errno.EINVAL, f"it is {kind}, not a file", os.fspath(path))
    if most is not None and about.st_size > most:
        raise OSError(errno.EFBIG, f"it has {about.st_size} bytes; the limit is {most}", os.fspath(path))


class Stream(Protocol):
    """A readable stream."""

    def read(self, size: int, /) -> bytes:
        """Read at most this many bytes."""


def check_size(file: str | Path, size: float, error: type[LabelwiseError] = DataError) -> None:
    """Raise an error if the content of a file would exceed the memory limit, see ``max_bytes``."""
    if size > (most := max_bytes()):
        raise error(
            f'"{file}" would take {size / 1e9:.3g} GB of memory, and {most / 1e9:.3g} GB are allowed. If you trust the file, '
            f"allow more: labelwise --max-gb {max(1, -int(-size // 1e9))}, max_gb= in Python, or the variable {VARIABLE}."
        )


def max_bytes() -> float:
    """Return the memory limit in bytes: from ``at_most``, or ``LABELWISE_MAX_GB``, or half of the memory."""
    limit = _MAX_GB.get()
    if limit is None and (words := os.environ.get(VARIABLE)):
        with suppress(ValueError):
            limit = float(words)
        if limit is None or not limit > 0:
            raise UsageError(f"{VARIABLE} must be a number of gigabytes above 0; given {words!r:.40}.")
    return SHARE * memory() if limit is None else limit * 1e9


@contextmanager
def at_most(max_gb: float | None) -> Iterator[None]:
    """Limit the memory of files to this many gigabytes within the block; None leaves the limit unchanged."""
    if max_gb is not None and not max_gb > 0:
        raise UsageError(f"max_gb must be a number of gigabytes above 0; given {max_gb}.")
    token = _MAX_GB.set(_MAX_GB.get() if max_gb is None else max_gb)
    try:
        yield
    finally:
        _MAX_GB.reset(token)


def json_size(content: bytes) -> int:
    """Return about how many bytes of memory a JSON document takes, at most: an empty list of three bytes takes 72."""
    weights = {b"[": 72, b"{": 240, b",": 40, b'"': 30}
    return len(content) + sum(weight * content.count(sign) for sign, weight in weights.items())


class _Unpacked(io.RawIOBase):
    """The content of a gzip file, counted while reading because headers may lie."""

    def __init__(self, stream: BinaryIO, file: str | Path) -> None:
        self._file, self._packed = file, stream
        self._stream = gzip.GzipFile(fileobj=stream)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            content = self._stream.read(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(f'"{self._file}" is damaged or not a gzip file ({error}). Download it again.') from None
        check_size(self._file, self._stream.tell())
        buffer[: len(content)] = content
        return len(content)

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        return self._stream.seek(place, whence)

    def close(self) -> None:
        self._packed.close()
        super().close()


def open_gzip(stream: BinaryIO, file: str | Path) -> BufferedReader:
    """Return what a stream in the form of gzip holds as a stream; more than memory allows is an error while it is read."""
    return BufferedReader(_Unpacked(stream, file), CHUNK)


def unpack(stream: Stream, file: str | Path) -> bytes:
    """Unpack a stream, counting bytes on the way because headers may lie."""
    content = bytearray()
    while part := stream.read(CHUNK):
        content += part
        check_size(file, len(content))
    return bytes(content)


@cache
def memory() -> int:
    """Return the memory available to this process, in bytes: that of the machine, or its container if less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # none there, or "max"
            total = min(total, int(Path(file).read_text()))
    return total


# A safetensors file starts with the length of its head (8 bytes) and the head, whose first entry is the checksum of all else. CRC-32 sees
# every flipped bit, and takes 12 ms for 50 MB where making and writing the file takes 90 (BLAKE2b 55, SHA-256 28).
MARK = b'{"__metadata__":{"about":"{\\"checksum\\": \\"crc32:'
PLACE = slice(8 + len(MARK), 8 + len(MARK) + 8)  # of the checksum, in hexadecimal digits
BLANK = f"crc32:{0:08x}"
# Raised by readers of safetensors for malformed files, including unknown dtypes and impossible shapes.
BROKEN = (SafetensorError, OSError, ValueError, RuntimeError, LookupError, TypeError, AttributeError, OverflowError)


def write_tensors(
    path: Path, tensors: Mapping[str, "Tensor"], metadata: Mapping[str, Any], *, keep: Path | None = None
) -> None:
    """Write tensors and a JSON document in one safetensors file with a checksum; ``keep`` as in ``write_atomically``."""
    from safetensors.torch import save

    plain = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    _write_safetensors(path, save(plain, metadata=_metadata(metadata)), keep)


def read_tensors(path: Path) -> tuple[dict[str, "Tensor"], dict[str, Any]]:
    """Read the tensors and the JSON document of a file from ``write_tensors``; raise an error if it was changed."""
    return _read_safetensors(path, "pt")


def write_arrays(path: Path, arrays: Mapping[str, "NDArray[Any]"], metadata: Mapping[str, Any]) -> None:
    """Write arrays as ``write_tensors`` writes tensors; the files are the same."""
    import numpy as np
    from safetensors.numpy import save

    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    _write_safetensors(path, save(plain, metadata=_metadata(metadata)))


def read_arrays(path: Path) -> tuple[dict[str, "NDArray[Any]"], dict[str, Any]]:
    """Read the arrays and the JSON document of a file from ``write_arrays`` or ``write_tensors``."""
    return _read_safetensors(path, "np")


def _metadata(values: Mapping[str, Any]) -> dict[str, str]:
    return {"about": json.dumps({"checksum": BLANK, **values})}


def _write_safetensors(path: Path, content_bytes: bytes, keep: Path | None = None) -> None:
    """Write the content of a safetensors file with its checksum."""
    content = memoryview(content_bytes)
    head, tail = content[: PLACE.start], content[PLACE.stop :]
    assert head[8:] == MARK, "safetensors writes its head in another way"
    write_atomically(path, head, _checksum((head, tail)), tail, keep=keep)


def _read_safetensors(path: Path, framework: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a safetensors file, as tensors ("pt") or arrays ("np"), and its JSON document."""
    try:
        with open_regular(path, None) as stream:
            check_size(path, stream.seek(0, SEEK_END), StoreError)
            _verify(path, stream)
        with safe_open(regular_path(path), framework=framework) as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            metadata: dict[str, Any] = json.loads((file.metadata() or {}).get("about", "{}"))
        if not isinstance(metadata, dict):
            raise ValueError("its description is not a table")
    except BROKEN as error:
        raise StoreError(f"Cannot read {path.name}: {error}. The file is damaged or not a safetensors file.") from None
    metadata.pop("checksum", None)
    return tensors, metadata


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    try:
        with open_regular(path, None) as stream:
            check_size(path, stream.seek(0, SEEK_END), StoreError)
            stream.seek(0)
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise StoreError(
            f"{path.name} cannot be read: {error.strerror}. Restore it from a backup, or fit again."
        ) from None


def _verify(path: Path, stream: BufferedReader) -> None:
    """Raise an error if the content of a file does not match its checksum, if it has one."""
    stream.seek(0)
    head, expected = stream.read(PLACE.start), stream.read(PLACE.stop - PLACE.start)
    if not any(mark in head + expected for mark in (b'\\"checksum\\"', b'\\"crc32:')):  # one of both may be damaged
        return
    if expected != _checksum(chain([head], iter(lambda: stream.read(CHUNK), b""))):
        raise StoreError(f"{path.name} is damaged: its checksum differs.")


def _checksum(parts: Iterable[bytes | memoryview]) -> bytes:
    """Return the checksum of the concatenated parts, as digits."""
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return b"%08x" % value


def state_tensors(prefix: str, module: "nn.Module") -> dict[str, "Tensor"]:
    """Return the module's state under names that start with ``prefix/``."""
    return {f"{prefix}/{name}": tensor for name, tensor in module.state_dict().items()}


def with_prefix(prefix: str, tensors: Mapping[str, "Tensor"]) -> dict[str, "Tensor"]:
    """Return the tensors whose names start with ``prefix/``, without it."""
    return {name.removeprefix(f"{prefix}/"): t for name, t in tensors.items() if name.startswith(f"{prefix}/")}
