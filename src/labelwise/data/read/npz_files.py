"""Files of numpy arrays, read without pickle."""

import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from labelwise.data.read.pictures import Array
from labelwise.errors import DataError, listing


def read_npz(file: Path, *needed: str, only: Collection[str] | None = None) -> dict[str, Array]:
    """Return what an ``.npz`` file holds, each array decompressed once; Python objects in it are refused.

    Args:
        file: where it is.
        *needed: arrays that must be there.
        only: the arrays to read, the others stay empty; without, all of them.
    """
    with readable(file), file.open("rb") as stream:
        if not zipfile.is_zipfile(stream):
            raise DataError(f'"{file}" is not an .npz file, or it is damaged. Write it with numpy.savez.')
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as held:
            found = {key: held[key] if only is None or key in only else np.empty(0) for key in held.files}
    missing = [key for key in needed if key not in found]
    if missing:
        raise DataError(f'"{file}" lacks "{missing[0]}"; it holds {listing(found) or "nothing"}. Write it again.')
    return found


@contextmanager
def readable(file: Path) -> Iterator[None]:
    """Turn what can go wrong while a file is read into errors for people."""
    try:
        yield
    except OSError as error:
        raise DataError(f'Cannot read "{file}": {error.strerror or error}. Check the path and its rights.') from None
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, MemoryError, NotImplementedError) as error:
        if "object" in str(error).lower() and "pickle" in str(error).lower():
            raise DataError(f'"{file}" holds Python objects, which are not read. Save plain arrays.') from None
        raise DataError(f'"{file}" is damaged ({error}). Write it again.') from None
