"""Parts of files, addressed as W3C media fragments: a crop ``photo.jpg#xywh=10,20,30,40``, a frame of a video ``clip.mp4#t=2.5``.

The numbers of a crop are left, top, width and height in pixels of the upright image (EXIF orientation applied), or in per cent of its
sides: ``photo.jpg#xywh=percent:5,10,20.5,30``. That of a frame is its time in seconds; a crop of one is ``clip.mp4#t=2.5&xywh=10,20,30,40``.
The address says everything, so a part is a path wherever a path is taken.
"""

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from labelwise.images.decode.headers import UnreadableError

Box = tuple[float, float, float, float, bool]  # left, top, width, height; whether in per cent
LARGEST = 1e9  # numbers of a box are smaller
_NUMBER = r"(-?\d{1,9}(?:\.\d{1,9})?)"
_BOX = re.compile(rf"(.+)[#&]xywh=(percent:|pixel:)?{_NUMBER},{_NUMBER},{_NUMBER},{_NUMBER}", re.DOTALL)
_FRAME = re.compile(r"(.+)#t=(\d{1,7}(?:\.\d{1,6})?)", re.DOTALL)
VIDEO_SUFFIXES = frozenset(
    [
        ".mp4",
        ".m4v",
        ".mov",
        ".avi",
        ".mkv",
        ".webm",
        ".asf",
        ".wmv",
        ".mpg",
        ".mpeg",
        ".mts",
        ".m2ts",
        ".ts",
        ".3gp",
        ".ogv",
        ".flv",
    ]
)


class Crop(NamedTuple):
    """A part of an image file, or a frame of a video."""

    file: str | bytes  # its path, or its content
    box: Box | None  # None: the whole frame of a video
    seconds: float | None = None  # since the beginning of a video


def is_video(name: str) -> bool:
    """Return whether a file is a video, by its name."""
    return os.path.splitext(name)[1].lower() in VIDEO_SUFFIXES


def parse_crop(path: str) -> Crop | None:
    """Return the crop or the frame that an address names, or None for a plain path."""
    if "xywh=" not in path and "#t=" not in path:
        return None
    box: Box | None = None
    if match := _BOX.fullmatch(path):
        left, top, width, height = (float(match[group]) for group in (3, 4, 5, 6))
        box = (left, top, width, height, match[2] == "percent:")
    file = match[1] if match else path
    moment = _FRAME.fullmatch(file)
    if moment and is_video(moment[1]):
        return Crop(moment[1], box, float(moment[2]))
    return Crop(file, box) if match and path[len(file)] == "#" else None


def file_of(path: str) -> str:
    """Return the image file or the video of an address, which may be of a part."""
    crop = parse_crop(path)
    return str(crop.file) if crop else path


def crop_address(path: str, box: Box | None, seconds: float | None = None) -> str:
    """Return the address of a part of a file; a box that covers the whole image is no crop.

    >>> crop_address("photo.jpg", (5, 10, 20.5, 30, True))
    'photo.jpg#xywh=percent:5,10,20.5,30'
    >>> crop_address("clip.mp4", None, 2.5)
    'clip.mp4#t=2.5'
    """
    mark = "#"
    if seconds is not None:
        path, mark = f"{path}#t={_digits(seconds)}", "&"
    if box is None or (box[4] and max(box[:2]) <= 0 and min(box[0] + box[2], box[1] + box[3]) >= 100 - 1e-6):
        return path
    return f"{path}{mark}xywh={'percent:' if box[4] else ''}{','.join(map(_digits, box[:4]))}"


def _digits(value: float) -> str:
    return f"{value:.5f}".rstrip("0").rstrip(".")


def shares(box: Sequence[float]) -> Box:
    """Return the box of four percentages (left, top, width, height)."""
    left, top, width, height = (100 * float(value) for value in box)
    return left, top, width, height, True


def zoom(box: Box, size: tuple[int, int]) -> float:
    """Return the largest ratio of an image side to a box side; at least 1, also if EXIF turns the image."""
    wide, high = (100.0, 100.0) if box[4] else (float(max(size)), float(max(size)))
    return max(1.0, wide / max(box[2], 1e-3), high / max(box[3], 1e-3))


def window(
    box: Box, size: tuple[float, float], pixel: float, aspect: float | None
) -> tuple[float, float, float, float]:
    """Return the part (left, top, right, bottom) of a width x height image to cut out; ``pixel`` is a unit of the box.

    A box is widened to the ``aspect`` (width by height) around its centre, within the image: to cut its ends off would
    lose parts of the object. None keeps the box.
    """
    units = (size[0] / 100, size[1] / 100) if box[4] else (pixel, pixel)
    left, top = max(0.0, box[0] * units[0]), max(0.0, box[1] * units[1])
    right = min(size[0], (box[0] + box[2]) * units[0])
    bottom = min(size[1], (box[1] + box[3]) * units[1])
    if right <= left or bottom <= top:
        raise UnreadableError("the box is empty or outside the image. Check its numbers.")
    if aspect is not None:
        left, right = _widen(left, right, (bottom - top) * aspect, size[0])
        top, bottom = _widen(top, bottom, (right - left) / aspect, size[1])
    return left, top, right, bottom


def _widen(low: float, high: float, length: float, most: float) -> tuple[float, float]:
    """Return an interval of at least this length around the same centre, moved inside 0 to ``most``."""
    length = min(max(length, high - low), most)
    low = min(max(0.0, (low + high - length) / 2), most - length)
    return low, low + length
