"""Data: sources, splits, what is known about labels, and augmentation on the device."""

from labelwise.data.audio import audio_folder
from labelwise.data.augment import Augment
from labelwise.data.benchmarks import list_benchmarks, load_benchmark
from labelwise.data.catalogue import EMBEDDED, load
from labelwise.data.dataset import Dataset, Skipped, Split, TrainData
from labelwise.data.degraded import degraded
from labelwise.data.described import describe_labels
from labelwise.data.digits import digits
from labelwise.data.episodes import Episode, episodes
from labelwise.data.features import features
from labelwise.data.finches import finches
from labelwise.data.inspect import contact_sheet, inspect
from labelwise.data.knowledge import Knowledge, find_knowledge, read_knowledge, with_knowledge
from labelwise.data.leaks import check_leaks, near_duplicates, refuse_leaks
from labelwise.data.packs import pack
from labelwise.data.resplitting import divide
from labelwise.data.rotations import rotated
from labelwise.data.sources import arrays, folder
from labelwise.data.split_files import apply_split, pool, resplit, write_split
from labelwise.data.tables import table
from labelwise.data.words import WordVectors, name_vectors, packaged_vectors, read_vectors
from labelwise.data.xlsa17 import ZeroShotData, read_xlsa17, write_xlsa17
from labelwise.data.zero_shot_data import build_zero_shot

__all__ = [
    "EMBEDDED",
    "Augment",
    "Dataset",
    "Episode",
    "Knowledge",
    "Skipped",
    "Split",
    "TrainData",
    "WordVectors",
    "ZeroShotData",
    "apply_split",
    "arrays",
    "audio_folder",
    "build_zero_shot",
    "check_leaks",
    "contact_sheet",
    "degraded",
    "describe_labels",
    "digits",
    "divide",
    "episodes",
    "features",
    "finches",
    "find_knowledge",
    "folder",
    "inspect",
    "list_benchmarks",
    "load",
    "load_benchmark",
    "name_vectors",
    "near_duplicates",
    "pack",
    "packaged_vectors",
    "pool",
    "read_knowledge",
    "read_vectors",
    "read_xlsa17",
    "refuse_leaks",
    "resplit",
    "rotated",
    "table",
    "with_knowledge",
    "write_split",
    "write_xlsa17",
]
