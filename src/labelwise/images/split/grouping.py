"""Groups: images that must stay on one side of a split, so that a test does not flatter.

By a ``column`` of the data; ``lookalike``: they look alike (``lookalikes``); ``exif``: one camera took them within seconds of
each other; ``folder``: they lie in one folder below that of their label.
"""

import os
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePath
from typing import Literal, get_args

import numpy as np
from PIL import ExifTags, Image

from labelwise.images.images import Images
from labelwise.images.split.lookalikes import lookalike_groups, name_groups
from labelwise.images.stored import parallel_map
from labelwise.support.errors import DataError, UsageError, listing, suggest
from labelwise.support.regular import open_regular

Grouping = Literal["column", "exif", "lookalike", "folder", "none"]
BURST = 3.0  # seconds between two images of a burst, at most


def group_columns(
    by: Grouping, images: Images, files: Sequence[str], labels: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return the ``groups`` of n images, blank where one has none, and of ``exif`` their ``moments``; () where there are none.

    ``files`` say where each came from, empty where they come from none; ``labels`` the name of each image's label, blank where
    it has none.
    """
    if by == "lookalike":
        groups = lookalike_groups(images)
        return {"groups": groups if any(groups) else ()}
    if by in ("exif", "folder") and not all(os.path.isfile(file) for file in files or [""]):
        raise DataError(f"Images are grouped by {by} where they are files, and these are none. Group by lookalike.")
    if by == "folder":
        return {"groups": _folders(files, labels)}
    taken = moments(files) if by == "exif" else ()
    return {"moments": taken, "groups": bursts(taken)} if taken else {"groups": ()}


def check_grouping(by: str) -> None:
    """Raise an error unless images can be grouped by this word."""
    ways = get_args(Grouping)
    if by not in ways:
        raise UsageError(f'No grouping "{by}".{suggest(by, ways)} Images are grouped by: {listing(ways)}.')


def moments(files: Sequence[str]) -> tuple[str, ...]:
    """Return when each image was taken and by which camera, "2026-05-01T10:20:30.5 Maker Model"; blank where EXIF does not say."""
    return tuple(parallel_map(_moment, files))


def _moment(file: str) -> str:
    try:
        with open_regular(file) as stream, Image.open(stream) as image:
            about = image.getexif()
            more = about.get_ifd(ExifTags.IFD.Exif)
        taken = more.get(ExifTags.Base.DateTimeOriginal) or more.get(ExifTags.Base.DateTimeDigitized)
        time = datetime.strptime(str(taken).strip("\0 "), "%Y:%m:%d %H:%M:%S").isoformat()
    except Exception:  # no image, no EXIF, a camera that writes dates in a way of its own: nothing is known
        return ""
    part = "".join(filter(str.isdigit, str(more.get(ExifTags.Base.SubsecTimeOriginal, ""))))
    camera = " ".join(str(about.get(tag, "")).strip("\0 ") for tag in (ExifTags.Base.Make, ExifTags.Base.Model))
    return f"{time}.{part or 0} {' '.join(camera.split())}".strip()


def bursts(taken: Sequence[str]) -> tuple[str, ...]:
    """Return the burst of each image, by ``moments``: the next of one camera follows within ``BURST`` seconds; blank alone."""
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
            "All images lie in the folders of their labels themselves, so folders tell no groups. Put those that belong "
            "together into one folder below (owl/day1/1.jpg), or group by lookalike."
        )
    return groups


def group_words(groups: Sequence[str]) -> str:
    """Return in words what groups there are, of n images; blank where there are none."""
    sizes = [count for name, count in Counter(filter(None, groups)).items() if count > 1]
    if not sizes:
        return ""
    first = next(filter(None, groups))
    verb = {"lookalike": "look alike in", "burst": "were taken in bursts:"}.get(first.partition(" ")[0], "belong to")
    several = "s; each group" if len(sizes) > 1 else ", which"
    return f"{sum(sizes)} images {verb} {len(sizes)} group{several} stays together."
