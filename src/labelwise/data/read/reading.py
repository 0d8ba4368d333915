"""Pictures listed by a folder or table, read into memory, or to disk where they are too many for it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from labelwise.data.dataset import Skipped, divided_by
from labelwise.data.read.disk import decode_to_disk, fits_in_memory
from labelwise.data.read.pictures import read_files
from labelwise.data.read.targets import named_targets
from labelwise.data.split.divide import split_rows
from labelwise.data.split.splits import Shares
from labelwise.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A picture file that a folder or a table names, and what is said about it; None where nothing is."""

    path: Path
    label: str | None
    split: str
    labels: tuple[str, ...] | None = None
    texts: tuple[str, ...] | None = None
    domain: str | None = None
    group: str | None = None

    @property
    def all_labels(self) -> tuple[str, ...]:
        """All labels that are true of it."""
        return self.labels or (() if self.label is None else (self.label,))


def read_listed(
    name: str, listed: Sequence[Listed], *, size: int, seed: int, strict: bool
) -> tuple[Sequence[Listed], tuple[Tensor, list[int], tuple[Skipped, ...]]]:
    """Return the list in the order it was read, and what ``read_pictures`` returns for it.

    On disk the pictures of a split lie one after another, so that no split is a copy. They are therefore divided first,
    and the list that comes back says the split of each.

    Args:
        name: of the data, for errors.
        listed: the pictures.
        size: the side they are brought to.
        seed: of the division into splits.
        strict: raise an error unless all can be read.
    """
    shape = (3, size, size)
    if fits_in_memory(len(listed), shape):
        return listed, read_paths([each.path for each in listed], shape, strict=strict)
    named = named_targets([each.label for each in listed], [each.labels for each in listed])
    strata = divided_by(named.targets, named.truths)
    splits = [each.split for each in listed] if listed[0].split else []
    groups = [each.group for each in listed if each.group is not None]
    parts = split_rows(name, strata, splits, groups, Shares(), seed)
    ordered = [replace(listed[i], split=split) for split, rows in parts.items() for i in rows.tolist()]
    return ordered, read_paths([each.path for each in ordered], shape, strict=strict)


def read_paths(
    paths: Sequence[Path], shape: tuple[int, int, int], *, strict: bool
) -> tuple[Tensor, list[int], tuple[Skipped, ...]]:
    """Return what ``read_pictures`` returns, for any image shape; from disk where the pictures are too many for memory."""
    if fits_in_memory(len(paths), shape):
        return read_files(paths, shape, strict=strict)
    found = decode_to_disk(paths, shape)
    if strict and found[2]:
        first = found[2][0]
        raise DataError(f"{len(found[2])} of {len(paths)} pictures cannot be read. {first.file}: {first.reason}")
    return found
