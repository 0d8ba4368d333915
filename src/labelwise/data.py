"""Data (``lw.data``): sources, splits, label descriptions, and augmentation."""

from typing import TYPE_CHECKING

from labelwise.support.plugins import lazy_names

if TYPE_CHECKING:
    from labelwise.evaluation.episodes import Episode as Episode
    from labelwise.evaluation.episodes import episodes as episodes
    from labelwise.images.catalogue import EMBEDDED as EMBEDDED
    from labelwise.images.catalogue import load as load
    from labelwise.images.dataset import Dataset as Dataset
    from labelwise.images.dataset import Split as Split
    from labelwise.images.describe.knowledge import Knowledge as Knowledge
    from labelwise.images.describe.knowledge import describe_labels as describe_labels
    from labelwise.images.describe.knowledge import find_knowledge as find_knowledge
    from labelwise.images.describe.knowledge import read_knowledge as read_knowledge
    from labelwise.images.describe.knowledge import with_knowledge as with_knowledge
    from labelwise.images.describe.words import WordVectors as WordVectors
    from labelwise.images.describe.words import name_vectors as name_vectors
    from labelwise.images.describe.words import packaged_vectors as packaged_vectors
    from labelwise.images.describe.words import read_vectors as read_vectors
    from labelwise.images.formats.boxes import boxes as boxes
    from labelwise.images.images import Skipped as Skipped
    from labelwise.images.overview import contact_sheet as contact_sheet
    from labelwise.images.overview import inspect as inspect
    from labelwise.images.sets.degraded import degraded as degraded
    from labelwise.images.sets.digits import digits as digits
    from labelwise.images.sets.finches import finches as finches
    from labelwise.images.sharding import write_shards as write_shards
    from labelwise.images.sources.array_data import arrays as arrays
    from labelwise.images.sources.folders import folder as folder
    from labelwise.images.sources.image_tables import table as table
    from labelwise.images.sources.packs import features as features
    from labelwise.images.sources.packs import pack as pack
    from labelwise.images.sources.shards import shards as shards
    from labelwise.images.sources.videos import frames as frames
    from labelwise.images.split.divide import divide as divide
    from labelwise.images.split.divide import group_by as group_by
    from labelwise.images.split.divide import pool as pool
    from labelwise.images.split.divide import resplit as resplit
    from labelwise.images.split.leaks import check_leaks as check_leaks
    from labelwise.images.split.leaks import near_duplicates as near_duplicates
    from labelwise.images.split.leaks import refuse_leaks as refuse_leaks
    from labelwise.images.split.split_files import apply_split as apply_split
    from labelwise.images.split.split_files import write_split as write_split
    from labelwise.train.augment import Augment as Augment
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
