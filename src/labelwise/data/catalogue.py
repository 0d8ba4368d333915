"""Data by one word: the name of an embedded set or a benchmark, or the path of what a user has."""

from collections.abc import Callable
from pathlib import Path

import torch

from labelwise.core import Labels
from labelwise.data.audio import audio_folder
from labelwise.data.benchmarks import ENTRIES, load_benchmark
from labelwise.data.dataset import Dataset, Split
from labelwise.data.degraded import degraded
from labelwise.data.digits import digits
from labelwise.data.features import features
from labelwise.data.finch_marks import finches_marks
from labelwise.data.finches import finches, finches_unseen
from labelwise.data.knowledge import find_knowledge, with_knowledge
from labelwise.data.packs import pack
from labelwise.data.pictures import is_hidden, list_pictures, read_files
from labelwise.data.sources import UNLABELLED, folder
from labelwise.data.tables import table
from labelwise.data.xlsa17 import read_xlsa17
from labelwise.errors import DataError, listing, suggest

# Each takes the seed of the split, which only matters where a set has none of its own.
EMBEDDED: dict[str, Callable[[int], Dataset]] = {
    "digits": lambda _: digits(),
    "finches": lambda _: finches(),
    "finches/marks": lambda _: finches_marks(),
    "finches/quality": lambda _: degraded(finches()),
    "finches/unseen": lambda seed: finches_unseen(seed=seed),
}
DEFAULT_SIZE = 64
QUALITY = "/quality"  # after the name of any benchmark of pictures: graded by quality instead


def load(
    source: str | Path,
    *,
    size: int | None = None,
    seed: int = 0,
    strict: bool = False,
    root: str | Path | None = None,
) -> Dataset:
    """Return the data set that a word names, with what a file beside it says about the labels.

    Args:
        source: an embedded set (``finches``, ``finches/unseen``, ``finches/marks``, ``finches/quality``, ``digits``), a
            benchmark (``pets``, ``pacs/sketch``, and with ordered labels ``pets/quality``), a folder of
            pictures, of WAV files or of xlsa17 ``.mat`` files, a ``.csv`` or ``.parquet`` table, an ``.npz`` pack, or
            ``.npy`` features.
        size: the side in pixels that pictures are brought to; None is 64, or what a benchmark says.
        seed: of the split, where the source has none of its own.
        strict: make unreadable pictures an error instead of skipping them.
        root: where benchmarks lie; None is the variable ``LABELWISE_DATA``.
    """
    path, word = Path(source), str(source)
    if not path.exists():
        if word in EMBEDDED:
            return EMBEDDED[word](seed)
        name, _, protocol = word.removesuffix(QUALITY).partition("/")
        if name in ENTRIES:
            data = load_benchmark(name, root=root, size=size, protocol=protocol or None, seed=seed)
            return degraded(data) if word.endswith(QUALITY) else data
        known = [*EMBEDDED, *ENTRIES]
        raise DataError(
            f'No data at "{word}": no such file or folder.{suggest(word, known)} Sets by name: {listing(known, 40)}.'
        )
    dataset = _read(path, size, seed, strict)
    knowledge = find_knowledge(path if path.is_dir() else path.parent, dataset.labels.names)
    return with_knowledge(dataset, knowledge) if knowledge else dataset


def size_for(shape: tuple[int, ...]) -> int | None:
    """Return the ``size`` at which ``load`` reads images for a model that takes this shape; None is as they are."""
    return shape[1] if len(shape) == 3 and shape[1] == shape[2] else None


def load_unlabelled(source: str | Path, shape: tuple[int, ...], root: str | Path | None = None) -> Dataset:
    """Return what ``load`` does, or the pictures of a folder that has no folders for labels, at the size of a model.

    Args:
        source: what names the data.
        shape: of the images that the model takes.
        root: where benchmarks lie.
    """
    path = Path(source)
    if (
        len(shape) == 1
        or not path.is_dir()
        or any(each.is_dir() and not is_hidden(each.name) for each in path.iterdir())
    ):
        return load(source, size=size_for(shape), root=root)
    files = list_pictures(path)
    if not files:
        raise DataError(f'There is no picture in "{path}".')
    images, kept, skipped = read_files(files, shape)
    whole = Split(images=images, targets=torch.full((len(kept),), -1), files=tuple(str(files[i]) for i in kept))
    name, labels = path.resolve().name, Labels(names=(UNLABELLED,))
    return Dataset(name=name, labels=labels, splits={"test": whole}, skipped=skipped, own_splits=False)


def _read(path: Path, size: int | None, seed: int, strict: bool) -> Dataset:
    if path.is_dir():
        if (path / "att_splits.mat").exists():
            return read_xlsa17(path).dataset(seed=seed)
        if not list_pictures(path) and any(path.rglob("*.wav")):
            return audio_folder(path, seed=seed)
        return folder(path, size=size or DEFAULT_SIZE, seed=seed, strict=strict)
    suffix = path.suffix.lower()
    if suffix in (".csv", ".parquet"):
        return table(path, size=size or DEFAULT_SIZE, seed=seed, strict=strict)
    if suffix == ".npz":
        return pack(path, size=size, seed=seed)
    if suffix == ".npy":
        return features(path, seed=seed)
    raise DataError(
        f'Cannot read data from "{path}". Give a folder, a .csv or .parquet table, an .npz pack, or .npy features.'
    )
