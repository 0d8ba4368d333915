"""Read NumPy files, ``.npz`` and ``.npy``, without pickle; matrices in pieces, so that they are in memory once."""

import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from labelwise.support.errors import DataError, UsageError, listing
from labelwise.support.files import check_size, open_regular, regular_path

Array = npt.NDArray[Any]
_BYTES_AT_ONCE = 1 << 20
_PACKED_AS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # other compressions cannot be unpacked in pieces


def read_npz(file: Path, *required: str) -> dict[str, Array]:
    """Read the arrays of an ``.npz`` file, at least the ``required`` ones; Python objects are refused."""
    with open_npz(file) as archive:
        check_arrays(archive, npz_keys(archive))
        arrays = {key: read_array(archive, key) for key in npz_keys(archive)}
    missing = [key for key in required if key not in arrays]
    if missing:
        raise DataError(f'"{file}" lacks "{missing[0]}"; it holds {listing(arrays) or "nothing"}. Write it again.')
    return arrays


@contextmanager
def open_npz(file: Path) -> Iterator[zipfile.ZipFile]:
    """Open an ``.npz`` file; read errors become ``DataError``."""
    with readable(file), open_regular(file, None) as stream:
        if not zipfile.is_zipfile(stream):
            raise DataError(f'"{file}" is not an .npz file, or it is damaged. Write it with numpy.savez.')
        with zipfile.ZipFile(stream) as archive:
            yield archive


def npz_keys(archive: zipfile.ZipFile) -> list[str]:
    """Return the names of the arrays in an open file."""
    return [name.removesuffix(".npy") for name in archive.namelist()]


def check_arrays(archive: zipfile.ZipFile, keys: Iterable[str]) -> None:
    """Raise an error if these arrays would exceed the memory limit, by their headers."""
    size = 0
    for key in keys:
        if archive.getinfo(f"{key}.npy").compress_type not in _PACKED_AS:
            raise ValueError(f'"{key}" is packed in a way that numpy does not write')
        with archive.open(f"{key}.npy") as member:
            shape, _, dtype = _array_header(member)
            size += _array_size(shape, dtype)
        check_size(str(archive.filename or getattr(archive.fp, "name", "")), size)


def _array_size(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the size of an array in bytes, as stored or as float32."""
    return prod(shape) * max(dtype.itemsize, 4 if dtype.kind in "iuf" and len(shape) == 2 else 1)


def read_array(archive: zipfile.ZipFile, key: str) -> Any:
    """Return an array of an open file."""
    with archive.open(f"{key}.npy") as member:
        values = np.lib.format.read_array(member, allow_pickle=False)
    if values.dtype.kind == "U" and values.size and values.dtype.itemsize:
        letters = np.ascontiguousarray(values).reshape(-1).view(f"{values.dtype.byteorder}u4")
        if letters.max() > sys.maxunicode:  # Python raises it for an unknown type letter
            raise ValueError(f'"{key}" holds letters that there are not')
    return values


@contextmanager
def readable(file: Path) -> Iterator[None]:
    """Convert read errors of a file to ``DataError``."""
    try:
        yield
    except OSError as error:
        raise DataError(f'Cannot read "{file}": {error.strerror or error}. Check the path and its rights.') from None
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, MemoryError, RuntimeError) as error:
        if "object" in str(error).lower() and "pickle" in str(error).lower():
            raise DataError(f'"{file}" holds Python objects, which are not read. Save plain arrays.') from None
        raise DataError(f'"{file}" is damaged ({error}). Write it again.') from None


def read_npy_matrix(file: Path) -> Array:
    """Return the matrix ``[n, a]`` of a ``.npy`` file as float32, memory-mapped if it is stored so."""
    with readable(file), open_regular(file, None) as stream:
        shape, fortran, dtype = _array_header(stream)
        if dtype == np.float32 and dtype.isnative and not fortran and len(shape) == 2 and all(shape):
            return np.asarray(
                np.load(regular_path(file), mmap_mode="c", allow_pickle=False)
            )  # copied on write, page by page
        check_size(file, _array_size(shape, dtype))
        return _read_values(stream, shape, fortran, dtype)


def read_npz_matrix(archive: zipfile.ZipFile, key: str) -> Array:
    """Return the matrix ``[n, a]`` of an open ``.npz`` file as float32."""
    with archive.open(f"{key}.npy") as member:
        return _read_values(member, *_array_header(member))


def _array_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, order and type of a ``.npy`` stream, up to the data."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, fortran, dtype = read(stream)
    except (
        TokenError,
        SyntaxError,
        RecursionError,
        TypeError,
        AttributeError,
    ) as error:  # headers are Python literals
        raise ValueError(f"its header is damaged: {error}") from None
    if not all(isinstance(side, int) and 0 <= side < 2**48 for side in shape):
        raise ValueError(f"its shape is {list(shape)}")
    return shape, fortran, dtype


def _read_values(stream: IO[bytes], shape: tuple[int, ...], fortran: bool, dtype: np.dtype[Any]) -> Array:
    """Read ``[n, a]`` as float32 from a stream of any number type, in pieces."""
    if len(shape) != 2 or not all(shape) or dtype.kind not in "iuf":
        raise UsageError(f"features must be numbers [n, size]; given {dtype} {list(shape)}.")
    matrix = np.empty(shape, np.float32)
    target = matrix.T if fortran else matrix
    step = max(1, _BYTES_AT_ONCE // (target.shape[1] * dtype.itemsize))
    for start in range(0, len(target), step):
        part = target[start : start + step]
        content = stream.read(part.size * dtype.itemsize)
        if len(content) != part.size * dtype.itemsize:
            raise ValueError("it ends too early")
        with np.errstate(over="ignore"):
            part[...] = np.frombuffer(content, dtype).reshape(part.shape)
    return matrix
