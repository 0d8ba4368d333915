"""Crops: a part of an image file, addressed as a W3C media fragment: ``photo.jpg#xywh=10,20,30,40``.

The numbers are left, top, width and height in pixels of the upright image (EXIF orientation applied), or in per cent of its sides:
``photo.jpg#xywh=percent:5,10,20.5,30``. The address says everything, so a crop is a path wherever a path is taken.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from labelwise.images.decode.headers import UnreadableError

Box = tuple[float, float, float, float, bool]  # left, top, width, height; whether in per cent
LARGEST = 1e9  # numbers of a box are smaller
_NUMBER = r"(-?\d{1,9}(?:\.\d{1,9})?)"
_ADDRESS = re.compile(rf"(.+)#xywh=(percent:|pixel:)?{_NUMBER},{_NUMBER},{_NUMBER},{_NUMBER}", re.DOTALL)


class Crop(NamedTuple):
    """A part of an image file."""

    file: str | bytes  # its path, or its content
    box: Box


def parse_crop(path: str) -> Crop | None:
    """Return the crop that an address names, or None for a plain path."""
    match = _ADDRESS.fullmatch(path) if "#xywh=" in path else None
    if match is None:
        return None
    left, top, width, height = (float(match[group]) for group in (3, 4, 5, 6))
    return Crop(match[1], (left, top, width, height, match[2] == "percent:"))


def file_of(path: str) -> str:
    """Return the image file of an address, which may be a crop."""
    crop = parse_crop(path)
    return str(crop.file) if crop else path


def crop_address(path: str, box: Box | None) -> str:
    """Return the address of a part of a file; a box that covers the whole image is no crop.

    >>> crop_address("photo.jpg", (5, 10, 20.5, 30, True))
    'photo.jpg#xywh=percent:5,10,20.5,30'
    """
    if box is None or (box[4] and max(box[:2]) <= 0 and min(box[0] + box[2], box[1] + box[3]) >= 100 - 1e-6):
        return path
    return f"{path}#xywh={'percent:' if box[4] else ''}{','.join(map(_digits, box[:4]))}"


def _digits(value: float) -> str:
    return f"{value:.5f}".rstrip("0").rstrip(".")


def shares(box: Sequence[float]) -> Box:
    """Return the box of four shares of the sides (left, top, width, height)."""
    left, top, width, height = (100 * float(value) for value in box)
    return left, top, width, height, True


def zoom(box: Box, size: tuple[int, int]) -> float:
    """Return the largest ratio of an image side to a box side; at least 1, also if EXIF turns the image."""
    wide, high = (100.0, 100.0) if box[4] else (float(max(size)), float(max(size)))
    return max(1.0, wide / max(box[2], 1e-3), high / max(box[3], 1e-3))


def window(
    box: Box, size: tuple[float, float], pixel: float, aspect: float | None
) -> tuple[float, float, float, float]:
    """Return the part (left, top, right, bottom) of an image of this width and height to cut out; ``pixel`` is a unit of the box.

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
