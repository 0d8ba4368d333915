"""The drawn birds by their marks: an embedded data set where several labels may be true of one image, or none."""

from collections.abc import Callable
from dataclasses import replace

import torch

from labelwise.data.dataset import Dataset
from labelwise.data.sets.finch_drawing import Bird
from labelwise.data.sets.finches import SPECIES, finches
from labelwise.labels import Labels

# What a bird may have or not have, whatever else it has.
MARKS: dict[str, Callable[[Bird], bool]] = {
    "black cap": lambda bird: bird.cap == "black",
    "chestnut cap": lambda bird: bird.cap == "chestnut",
    "crest": lambda bird: bird.crest,
    "mask": lambda bird: bird.mask,
    "eye ring": lambda bird: bird.eye_ring,
    "wing bars": lambda bird: bird.wing_bars > 0,
    "streaked breast": lambda bird: bird.pattern == "streaked",
    "spotted breast": lambda bird: bird.pattern == "spotted",
    "orange beak": lambda bird: bird.orange_beak,
    "forked tail": lambda bird: bird.forked_tail,
}


def finches_marks(*, seed: int = 0, per_species: int = 100) -> Dataset:
    """Return the finches with their marks as labels, ``MARKS``: any number of them is true of an image, or none."""
    whole = finches(seed=seed, per_species=per_species)
    marks = torch.tensor([[has(bird) for has in MARKS.values()] for bird in SPECIES.values()])
    splits = {name: replace(split, targets=marks[split.targets]) for name, split in whole.splits.items()}
    return Dataset(name="finches/marks", labels=Labels(names=tuple(MARKS)), splits=splits)
