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
    joined = {name: data.splits[name] for name in ours if name in data.splits}
    if not method.leaves_out or "train" not in joined or len(joined) < 2:
        return data
    rest = {name: split for name, split in data.splits.items() if name not in joined}
    return replace(data, splits={"train": pool(replace(data, splits=joined)), **rest})


def hold_out(data: Dataset, share: float, seed: int) -> Dataset:
    """Split off a share of each label as the test split, with whole groups; the rest is train."""
    if data.own_splits:
        raise UsageError(f'"{data.name}" already has splits ({listing(data.splits)}). Leave out --hold-out.')
    if not 0 < share < 1:
        raise UsageError(f"The share to hold out must be between 0 and 1; given {share}.")
    whole = pool(data)
    train, test = split_off(whole.strata, share, seed, whole.groups)
    return replace(data, splits={"train": whole.select(train), "test": whole.select(test)}, own_splits=True)


def validation(data: Dataset) -> Split:
    """Return the validation images; empty if there is no validation split."""
    return data.splits["val"] if "val" in data.splits else data.split("train").select([])


def set_aside(split: Split, strata: Array, share: float, seed: int) -> tuple[Split, Split]:
    """Hold out a share of each stratum ``[n]``; return the remaining and the held-out images.

    Groups stay whole, unless each stratum is in a single group (the characters of an alphabet): then none would be left to learn.
    """
    pairs = set(zip(strata.tolist(), split.groups, strict=True)) if any(split.groups) else set()
    divide = any(not group for _, group in pairs) or len(pairs) > len({stratum for stratum, _ in pairs})
    kept, held = split_off(strata, share, seed, split.groups if divide else ())
    return split.select(kept), split.select(held)


def of_labels(split: Split, labels: Sequence[int], total: int) -> Split:
    """Return the images of some of ``total`` labels; targets become positions among these.

    Multi-label data keep images without a true label, as negatives.
    """
    moved = replace(split, targets=among_labels(split.targets, labels, total))
    return moved if moved.multilabel else moved.select(moved.labelled)


def labels_to_train(data: Dataset) -> tuple[list[int], Labels, Labels | None]:
    """Return the positions of the labels with training images, these labels, and the others, or None."""
    seen = data.split("train").present
    if len(seen) < 2:
        raise DataError(
            f'Training needs images of at least two labels; the train split of "{data.name}" has {len(seen)}. '
            "Add a folder of other images, for example of things that are not your label."
        )
    others = [name for i, name in enumerate(data.labels.names) if i not in set(seen)]
    if not others:
        return seen, data.labels, None
    return seen, data.labels.select([data.labels.names[i] for i in seen]), data.labels.select(others)
