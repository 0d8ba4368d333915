"""A data set from a pack: one ``.npz`` file of pictures, encoded pictures or features, with their labels."""

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image

from labelwise.data.dataset import Dataset
from labelwise.data.pictures import Array, as_batch, read_pictures
from labelwise.data.sources import Rows, as_dataset, as_images, as_labels, as_targets, same_length, split_name
from labelwise.errors import DataError, UsageError, listing

_KEYS = ("images", "features", "data", "offsets", "labels", "classes", "split")


def pack(path: str | Path, *, size: int | None = None, seed: int = 0) -> Dataset:
    """Return the data of one ``.npz`` file, which is read without pickle.

    It holds ``labels [n]``, names or positions in ``classes [k]``, and one of: ``images``, bytes ``[n, h, w, c]``,
    ``[n, c, h, w]`` or ``[n, h, w]``; ``features [n, a]``, floats; or encoded pictures, the bytes of all files one after
    another in ``data`` and where they begin and end in ``offsets [n + 1]``. ``split [n]`` is optional: names, or
    0 train and 1 test, or 0 train, 1 val and 2 test.

    Args:
        path: the file.
        size: the side of the square that each picture is made to fit; as they are (encoded ones: as the short side of the
            first) without.
        seed: of the division into splits.
    """
    file = Path(path)
    held = _npz(file)
    try:
        return as_dataset(file.stem, _packed(held, size), seed)
    except UsageError as error:
        raise DataError(f'"{file}": {error}') from None


def _npz(file: Path) -> dict[str, Array]:
    """Return what an ``.npz`` file holds, each array decompressed once; those of no use here stay empty."""
    try:
        with file.open("rb") as stream:
            if not zipfile.is_zipfile(stream):
                raise DataError(f'"{file}" is not an .npz file, or it is damaged. Write it with numpy.savez.')
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as held:
                return {key: held[key] if key in _KEYS else np.empty(0) for key in held.files}
    except OSError as error:
        raise DataError(f'Cannot read "{file}": {error.strerror or error}. Check the path and its rights.') from None
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        if "pickle" in str(error):
            raise DataError(f'"{file}" holds Python objects, which are not read. Save plain arrays.') from None
        raise DataError(f'"{file}" is damaged ({error}). Write it again.') from None


def _packed(held: Mapping[str, Array], size: int | None) -> Rows:
    """Return the rows of a packed file."""
    kinds = [kind for kind in ("images", "features", "data") if kind in held]
    missing = [key for key in ("labels", *(("offsets",) if "data" in kinds else ())) if key not in held]
    if len(kinds) != 1 or missing:
        wrong = f"lacks {listing(missing)}" if missing else f"has {listing(kinds) or 'no pictures'}"
        raise UsageError(
            f'it {wrong}; it needs "labels" and one of "images", "features", or "data" with "offsets". '
            f"It holds: {listing(held) or 'nothing'}."
        )
    labels = as_labels(held["labels"])
    targets, names = as_targets(labels, as_labels(held["classes"]).tolist() if "classes" in held else None)
    splits = _packed_splits(as_labels(held["split"])) if "split" in held else []
    if splits:
        same_length(len(labels), len(splits), " and their splits")
    if "data" in held:
        files = _encoded(held["data"], held["offsets"], len(labels))
        images, kept, skipped = read_pictures(files, size or _side(files))
        splits = [splits[i] for i in kept] if splits else []
        return Rows(images=images, targets=targets[kept], names=names, splits=splits, skipped=skipped)
    images = as_images(held[kinds[0]])
    if size and images.ndim == 4:
        images = as_batch(images, (images.shape[1], size, size))
    return Rows(images=images, targets=targets, names=names, splits=splits)


def _encoded(data: Array, offsets: Array, n: int) -> list[bytes]:
    """Return the content of each of n files that lie one after another in ``data``."""
    if data.dtype != np.uint8 or data.ndim != 1 or offsets.dtype.kind not in "iu" or offsets.shape != (n + 1,):
        raise UsageError(
            f'"data" must be bytes (uint8) in one row and "offsets" {n + 1} whole numbers, one more than labels; given '
            f"{data.dtype} {list(data.shape)} and {offsets.dtype} {list(offsets.shape)}."
        )
    ends = offsets.tolist()
    if ends != sorted(ends) or ends[0] < 0 or ends[-1] > len(data):
        raise UsageError(f'"offsets" must rise from 0 to at most {len(data)}, the size of "data".')
    return [data[start:end].tobytes() for start, end in pairwise(ends)]


def _side(files: Sequence[bytes]) -> int:
    """Return the short side of the first picture that can be opened."""
    for file in files:
        with suppress(Exception), Image.open(io.BytesIO(file)) as picture:
            return min(picture.size)
    raise UsageError("none of its pictures can be read.")


def _packed_splits(given: Array) -> list[str]:
    """Return the split of each row from names or numbers."""
    values = given.tolist()
    if given.dtype.kind == "U":
        return [split_name(value, f'Row {i} of "split": ') for i, value in enumerate(values)]
    order = ("train", "val", "test") if 2 in values else ("train", "test")
    if not set(values) <= set(range(len(order))):
        raise UsageError(
            f'"split" must be 0 train and 1 test, or 0 train, 1 val, 2 test; given {sorted(set(values))[:9]}.'
        )
    return [order[value] for value in values]
