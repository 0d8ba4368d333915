"""A data set from a pack: one ``.npz`` file of pictures, encoded pictures or features, with their labels."""

import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image

from labelwise.data.dataset import Dataset
from labelwise.data.labels.knowledge import with_files_beside
from labelwise.data.read.features import split_names
from labelwise.data.read.npz_files import read_npz
from labelwise.data.read.pictures import Array, as_batch, read_pictures
from labelwise.data.read.sources import Rows, as_dataset, as_images, same_length
from labelwise.data.read.targets import as_labels, as_targets
from labelwise.errors import DataError, UsageError, listing

_KEYS = ("images", "features", "data", "offsets", "labels", "classes", "split", "files")


def pack(path: str | Path, *, size: int | None = None, seed: int = 0) -> Dataset:
    """Return the data of one ``.npz`` file, which is read without pickle.

    It holds ``labels [n]``, names or positions in ``classes [k]``, or, where several may be true of an image, yes or no
    to each class ``[n, k]`` (bool); and one of: ``images``, bytes ``[n, h, w, c]``,
    ``[n, c, h, w]`` or ``[n, h, w]``; ``features [n, a]``, floats; or encoded pictures, the bytes of all files one after
    another in ``data`` and where they begin and end in ``offsets [n + 1]``. Optional are ``split [n]``, names, or
    0 train and 1 test, or 0 train, 1 val and 2 test; and ``files [n]``, the names of where the images came from.

    Args:
        path: the file.
        size: the side of the square that each picture is made to fit; as they are (encoded ones: as the short side of the
            first) without.
        seed: of the division into splits.
    """
    file = Path(path)
    held = read_npz(file, only=_KEYS)
    try:
        found = as_dataset(file.stem, _packed(held, size), seed)
    except UsageError as error:
        raise DataError(f'"{file}": {error}') from None
    return with_files_beside(found, file.parent)


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
    found = as_targets(labels, as_labels(held["classes"]).tolist() if "classes" in held else None)
    splits = split_names(as_labels(held["split"])) if "split" in held else []
    if splits:
        same_length(len(labels), len(splits), " and their splits")
    files = _file_names(held["files"], len(labels)) if "files" in held else ()
    if "data" in held:
        encoded = _encoded(held["data"], held["offsets"], len(labels))
        images, kept, skipped = read_pictures(encoded, size or _side(encoded))
        splits = [splits[i] for i in kept] if splits else []
        files = tuple(files[i] for i in kept) if files else ()
        truths = None if found.truths is None else found.truths[kept]
        found = found._replace(targets=found.targets[kept], truths=truths)
        return Rows(images=images, splits=splits, files=files, skipped=skipped, **found._asdict())
    images = as_images(held[kinds[0]])
    if size and images.ndim == 4:
        images = as_batch(images, (images.shape[1], size, size))
    return Rows(images=images, splits=splits, files=files, **found._asdict())


def _file_names(given: Array, n: int) -> tuple[str, ...]:
    """Return the names of n files."""
    if given.dtype.kind != "U" or given.shape != (n,):
        raise UsageError(f'"files" must be {n} names, one for each label; given {given.dtype} {list(given.shape)}.')
    return tuple(given.tolist())


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
