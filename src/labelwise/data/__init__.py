"""Data: sources, splits, what is known about labels, and augmentation on the device."""

from labelwise.data.augment import Augment
from labelwise.data.catalogue import EMBEDDED, load
from labelwise.data.dataset import Dataset, Skipped, Split, TrainData
from labelwise.data.digits import digits
from labelwise.data.finches import finches
from labelwise.data.packs import pack
from labelwise.data.sources import arrays, folder
from labelwise.data.tables import table

__all__ = [
    "EMBEDDED",
    "Augment",
    "Dataset",
    "Skipped",
    "Split",
    "TrainData",
    "arrays",
    "digits",
    "finches",
    "folder",
    "load",
    "pack",
    "table",
]
