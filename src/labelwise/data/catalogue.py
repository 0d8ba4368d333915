"""Data by one word: the name of an embedded set or a benchmark, or the path of what a user has."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from labelwise.data.dataset import Dataset
from labelwise.data.labels.knowledge import find_knowledge, with_knowledge
from labelwise.data.read.audio import audio_folder, list_wavs
from labelwise.data.read.folders import folder, unknown_data
from labelwise.data.read.packs import features, pack
from labelwise.data.read.pictures import as_batch, is_hidden, list_pictures
from labelwise.data.read.tables import table
from labelwise.data.sets.degraded import degraded
from labelwise.data.sets.digits import digits
from labelwise.data.sets.finches import finches, finches_marks, finches_unseen
from labelwise.errors import DataError, listing, suggest
from labelwise.nn.encoder import Encoder, side_for
from labelwise.plugins import plugin_for, plugin_with, plugins
from labelwise.view import WHOLE, View

# Each takes the seed of the split, which only matters where a set has none of its own.
EMBEDDED: dict[str, Callable[[int], Dataset]] = {
    "digits": lambda _: digits(),
    "finches": lambda _: finches(),
    "finches/marks": lambda _: finches_marks(),
    "finches/quality": lambda _: degraded(finches()),
    "finches/unseen": lambda seed: finches_unseen(seed=seed),
}
TABLES = (".csv", ".parquet")
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
        size: the side in pixels that pictures are brought to; None is as ``folder`` says, or what a benchmark says.
        seed: of the split, where the source has none of its own.
        strict: make unreadable pictures an error instead of skipping them.
        root: where benchmarks lie; None is the variable ``LABELWISE_DATA``.
    """
    path, word = Path(source), str(source)
    if not path.exists():
        if word in EMBEDDED:
            return _fitted(EMBEDDED[word](seed), size)
        name, _, protocol = word.removesuffix(QUALITY).partition("/")
        plugin = plugin_with(name)
        if plugin is not None:
            data = plugin.load(name, root=root, size=size, protocol=protocol or None, seed=seed)
            return degraded(data) if word.endswith(QUALITY) else data
        known = [*EMBEDDED, *(name for plugin in plugins() for name in plugin.names())]
        raise DataError(
            f'No data at "{word}": no such file or folder.{suggest(word, known)} Sets by name: {listing(known, 40)}.'
        )
    return _read(path, size, seed, strict)


def names_own_files(source: str | Path) -> bool:
    """Return whether a word names a folder or table of a person's own, which mostly are pictures."""
    path = Path(source)
    return (path.is_dir() and not plugin_for(path)) or path.suffix.lower() in TABLES


def side_to_read(source: str | Path, encoder: Encoder, view: View = WHOLE) -> int | None:
    """Return the side that the pictures of a word are read at for an encoder; None leaves it to where they come from."""
    if names_own_files(source):
        return side_for(encoder, view)
    return None if str(source) in EMBEDDED and not Path(source).exists() else encoder.side(view)


def _fitted(data: Dataset, size: int | None) -> Dataset:
    """Return the data with pictures of a side, as they are without one."""
    if size is None or len(data.shape) != 3:
        return data
    shape = (data.shape[0], size, size)
    splits = {name: replace(split, images=as_batch(split.images, shape)) for name, split in data.splits.items()}
    return replace(data, splits=splits)


def size_for(shape: tuple[int, ...]) -> int | None:
    """Return the ``size`` at which ``load`` reads images for a model that takes this shape; None is as they are."""
    return shape[1] if len(shape) == 3 and shape[1] == shape[2] else None


def load_unlabelled(source: str | Path, shape: tuple[int, ...], root: str | Path | None = None) -> Dataset:
    """Return what ``load`` does, or the pictures of a folder that has no folders for labels, at the size of a model."""
    path = Path(source)
    pictures = len(shape) == 3 and path.is_dir()
    if pictures and not any(each.is_dir() and not is_hidden(each.name) for each in path.iterdir()):
        return unknown_data(path, shape)
    return load(source, size=size_for(shape), root=root)


def _read(path: Path, size: int | None, seed: int, strict: bool) -> Dataset:
    if path.is_dir():
        if plugin := plugin_for(path):
            data, knowledge = plugin.read(path, seed), find_knowledge(path)
            return with_knowledge(data, knowledge) if knowledge else data
        if not list_pictures(path) and list_wavs(path):
            return audio_folder(path, seed=seed)
        return folder(path, size=size, seed=seed, strict=strict)
    suffix = path.suffix.lower()
    if suffix in TABLES:
        return table(path, size=size, seed=seed, strict=strict)
    if suffix == ".npz":
        return pack(path, size=size, seed=seed)
    if suffix == ".npy":
        return features(path, seed=seed)
    raise DataError(
        f'Cannot read data from "{path}". Give a folder, a .csv or .parquet table, an .npz pack, or .npy features.'
    )
