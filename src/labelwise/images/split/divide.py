"""Divide data again: pool and group images, then choose the rows of each split."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import PurePath
from typing import Literal, cast, get_args

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image

from labelwise.images.dataset import COLUMNS, SPLITS, Dataset, Split
from labelwise.images.decode.crops import file_of
from labelwise.images.images import Images, join
from labelwise.images.split.leaks import refuse_leaks
from labelwise.images.split.lookalikes import lookalike_groups, name_groups
from labelwise.images.split.make import Shares, divide_groups, hold_out_domain, zero_shot
from labelwise.support.errors import DataError, UsageError, listing, suggest
from labelwise.support.files import open_regular
from labelwise.support.processes import parallel_map

Grouping = Literal["column", "exif", "lookalike", "folder", "none"]
BURST = 3.0  # seconds between two images of a burst, at most


def group_columns(
    by: Grouping, images: Images, files: Sequence[str], labels: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return the ``groups`` of n images, blank for ungrouped ones, and for ``exif`` their ``moments``; () if there are none.

    ``files`` are the paths of images, or empty. ``labels`` are their label names, blank for unlabelled ones.
    """
    if by == "lookalike":
        groups = lookalike_groups(images)
        return {"groups": groups if any(groups) else ()}
    if by in ("exif", "folder") and not all(os.path.isfile(file_of(file)) for file in files or [""]):
        raise DataError(f"Grouping by {by} needs image files. Group by lookalike.")
    if by == "folder":
        return {"groups": _folders(files, labels)}
    times = moments(files) if by == "exif" else ()
    return {"moments": times, "groups": bursts(times)} if times else {"groups": ()}


def check_grouping(by: str) -> None:
    """Raise an error unless images can be grouped by this word."""
    ways = get_args(Grouping)
    if by not in ways:
        raise UsageError(f'No grouping "{by}".{suggest(by, ways)} Images are grouped by: {listing(ways)}.')


def moments(files: Sequence[str]) -> tuple[str, ...]:
    """Return the time and camera of each image, "2026-05-01T10:20:30.5 Maker Model"; blank if EXIF lacks them."""
    return tuple(parallel_map(_moment, files))


def _moment(file: str) -> str:
    try:
        with open_regular(file_of(file)) as stream, Image.open(stream) as image:
            exif = image.getexif()
            details = exif.get_ifd(ExifTags.IFD.Exif)
        taken = details.get(ExifTags.Base.DateTimeOriginal) or details.get(ExifTags.Base.DateTimeDigitized)
        time = datetime.strptime(str(taken).strip("\0 "), "%Y:%m:%d %H:%M:%S").isoformat()
    except Exception:  # not an image, no EXIF, or a non-standard date
        return ""
    part = "".join(filter(str.isdigit, str(details.get(ExifTags.Base.SubsecTimeOriginal, ""))))
    camera = " ".join(str(exif.get(tag, "")).strip("\0 ") for tag in (ExifTags.Base.Make, ExifTags.Base.Model))
    return f"{time}.{part or 0} {' '.join(camera.split())}".strip()


def bursts(taken: Sequence[str]) -> tuple[str, ...]:
    """Return the burst of each image: consecutive ``moments`` of a camera within ``BURST`` seconds; blank if alone."""
    if not any(taken):
        raise DataError(
            "None of these images says when it was taken (EXIF), so there are no bursts to find. Group by lookalike."
        )
    times = [moment.partition(" ") for moment in taken]
    clock = [datetime.fromisoformat(time).timestamp() if time else 0.0 for time, _, _ in times]
    member, last = np.arange(len(taken)), -1
    for row in sorted((i for i in range(len(taken)) if taken[i]), key=lambda i: (times[i][2], clock[i])):
        if last >= 0 and times[row][2] == times[last][2] and clock[row] - clock[last] <= BURST:
            member[row] = member[last]
        last = row
    return name_groups("burst", member)


def _folders(files: Sequence[str], labels: Sequence[str]) -> tuple[str, ...]:
    homes = [PurePath(file).parent for file in files]
    groups = tuple("" if home.name == label else home.as_posix() for home, label in zip(homes, labels, strict=True))
    if not any(groups):
        raise DataError(
            "All images are directly in the folders of their labels, so there are no groups by folder. Put each group "
            "into a subfolder (owl/day1/1.jpg), or group by lookalike."
        )
    return groups


def group_words(groups: Sequence[str]) -> str:
    """Describe the groups of n images in words; blank if there are none."""
    sizes = [count for name, count in Counter(filter(None, groups)).items() if count > 1]
    if not sizes:
        return ""
    first = next(filter(None, groups))
    verb = {"lookalike": "look alike in", "burst": "were taken in bursts:"}.get(first.partition(" ")[0], "belong to")
    several = "s; each group" if len(sizes) > 1 else ", which"
    return f"{sum(sizes)} images {verb} {len(sizes)} group{several} stays together."


KINDS = ("stratified", "grouped", "domain", "zero-shot")


def divide(
    dataset: Dataset, kind: str = "stratified", domain: str | None = None, seed: int = 0, group: Grouping | None = None
) -> Dataset:
    """Pool all images of a data set and divide them again; raise an error if the result leaks.

    The kind is ``stratified`` (each label is divided), ``grouped`` (the same; an error without groups), ``domain``
    (``domain`` is the test split), or ``zero-shot`` (a fifth of the labels is unseen in training). The first two keep each
    group whole (``group``, see ``split.grouping``); None uses the groups of the data.
    """
    dataset = _regroup(dataset, group)
    pooled = pool(dataset)
    if kind == "stratified":
        rows = divide_groups(pooled.groups or [""] * len(pooled), pooled.strata, Shares(), seed)
    elif kind == "grouped":
        _check_column(dataset.name, "group", pooled.groups)
        rows = divide_groups(pooled.groups, pooled.strata, Shares(), seed)
    elif kind == "domain":
        _check_column(dataset.name, "domain", pooled.domains)
        if domain is None:
            domains = listing(sorted(set(pooled.domains)))
            raise UsageError(f"Say which domain to hold out with --held-out. Domains: {domains}.")
        rows = hold_out_domain(pooled.strata, pooled.domains, domain, seed)
    elif kind == "zero-shot" and dataset.multilabel:
        raise UsageError(
            f'Several labels may be true of one image of "{dataset.name}", so none can be unseen as a whole.'
        )
    elif kind == "zero-shot":
        parts = zero_shot(pooled.targets, dataset.labels.names, seed=seed)
        rows = {"train": parts["train"]}
        for split in ("val", "test"):
            rows[split] = np.sort(np.concatenate([parts[f"{split}_seen"], parts[f"{split}_unseen"]]))
    else:
        raise UsageError(f'No kind of split "{kind}".{suggest(kind, KINDS)} Kinds: {listing(KINDS)}.')
    result = resplit(dataset, rows)
    refuse_leaks(result)
    return result


def group_by(dataset: Dataset, group: Grouping | None, seed: int = 0) -> Dataset:
    """Group the images of a data set; remake the splits that the data do not name."""
    if group is None:
        return dataset
    dataset = _regroup(dataset, group)
    if dataset.own_splits:
        return dataset
    pooled = pool(dataset)
    rows = divide_groups(pooled.groups or [""] * len(pooled), pooled.strata, Shares(), seed)
    return replace(resplit(dataset, rows), own_splits=False)


def _regroup(dataset: Dataset, group: Grouping | None) -> Dataset:
    """Group all images, across splits; None repeats the current kind of grouping."""
    by = cast("Grouping", group or dataset.grouping)
    check_grouping(by)
    pooled = pool(dataset)
    if group == "column":
        _check_column(dataset.name, "group", pooled.groups if dataset.grouping == by else ())
    if by == "column" or (by == "none" and dataset.grouping == "column"):
        return dataset
    columns = group_columns(by, pooled.images, pooled.files, pooled.words(dataset.labels.names))
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
    """Join all images of a data set into one split, in the order train, val, test.

    Images without a file are named "image 0", "image 1" and so on by position, so that names stay unique after a new
    division. Fields that some splits lack (texts, domains, groups) are blank there.
    """
    parts = [dataset.splits[name] for name in SPLITS if name in dataset.splits]
    nonempty = [part for part in parts if len(part)] or parts[:1]
    pieces: dict[str, tuple[object, ...]] = {}
    for what in COLUMNS:
        if what == "files" or any(getattr(part, what) for part in nonempty):
            blank: object = {"texts": (), "weights": 1.0}.get(what, "")
            pieces[what] = tuple(value for part in nonempty for value in getattr(part, what) or [blank] * len(part))
    pieces["files"] = tuple(file or f"image {i}" for i, file in enumerate(pieces["files"]))
    pooled = Split(
        images=join([part.images for part in nonempty]), targets=np.concatenate([part.targets for part in nonempty])
    )
    return replace(pooled, **pieces)  # type: ignore[arg-type]


def resplit(dataset: Dataset, rows: Mapping[str, npt.ArrayLike]) -> Dataset:
    """Divide a data set by positions in ``pool(dataset)`` for train, val and test, or some of them.

    The previous splits are discarded; images in no new split are left out.
    """
    pooled = pool(dataset)
    parts = {name: np.asarray(part, np.int64) for name, part in rows.items()}
    every = np.concatenate([*parts.values(), np.empty(0, np.int64)])
    if len(every) and not 0 <= int(every.min()) <= int(every.max()) < len(pooled):
        raise UsageError(f"Rows must be in 0..{len(pooled) - 1}; given {int(every.min())} to {int(every.max())}.")
    rows_once, times = np.unique(every, return_counts=True)
    if len(rows_once) < len(every):
        raise UsageError(
            f"A row may be in one split only and once; given more than once: {listing(map(str, rows_once[times > 1].tolist()))}."
        )
    names = [name for name in SPLITS if name in parts] + [name for name in parts if name not in SPLITS]
    return replace(dataset, splits={name: pooled.select(parts[name]) for name in names}, own_splits=True)
