"""Data: sources, splits, what is known about labels, and augmentation on the device. Nothing is imported before it is used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any
from warnings import warn

if TYPE_CHECKING:
    from labelwise.data.augment import Augment
    from labelwise.data.catalogue import EMBEDDED, load
    from labelwise.data.dataset import Dataset, Skipped, Split, TrainData
    from labelwise.data.episode import Episode, episodes
    from labelwise.data.labels.knowledge import (
        Knowledge,
        describe_labels,
        find_knowledge,
        read_knowledge,
        with_knowledge,
    )
    from labelwise.data.labels.words import WordVectors, name_vectors, packaged_vectors, read_vectors
    from labelwise.data.overview import contact_sheet, inspect
    from labelwise.data.read.arrays import arrays
    from labelwise.data.read.audio import audio_folder
    from labelwise.data.read.folders import folder
    from labelwise.data.read.packs import features, pack
    from labelwise.data.read.shards import shards
    from labelwise.data.read.tables import table
    from labelwise.data.sets.degraded import degraded
    from labelwise.data.sets.digits import digits
    from labelwise.data.sets.finches import finches
    from labelwise.data.sharding import write_shards
    from labelwise.data.split.divide import divide, group_by, pool, resplit
    from labelwise.data.split.files import apply_split, write_split
    from labelwise.data.split.leaks import check_leaks, near_duplicates, refuse_leaks

__all__ = [
    "EMBEDDED", "Augment", "Dataset", "Episode", "Knowledge", "Skipped", "Split", "TrainData", "WordVectors",
    "apply_split", "arrays", "audio_folder", "check_leaks", "contact_sheet", "degraded", "describe_labels", "digits",
    "divide", "episodes", "features", "finches", "find_knowledge", "folder", "group_by", "inspect", "load",
    "name_vectors", "near_duplicates", "pack", "packaged_vectors", "pool", "read_knowledge", "read_vectors",
    "refuse_leaks", "resplit", "shards", "table", "with_knowledge", "write_shards", "write_split",
]  # fmt: skip

_MODULES = {  # which names live where
    "augment": "Augment",
    "catalogue": "EMBEDDED load",
    "dataset": "Dataset Skipped Split TrainData",
    "episode": "Episode episodes",
    "labels.knowledge": "Knowledge describe_labels find_knowledge read_knowledge with_knowledge",
    "labels.words": "WordVectors name_vectors packaged_vectors read_vectors",
    "overview": "contact_sheet inspect",
    "read.arrays": "arrays",
    "read.audio": "audio_folder",
    "read.folders": "folder",
    "read.packs": "features pack",
    "read.shards": "shards",
    "read.tables": "table",
    "sets.degraded": "degraded",
    "sets.digits": "digits",
    "sets.finches": "finches",
    "sharding": "write_shards",
    "split.divide": "divide group_by pool resplit",
    "split.files": "apply_split write_split",
    "split.leaks": "check_leaks near_duplicates refuse_leaks",
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}
_MOVED = {
    "list_benchmarks": "",
    "load_benchmark": "",
    "rotated": ".rotations",
    "ZeroShotData": ".xlsa17",
    "build_zero_shot": ".xlsa17",
    "read_xlsa17": ".xlsa17",
    "write_xlsa17": ".xlsa17",
}


def __getattr__(name: str) -> Any:
    """Return a public name, importing where it lives on first use; one that has moved comes with a warning, for one version."""
    if name in _PLACES:
        return getattr(import_module(f"labelwise.data.{_PLACES[name]}"), name)
    if name not in _MOVED:
        raise AttributeError(f"module labelwise.data has no attribute {name!r}")
    module = f"labelwise_papers.benchmarks{_MOVED[name]}"
    warn(f"labelwise.data.{name} is now {module}.{name}", DeprecationWarning, stacklevel=2)
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
