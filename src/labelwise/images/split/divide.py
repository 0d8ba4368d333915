"""Data divided again: all images pooled, the rows of each split chosen."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt

from labelwise.images.dataset import COLUMNS, SPLITS, Dataset, Split
from labelwise.images.images import join
from labelwise.images.split.grouping import Grouping, check_grouping, group_columns
from labelwise.images.split.leaks import refuse_leaks
from labelwise.images.split.make import Shares, divide_groups, hold_out_domain, zero_shot
from labelwise.support.errors import DataError, UsageError, listing, suggest

KINDS = ("stratified", "grouped", "domain", "zero-shot")


def divide(
    dataset: Dataset,
    kind: str = "stratified",
    domain: str | None = None,
    seed: int = 0,
    group: Grouping | None = None,
) -> Dataset:
    """Return the data set divided again, all its images pooled first; one that leaks is refused.

    The kind is ``stratified`` (each label divided), ``grouped`` (the same, and it is an error where there are no groups),
    ``domain`` (``domain`` is the test split), or ``zero-shot`` (a fifth of the labels is unseen in training). No
    ``group`` (see ``split.grouping``) is divided by the first two; None is as the data are grouped.
    """
    dataset = _regroup(dataset, group)
    whole = pool(dataset)
    if kind == "stratified":
        rows = divide_groups(whole.groups or [""] * len(whole), whole.strata, Shares(), seed)
    elif kind == "grouped":
        _check_column(dataset.name, "group", whole.groups)
        rows = divide_groups(whole.groups, whole.strata, Shares(), seed)
    elif kind == "domain":
        _check_column(dataset.name, "domain", whole.domains)
        if domain is None:
            domains = listing(sorted(set(whole.domains)))
            raise UsageError(f"Say which domain to hold out with --held-out. Domains: {domains}.")
        rows = hold_out_domain(whole.strata, whole.domains, domain, seed)
    elif kind == "zero-shot" and dataset.multilabel:
        raise UsageError(
            f'Several labels may be true of one image of "{dataset.name}", so none can be unseen as a whole.'
        )
    elif kind == "zero-shot":
        parts = zero_shot(whole.targets, dataset.labels.names, seed=seed)
        rows = {"train": parts["train"]}
        for split in ("val", "test"):
            rows[split] = np.sort(np.concatenate([parts[f"{split}_seen"], parts[f"{split}_unseen"]]))
    else:
        raise UsageError(f'No kind of split "{kind}".{suggest(kind, KINDS)} Kinds: {listing(KINDS)}.')
    divided = resplit(dataset, rows)
    refuse_leaks(divided)
    return divided


def group_by(dataset: Dataset, group: Grouping | None, seed: int = 0) -> Dataset:
    """Return the data set with the ``groups`` of its images; splits that the data do not name are made again from them."""
    if group is None:
        return dataset
    dataset = _regroup(dataset, group)
    if dataset.own_splits:
        return dataset
    whole = pool(dataset)
    rows = divide_groups(whole.groups or [""] * len(whole), whole.strata, Shares(), seed)
    return replace(resplit(dataset, rows), own_splits=False)


def _regroup(dataset: Dataset, group: Grouping | None) -> Dataset:
    """Return the data set with the groups of all images, whatever their split; None looks again for what it was grouped by."""
    by = cast("Grouping", group or dataset.grouping)
    check_grouping(by)
    whole = pool(dataset)
    if group == "column":
        _check_column(dataset.name, "group", whole.groups if dataset.grouping == by else ())
    if by == "column" or (by == "none" and dataset.grouping == "column"):
        return dataset
    columns = group_columns(by, whole.images, whole.files, whole.words(dataset.labels.names))
    parts = {name: dataset.splits[name] for name in SPLITS if name in dataset.splits}
    splits, start = {}, 0
    for name, part in parts.items():
        own = {what: column[start : start + len(part)] for what, column in columns.items()}
        splits[name], start = replace(part, **own), start + len(part)  # type: ignore[arg-type]
    return replace(dataset, splits=splits, grouping=by)


def _check_column(name: str, column: str, cells: Sequence[str]) -> None:
    if not cells:
        raise DataError(f'"{name}" has no {column}s. Add a column "{column}" to its table.')


def pool(dataset: Dataset) -> Split:
    """Return all images of a data set in one split, those of train first, then val, then test.

    Images without a file name are called "image 0", "image 1" and so on by their place, so that they differ
    after they are divided again. What only some splits know (texts, domains, groups) is blank for the others.
    """
    parts = [dataset.splits[name] for name in SPLITS if name in dataset.splits]
    filled = [part for part in parts if len(part)] or parts[:1]
    pieces: dict[str, tuple[object, ...]] = {}
    for what in COLUMNS:
        if what == "files" or any(getattr(part, what) for part in filled):
            blank: object = {"texts": (), "weights": 1.0}.get(what, "")
            pieces[what] = tuple(each for part in filled for each in getattr(part, what) or [blank] * len(part))
    pieces["files"] = tuple(file or f"image {i}" for i, file in enumerate(pieces["files"]))
    whole = Split(
        images=join([part.images for part in filled]),
        targets=np.concatenate([part.targets for part in filled]),
    )
    return replace(whole, **pieces)  # type: ignore[arg-type]


def resplit(dataset: Dataset, rows: Mapping[str, npt.ArrayLike]) -> Dataset:
    """Return the data set divided again by positions in ``pool(dataset)`` for train, val and test, or some of them.

    Its own splits are forgotten; images that no split names are left out.
    """
    whole = pool(dataset)
    parts = {name: np.asarray(part, np.int64) for name, part in rows.items()}
    every = np.concatenate([*parts.values(), np.empty(0, np.int64)])
    if len(every) and not 0 <= int(every.min()) <= int(every.max()) < len(whole):
        raise UsageError(f"Rows must lie in 0..{len(whole) - 1}; given {int(every.min())} to {int(every.max())}.")
    rows_once, times = np.unique(every, return_counts=True)
    if len(rows_once) < len(every):
        raise UsageError(
            f"A row may be in one split only and once; given more than once: {listing(map(str, rows_once[times > 1].tolist()))}."
        )
    ordered = [name for name in SPLITS if name in parts] + [name for name in parts if name not in SPLITS]
    return replace(dataset, splits={name: whole.select(parts[name]) for name in ordered}, own_splits=True)
