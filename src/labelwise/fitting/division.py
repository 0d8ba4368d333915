"""Which images of a data set a fit trains on, and which it holds out."""

from collections.abc import Sequence
from dataclasses import replace

from labelwise.images.dataset import SPLITS, Array, Dataset, Split, among_labels
from labelwise.images.describe.labels import Labels
from labelwise.images.split.divide import pool
from labelwise.images.split.make import split_off
from labelwise.support.errors import DataError, UsageError, listing
from labelwise.train.method import Method


def train_on_all(data: Dataset, method: Method) -> Dataset:
    """Move to train all held-out images that the method does not need, since it uses leave-one-out.

    Splits named by the data or the user stay.
    """
    ours = () if data.own_splits and data.own_val else ("train", "val") if data.own_splits else SPLITS
    own_splits = {name: data.splits[name] for name in ours if name in data.splits}
    if not method.leaves_out or "train" not in own_splits or len(own_splits) < 2:
        return data
    other_splits = {name: split for name, split in data.splits.items() if name not in own_splits}
    return replace(data, splits={"train": pool(replace(data, splits=own_splits)), **other_splits})


def hold_out(data: Dataset, share: float, seed: int) -> Dataset:
    """Split off a share of each label as the test split, with whole groups; the rest is train."""
    if data.own_splits:
        raise UsageError(f'"{data.name}" already has splits ({listing(data.splits)}). Leave out --hold-out.')
    if not 0 < share < 1:
        raise UsageError(f"The share to hold out must be between 0 and 1; given {share}.")
    split = pool(data)
    train, test = split_off(split.strata, share, seed, split.groups)
    return replace(data, splits={"train": split.select(train), "test": split.select(test)}, own_splits=True)


def validation(data: Dataset) -> Split:
    """Return the validation images; empty if there is no validation split."""
    return data.splits["val"] if "val" in data.splits else data.split("train").select([])


def split_rows(split: Split, strata: Array, share: float, seed: int) -> tuple[Split, Split]:
    """Hold out a share of each stratum ``[n]``; return the remaining and the held-out images.

    Groups stay whole, unless each stratum is in a single group (the characters of an alphabet): then none would be left to learn.
    """
    pairs = set(zip(strata.tolist(), split.groups, strict=True)) if any(split.groups) else set()
    divide = any(not group for _, group in pairs) or len(pairs) > len({stratum for stratum, _ in pairs})
    kept_rows, held_rows = split_off(strata, share, seed, split.groups if divide else ())
    return split.select(kept_rows), split.select(held_rows)


def of_labels(split: Split, labels: Sequence[int], total: int) -> Split:
    """Return the images of some of ``total`` labels; targets become positions among these.

    Multi-label data keep images without a true label, as negatives.
    """
    renumbered = replace(split, targets=among_labels(split.targets, labels, total))
    return renumbered if renumbered.multilabel else renumbered.select(renumbered.labelled)


def labels_to_train(data: Dataset) -> tuple[list[int], Labels, Labels | None]:
    """Return the positions of the labels with training images, these labels, and the others, or None."""
    seen_rows = data.split("train").present
    if len(seen_rows) < 2:
        raise DataError(
            f'Training needs images of at least two labels; the train split of "{data.name}" has {len(seen_rows)}. '
            "Add a folder of other images, for example of things that are not your label."
        )
    unseen_names = [name for i, name in enumerate(data.labels.names) if i not in set(seen_rows)]
    if not unseen_names:
        return seen_rows, data.labels, None
    return seen_rows, data.labels.select([data.labels.names[i] for i in seen_rows]), data.labels.select(unseen_names)
