"""Arrays out of a pickle without running anything: only dicts, lists, numbers, text and numpy arrays come back."""

import io
import pickle
from pathlib import Path

import numpy as np

from labelwise.errors import DataError


class _ArraysOnly(pickle.Unpickler):
    """Knows the three names that a pickled array needs, and refuses every other one."""

    def find_class(self, module: str, name: str) -> object:
        where = module.replace("_core", "core")
        if (where, name) == ("numpy.core.multiarray", "_reconstruct"):
            return _blank
        if (module, name) == ("numpy", "ndarray"):
            return "ndarray"  # only ever an argument of _reconstruct, so nothing that can be called
        if (module, name) == ("numpy", "dtype"):
            return np.dtype
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _blank(*_: object) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return an empty array, whatever size is asked for; its state is set next."""
    return np.empty(0, dtype=np.uint8)


def read_arrays(file: Path) -> dict[str, object]:
    """Return the dict in a pickle file, with keys as text; anything but plain data in it is an error."""
    try:
        content = _ArraysOnly(io.BytesIO(file.read_bytes()), encoding="bytes").load()
    except OSError as error:
        raise DataError(f'Cannot read "{file}": {error.strerror}. Look whether it arrived whole.') from None
    except Exception as error:
        raise DataError(f'"{file}" is damaged or holds more than plain arrays ({error}). Download it again.') from None
    if not isinstance(content, dict):
        raise DataError(f'"{file}" holds a {type(content).__name__}, not a dict of arrays. Download it again.')
    return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in content.items()}
