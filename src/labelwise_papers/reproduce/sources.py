"""The data of recipes: availability, instructions to get missing data, and splits."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from labelwise.data import EMBEDDED, load
from labelwise.images.catalogue import QUALITY
from labelwise.images.dataset import Dataset
from labelwise.images.sources.npz_files import read_npz
from labelwise.images.split.make import split_off
from labelwise.support.errors import DataError
from labelwise.train.networks.encoder import Encoder
from labelwise_papers.benchmarks import ENTRIES, data_root, where
from labelwise_papers.benchmarks.described import CAPTIONS, CAPTIONS_FILE, CONCEPT_FILES
from labelwise_papers.benchmarks.registry import find_official, find_packs
from labelwise_papers.recipe import Recipe, Source
from labelwise_papers.reproduce.tiny import tiny

FEATURE_KEYS = ("f", "ft")


def missing(source: Source, root: Path | None) -> str:
    """Return what is missing of a data set and how to get it; blank where all is at hand."""
    if not source.source or source.source.startswith("tiny/"):
        return ""
    if not is_at_hand(source.source, root, official=source.official):
        name = source.source.partition("/")[0]
        advice = where(name, root) if name in ENTRIES else f'No data at "{source.source}".'
        wanted = (
            " The packed form will not do here: its images are smaller than the paper's." if source.official else ""
        )
        return f"{advice}{wanted}" + (f"\n{source.note}" if source.note else "")
    if source.features and not (data_root(root) / source.features).is_file():
        return f'"{data_root(root) / source.features}" is missing. {source.note}'.strip()
    return ""


def is_at_hand(word: str, root: Path | None, *, official: bool = False) -> bool:
    """Return whether what ``data.load`` takes is there; ``official`` asks for the official files, not a packed form."""
    if word in EMBEDDED or Path(word).exists():
        return True
    name, _, protocol = word.removesuffix(QUALITY).partition("/")
    if name not in ENTRIES:
        return False
    home, entry = data_root(root), ENTRIES[name]
    files = {**dict.fromkeys(CAPTIONS, CAPTIONS_FILE), "labo": CONCEPT_FILES.get(name, "")}
    if protocol in files and not (home / files[protocol]).is_file():
        return False
    return find_official(entry, home) is not None or (not official and find_packs(entry, home) is not None)


def sets_at_hand(recipe: Recipe, asked: tuple[str, ...], root: Path | None) -> tuple[list[str], dict[str, str]]:
    """Return the data sets to run, and what is missing of the others.

    A set that stands for another is left out where that one is at hand, unless it is asked for by name.
    """
    gone = {name: words for name, source in recipe.data.items() if (words := missing(source, root))}
    wanted = [name for name in recipe.data if not asked or name in asked]
    here = [
        name for name in wanted if name not in gone and (name in asked or recipe.data[name].stands_for in ("", *gone))
    ]
    return here, {name: gone[name] for name in wanted if name in gone}


@lru_cache(maxsize=1)
def read_source(source: Source, root: Path | None, seed: int) -> Dataset | None:
    """Return the data set of a recipe, divided as it says; None where a measure makes its own."""
    if not source.source:
        return None
    if source.source.startswith("tiny/"):
        return tiny(source.source)
    data = load(source.source, size=source.size, side=Encoder().side(), seed=seed, root=root)
    if source.features:
        data = _with_features(data, data_root(root) / source.features)
    if source.held is None and source.images is None:
        return data
    whole = data.split("train").join(data.splits["val"]) if "val" in data.splits else data.split("train")
    splits = {"train": whole, "test": data.split("test")}
    if source.held is not None:
        share = source.held / len(set(whole.groups) or whole.targets)
        rest, val = split_off(whole.targets, share, 0, whole.groups)
        splits |= {"train": whole.select(rest), "val": whole.select(val)}
    if source.images is not None and source.images < len(splits["train"]):
        few = split_off(splits["train"].targets, source.images / len(splits["train"]), 1)[1]
        splits["train"] = splits["train"].select(few)
    return replace(data, splits=splits)


def _with_features(data: Dataset, file: Path) -> Dataset:
    """Return the data with the features of a file in place of images, in the same order.

    The file is a pack that ``write_features`` made of the same data, or holds ``f`` for train and ``ft`` for test.
    """
    arrays = read_npz(file)
    if "features" in arrays:
        rows = arrays["features"]
        targets = [target for part in data.splits.values() for target in part.targets.tolist()]
        if "labels" in arrays and arrays["labels"].tolist() != targets:
            raise DataError(
                f'The labels in "{file}" are not those of "{data.name}" in its order. Encode that data again.'
            )
    elif set(FEATURE_KEYS) <= set(arrays) and list(data.splits) == ["train", "test"]:
        rows = np.concatenate([arrays[key] for key in FEATURE_KEYS])
    else:
        raise DataError(f'"{file}" holds neither "features" nor "f" and "ft". Write it with labelwise data encode.')
    sizes = [len(split) for split in data.splits.values()]
    if len(rows) != sum(sizes):
        raise DataError(f'"{file}" has {len(rows)} rows of features, but "{data.name}" has {sum(sizes)} images.')
    parts = np.split(rows.astype(np.float32), np.cumsum(sizes)[:-1])
    splits = {name: replace(data.splits[name], images=part) for name, part in zip(data.splits, parts, strict=True)}
    return replace(data, splits=splits)
