"""Data: sources, splits, what is known about labels, and augmentation on the device. Nothing is imported before it is used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labelwise.evaluation.episode import Episode, episodes
    from labelwise.images.catalogue import EMBEDDED, load
    from labelwise.images.dataset import Dataset, Skipped, Split, TrainData
    from labelwise.images.describe.knowledge import (
        Knowledge,
        describe_labels,
        find_knowledge,
        read_knowledge,
        with_knowledge,
    )
    from labelwise.images.describe.words import WordVectors, name_vectors, packaged_vectors, read_vectors
    from labelwise.images.overview import contact_sheet, inspect
    from labelwise.images.sets.degraded import degraded
    from labelwise.images.sets.digits import digits
    from labelwise.images.sets.finches import finches
    from labelwise.images.sharding import write_shards
    from labelwise.images.sources.arrays import arrays
    from labelwise.images.sources.audio import audio_folder
    from labelwise.images.sources.folders import folder
    from labelwise.images.sources.packs import features, pack
    from labelwise.images.sources.shards import shards
    from labelwise.images.sources.tables import table
    from labelwise.images.split.divide import divide, group_by, pool, resplit
    from labelwise.images.split.files import apply_split, write_split
    from labelwise.images.split.leaks import check_leaks, near_duplicates, refuse_leaks
    from labelwise.train.augment import Augment

__all__ = [
    "EMBEDDED", "Augment", "Dataset", "Episode", "Knowledge", "Skipped", "Split", "TrainData", "WordVectors",
    "apply_split", "arrays", "audio_folder", "check_leaks", "contact_sheet", "degraded", "describe_labels", "digits",
    "divide", "episodes", "features", "finches", "find_knowledge", "folder", "group_by", "inspect", "load",
    "name_vectors", "near_duplicates", "pack", "packaged_vectors", "pool", "read_knowledge", "read_vectors",
    "refuse_leaks", "resplit", "shards", "table", "with_knowledge", "write_shards", "write_split",
]  # fmt: skip

_MODULES = {  # which names live where
    "train.augment": "Augment",
    "images.catalogue": "EMBEDDED load",
    "images.dataset": "Dataset Skipped Split TrainData",
    "evaluation.episode": "Episode episodes",
    "images.describe.knowledge": "Knowledge describe_labels find_knowledge read_knowledge with_knowledge",
    "images.describe.words": "WordVectors name_vectors packaged_vectors read_vectors",
    "images.overview": "contact_sheet inspect",
    "images.sources.arrays": "arrays",
    "images.sources.audio": "audio_folder",
    "images.sources.folders": "folder",
    "images.sources.packs": "features pack",
    "images.sources.shards": "shards",
    "images.sources.tables": "table",
    "images.sets.degraded": "degraded",
    "images.sets.digits": "digits",
    "images.sets.finches": "finches",
    "images.sharding": "write_shards",
    "images.split.divide": "divide group_by pool resplit",
    "images.split.files": "apply_split write_split",
    "images.split.leaks": "check_leaks near_duplicates refuse_leaks",
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Return a public name, importing where it lives on first use."""
    if name not in _PLACES:
        raise AttributeError(f"module labelwise.images has no attribute {name!r}")
    return getattr(import_module(f"labelwise.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
