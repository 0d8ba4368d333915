"""Fields of ``.mat`` files, with their MATLAB habits: numbers from 1, columns for items, cells for names."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from labelwise.errors import DataError, listing, suggest


def read_mat(file: Path, *needed: str, squeeze: bool = False) -> dict[str, Any]:
    """Return the fields of a ``.mat`` file (up to version 7), these among them; ``squeeze`` drops axes of length 1."""
    from scipy.io import loadmat

    if not file.is_file():
        raise DataError(f'Cannot read "{file}": no such file. Check the path.')
    try:
        fields = loadmat(file, appendmat=False, squeeze_me=squeeze)
    except NotImplementedError:
        raise DataError(f'"{file}" is a .mat file of version 7.3. Save it with "-v7".') from None
    except Exception as error:  # a damaged file fails in many ways
        raise DataError(
            f'"{file}" is not a .mat file, or it is damaged ({error}). Download it again, or write it anew.'
        ) from None
    fields = {name: value for name, value in fields.items() if not name.startswith("__")}
    for name in needed:
        _check_field(fields, name, file)
    return fields


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


def indices(fields: Mapping[str, Any], name: str, file: Path, most: int | None = None) -> Tensor:
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
    return torch.from_numpy(whole.astype(np.int64) - 1)


def strings(fields: Mapping[str, Any], name: str, file: Path) -> tuple[str, ...]:
    """Return a field of names: a cell array, or a matrix of characters with one name in each row."""
    array = _field(fields, name, file)
    items = [np.ravel(item) for item in array.reshape(-1)]
    if any(item.dtype.kind != "U" or item.size > 1 for item in items):
        raise DataError(f'"{file}": "{name}" must hold names; given {array.dtype} {list(array.shape)}.')
    return tuple(str(item[0]) if item.size else "" for item in items)


def column(positions: Tensor) -> npt.NDArray[np.float64]:
    """Return positions from 0 as MATLAB has them: doubles from 1, ``[m, 1]``."""
    return (positions.double() + 1)[:, None].numpy()


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
