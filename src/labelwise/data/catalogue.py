"""Data by one word: the name of an embedded set, or the path of a folder, table or pack."""

from collections.abc import Callable
from pathlib import Path

from labelwise.data.dataset import Dataset
from labelwise.data.digits import digits
from labelwise.data.finches import finches
from labelwise.data.packs import pack
from labelwise.data.sources import folder
from labelwise.data.tables import table
from labelwise.errors import DataError, listing, suggest

EMBEDDED: dict[str, Callable[[], Dataset]] = {"digits": digits, "finches": finches}
DEFAULT_SIZE = 64


def load(source: str | Path, *, size: int | None = None, seed: int = 0, strict: bool = False) -> Dataset:
    """Return the data set that a word names.

    Args:
        source: an embedded set (``finches``, ``digits``), a folder of pictures, a ``.csv`` table, or an ``.npz`` pack.
        size: the side in pixels that pictures of a folder or table are brought to; None is 64.
        seed: of the split, where the source has none of its own.
        strict: make unreadable pictures an error instead of skipping them.
    """
    path, word = Path(source), str(source)
    if word in EMBEDDED and not path.exists():
        return EMBEDDED[word]()
    if path.is_dir():
        return folder(path, size=size or DEFAULT_SIZE, seed=seed, strict=strict)
    if not path.exists():
        known = f"Embedded sets: {listing(EMBEDDED)}."
        raise DataError(f'No data at "{word}": no such file or folder.{suggest(word, EMBEDDED)} {known}')
    if path.suffix.lower() == ".csv":
        return table(path, size=size or DEFAULT_SIZE, seed=seed, strict=strict)
    if path.suffix.lower() == ".npz":
        return pack(path, size=size, seed=seed)
    raise DataError(
        f'Cannot read data from "{word}". Give a folder, a .csv table, an .npz pack, or one of: {listing(EMBEDDED)}.'
    )
