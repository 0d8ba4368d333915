"""Fields of ``.mat`` files, with their MATLAB habits: numbers from 1, columns for items, cells for names."""

import struct
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from labelwise.support.errors import DataError, LabelwiseError, listing, suggest
from labelwise.support.files import CHUNK, check_size, open_regular, regular_path

# A file of version 5 is made of elements of these kinds, and an array is an element made of others, one after another. scipy believes
# that they are as they should be, and reads memory that is not there where they are not. ``_DEEPEST``: one for each label is 2.
_KINDS, _COMPRESSED, _ARRAY, _DEEPEST = range(1, 19), 15, 14, 20
_FLAGS, _SIDES, _TEXT, _NUMBERS = {6}, {5, 6}, {1, 16}, {*range(1, 8), 9, 12, 13}
_HEAD, _WHOLE, _COMPLEX = (_FLAGS, _SIDES, _TEXT), {5}, 8  # flags, how large it is, its name
_CELLS, _STRUCT, _OBJECT, _OPAQUE = 1, 2, 3, 17
# What follows the head of an array of each class: characters, a sparse matrix, numbers, a function; and all of an opaque one.
_BODIES = {4: (_NUMBERS | _TEXT | {17, 18},), 5: (_WHOLE, _WHOLE, _NUMBERS), 16: ({_ARRAY},)}
_BODIES |= {_CELLS: (), _STRUCT: (_WHOLE, _TEXT), _OBJECT: (_TEXT, _WHOLE, _TEXT)} | dict.fromkeys(
    range(6, 16), (_NUMBERS,)
)
_OPAQUE_PARTS = (_FLAGS, _TEXT, _TEXT, _TEXT, {_ARRAY})


def read_mat(file: Path, *needed: str, squeeze: bool = False) -> dict[str, Any]:
    """Return the fields of a ``.mat`` file (up to version 7), these among them; ``squeeze`` drops axes of length 1."""
    from scipy.io import loadmat, whosmat

    if not file.is_file():
        raise DataError(f'Cannot read "{file}": no such file. Check the path.')
    try:
        _check_unpacked(file)
        check_size(file, sum(8 * prod(shape) for _, shape, kind in whosmat(file, appendmat=False) if kind != "sparse"))
        fields = loadmat(regular_path(file), appendmat=False, squeeze_me=squeeze)
    except LabelwiseError:
        raise
    except NotImplementedError:
        raise DataError(f'"{file}" is a .mat file of version 7.3. Save it with "-v7".') from None
    except Exception as error:  # a damaged file fails in many ways
        raise DataError(
            f'"{file}" is not a .mat file, or it is damaged ({error}). Download it again, or write it again.'
        ) from None
    fields = {name: value for name, value in fields.items() if not name.startswith("__")}
    for name in needed:
        _check_field(fields, name, file)
    return fields


def _check_unpacked(file: Path) -> None:
    """Raise an error if the fields of a file take more than is allowed: counted as they unpack, for headers may lie."""
    size = file.stat().st_size
    check_size(file, size)
    with open_regular(file, None) as stream:
        head = stream.read(128)
        if 0 in head[:4]:  # of version 4, which is plain numbers
            return
        order = "<" if head[126:] == b"IM" else ">"
        while len(tag := stream.read(8)) == 8:
            kind, length = struct.unpack(f"{order}II", tag)
            rest = stream.read(length)
            content = bytearray() if kind == _COMPRESSED else tag + rest
            packed = zlib.decompressobj()
            while kind == _COMPRESSED and rest and not packed.eof:
                content += packed.decompress(rest, CHUNK)
                rest = packed.unconsumed_tail
                check_size(file, size := size + CHUNK)
            for kind, body in _elements(memoryview(content), order):
                if kind == _ARRAY:
                    _check_array(body, order)


def _check_array(body: memoryview, order: str, depth: int = 0) -> None:
    """Raise an error for an array that is not made of what its class is made of, or of arrays inside each other without end."""
    elements = list(_elements(body, order))
    if not elements:  # an empty one
        return
    if depth == _DEEPEST or len(elements) < 2 or len(elements[0][1]) != 8:
        raise ValueError("its cells are nested too deep, or are cut off")
    flags = struct.unpack_from(f"{order}I", elements[0][1])[0]
    wanted = _OPAQUE_PARTS if flags & 255 == _OPAQUE else _parts(elements, flags, order)
    if len(wanted) != len(elements) or any(one[0] not in kinds for one, kinds in zip(elements, wanted, strict=True)):
        raise ValueError(f"an array of class {flags & 255} is made of other elements than such a one")
    for kind, part in elements:
        if kind == _ARRAY:
            _check_array(part, order, depth + 1)


def _parts(elements: Sequence[tuple[int, memoryview]], flags: int, order: str) -> Sequence[Collection[int]]:
    """Return the kinds of elements that an array of this class and size is made of."""
    made_of, sides = flags & 255, elements[1][1]
    if made_of not in _BODIES or len(sides) < 8 or len(sides) % 4:
        raise ValueError("an array does not say what it is, or how large it is")
    dims = struct.unpack_from(f"{order}{len(sides) // 4}i", sides)
    wanted = [*_HEAD, *_BODIES[made_of]]
    if flags >> 8 & _COMPLEX and made_of in (5, *range(6, 16)):
        wanted.append(_NUMBERS)
    names = 1
    if made_of in (_STRUCT, _OBJECT) and len(elements) >= len(wanted):
        length, texts = elements[len(wanted) - 2][1], elements[len(wanted) - 1][1]
        longest = struct.unpack_from(f"{order}i", length)[0] if len(length) == 4 else 0
        if longest < 1 or len(texts) % longest:
            raise ValueError("names of fields are cut off")
        names = len(texts) // longest
    cells = prod(dims) * names if made_of in (_CELLS, _STRUCT, _OBJECT) else 0
    if min(dims) < 0 or cells > len(elements):
        raise ValueError(f"an array says that it has {cells} cells, and has {len(elements)} elements")
    return [*wanted, *[{_ARRAY}] * cells]


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield the kind and the body of each element of a file of version 5; they fill the content, for scipy does not look where it ends."""
    at = 0
    while at < len(content):
        kind, size = struct.unpack_from(f"{order}II", content, at)
        small = kind >> 16  # bytes of a body that stands in its tag
        begin, length, step = (at + 4, small, 8) if small else (at + 8, size, 8 + size + -size % 8)
        if kind & 0xFFFF not in _KINDS:
            raise ValueError(f"it has an element of kind {kind & 0xFFFF}, which no .mat file has")
        if small > 4 or begin + length > len(content) or (kind == _ARRAY and size % 8):
            raise ValueError("an element is cut off")
        yield kind & 0xFFFF, content[begin : begin + length]
        at += step


def matrix(fields: Mapping[str, Any], name: str, file: Path) -> npt.NDArray[np.float64]:
    """Return a field of numbers ``[rows, columns]``, all finite."""
    array = _field(fields, name, file)
    if array.ndim != 2 or array.dtype.kind not in "iufb" or not array.size:
        raise DataError(f'"{file}": "{name}" must be a matrix of numbers; given {array.dtype} {list(array.shape)}.')
    values: npt.NDArray[np.float64] = array.astype(np.float64)
    if not np.isfinite(values).all():
        bad = np.argwhere(~np.isfinite(values))[0].tolist()
        raise DataError(f'"{file}": "{name}" is not a finite number in row {bad[0] + 1}, column {bad[1] + 1}.')
    return values


def indices(fields: Mapping[str, Any], name: str, file: Path, most: int | None = None) -> npt.NDArray[np.int64]:
    """Return a field of whole numbers from 1 to ``most`` as positions from 0 ``[m]``."""
    array = _field(fields, name, file)
    values = array.reshape(-1)
    if array.dtype.kind not in "iuf" or array.size != max((*array.shape, 0)) * (array.size > 0):
        raise DataError(f'"{file}": "{name}" must be one row or column of numbers; given {list(array.shape)}.')
    whole = values.astype(np.float64)
    if not (np.isfinite(whole) & (whole == np.floor(whole)) & (whole >= 1) & (whole <= (most or np.inf))).all():
        limit = "" if most is None else f" to {most}"
        raise DataError(
            f'"{file}": "{name}" must hold whole numbers from 1{limit}; given {whole.min()} to {whole.max()}.'
        )
    return np.asarray(whole.astype(np.int64) - 1)


def strings(fields: Mapping[str, Any], name: str, file: Path) -> tuple[str, ...]:
    """Return a field of names: a cell array, or a matrix of characters with one name in each row."""
    array = _field(fields, name, file)
    items = [np.ravel(item) for item in array.reshape(-1)]
    if any(item.dtype.kind != "U" or item.size > 1 for item in items):
        raise DataError(f'"{file}": "{name}" must hold names; given {array.dtype} {list(array.shape)}.')
    return tuple(str(item[0]) if item.size else "" for item in items)


def column(positions: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return positions from 0 as MATLAB has them: doubles from 1, ``[m, 1]``."""
    return np.asarray(positions, np.float64)[:, None] + 1


def cells(names: Sequence[str]) -> npt.NDArray[np.object_]:
    """Return names as a cell array ``[m, 1]``."""
    array = np.empty((len(names), 1), dtype=object)
    array[:, 0] = names
    return array


def _field(fields: Mapping[str, Any], name: str, file: Path) -> Any:
    _check_field(fields, name, file)
    if not isinstance(fields[name], np.ndarray):
        raise DataError(f'"{file}": "{name}" must be an array of full size; given {type(fields[name]).__name__}.')
    return fields[name]


def _check_field(fields: Mapping[str, Any], name: str, file: Path) -> None:
    if name not in fields:
        raise DataError(
            f'"{file}" has no field "{name}".{suggest(name, fields)} Its fields: {listing(fields) or "none"}.'
        )
