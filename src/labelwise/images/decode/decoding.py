"""Decode an image file to bytes ``[c, h, w]``: formats, EXIF, modes, limits, and readable errors."""

import io
import os
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from labelwise.images.decode.crops import zoom
from labelwise.images.decode.framing import FINGERPRINTED as FINGERPRINTED
from labelwise.images.decode.framing import MAX_PIXELS as MAX_PIXELS
from labelwise.images.decode.framing import Extent, fit_image
from labelwise.images.decode.framing import Frame as Frame
from labelwise.images.decode.headers import SHAPE, Print, fingerprint, read_header
from labelwise.images.decode.headers import UnreadableError as UnreadableError
from labelwise.images.decode.progressive import EIGHTH, without_details
from labelwise.support.files import NotAFileError, open_regular

if TYPE_CHECKING:  # decoding processes do without torch
    pass

File = str | Path | bytes

NO_FILE = "there is no such file. Check the path."
HERE = 1.0  # seconds: quicker images are decoded without a worker, except in a service
SMALL = 2**23  # largest file to hold in memory while decoding it
# Only formats that Pillow decodes itself, so that a file called .jpg cannot start another program.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000", "ICO", "HEIF")
HEIC = 'it is a HEIC image, which the package pillow-heif reads: pip install "labelwise[heic]"'
# First bytes of images that Pillow cannot read by itself: "ftyp" and the brand of the file, or a magic number.
_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"hevm", b"hevs", b"mif1", b"msf1")
# Suffixes of images that no reader here supports; raw camera files may start like TIFF files.
RAW_SUFFIXES = frozenset(
    [".3fr", ".arw", ".cr2", ".cr3", ".dng", ".nef", ".nrw", ".orf", ".pef", ".raf", ".rw2", ".sr2", ".srw", ".x3f"]
)
OTHER_SUFFIXES = frozenset((".jxl", ".psd", ".svg"))


class _Quiet:
    """Turn Pillow's warnings off while any thread is inside; counted, since threads share the list of filters."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._filters = warnings.catch_warnings()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._filters = warnings.catch_warnings()
                self._filters.__enter__()
                warnings.filterwarnings("ignore", module=r"PIL\.")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._filters.__exit__(None, None, None)


# The only object of this module that changes: filters belong to the process, so threads share one count.
QUIET = _Quiet()


def open_content(file: File) -> BinaryIO:
    """Return the content of a file as a stream; a small file is held in memory, since it is read twice.

    A file with an unsupported suffix raises ``UnreadableError``.
    """
    if isinstance(file, bytes):
        return io.BytesIO(file)
    stream, suffix = open_regular(file), os.path.splitext(file)[1].lower()
    if suffix in RAW_SUFFIXES or suffix in OTHER_SUFFIXES:
        stream.close()
        kind = "a raw image of a camera" if suffix in RAW_SUFFIXES else "an image"
        raise UnreadableError(f"it is {kind} ({suffix[1:].upper()}), which is not read. Export it as JPEG or PNG.")
    size = os.fstat(stream.fileno()).st_size
    if size > SMALL:
        return stream
    with stream:
        return io.BytesIO(stream.read(size))  # exact size: a larger buffer would be cleared first


def check_header(stream: BinaryIO, frame: Frame) -> float | None:
    """Return the expected decoding seconds, None if the header does not say; raise an error for an excessive image."""
    header = read_header(stream)
    if not header.bytes:
        raise UnreadableError("it is empty (0 bytes). Replace it or remove it.")
    _check_kind(stream.read(12))
    stream.seek(0)
    _check_pixels(header.width, header.height, frame)
    return header.seconds


def is_quick(stream: BinaryIO, frame: Frame) -> bool:
    """Return whether an image is quick enough to decode without a worker; raise the errors of ``check_header``."""
    seconds = check_header(stream, frame)
    return seconds is not None and seconds < HERE


def _check_kind(head: bytes) -> None:
    """Raise an error for unreadable formats, by first bytes; open the reader of HEIC images."""
    if head[4:8] == b"ftyp" and head[8:12] in _HEIF_BRANDS and "HEIF" not in Image.OPEN:
        try:
            import_module("pillow_heif").register_heif_opener()
        except ImportError:
            raise UnreadableError(f"{HEIC}, or export it as JPEG.") from None
    Image.init()
    if head[4:12] in (b"ftypavif", b"ftypavis") and "AVIF" not in Image.OPEN:
        raise UnreadableError("it is an AVIF image, which this Pillow does not read: pip install -U pillow.")


def decode_stream(stream: BinaryIO, frame: Frame) -> npt.NDArray[np.uint8]:
    """Decode an image with a checked header to bytes ``[c, h, w]``; decoder errors pass through (see ``reason``)."""
    with _open_draft(stream, frame) as (image, extent):
        return fit_image(image, frame, extent)


def decode_with_fingerprint(stream: BinaryIO, frame: Frame) -> tuple[npt.NDArray[np.uint8], Print]:
    """Decode an image and compute its fingerprint.

    It is decoded once, unless it is a JPEG that is read in grey, or so large that it is decoded at another scale for the fingerprint.
    """
    small = frame.fingerprinted
    with _open_draft(stream, small, header_only=True) as (image, _):
        size = image.mode, image.size
    with _open_draft(stream, frame) as (image, extent):
        same = (image.mode, image.size) == size
        pixels = fit_image(image, frame, extent)
        if same:
            return pixels, fingerprint(fit_image(image, small, extent))
    return pixels, fingerprint(decode_stream(stream, small))


@contextmanager
def _open_draft(
    stream: BinaryIO, frame: Frame, *, header_only: bool = False
) -> Iterator[tuple[Image.Image, Extent | None]]:
    """Open an image, reduced if the reduced size covers the frame and a fingerprint; return its extent then."""
    formats = [name for name in _FORMATS if name in Image.OPEN]
    with Image.open(stream, formats=formats) as image:
        _check_pixels(*image.size, frame)
        side = max(frame.height, frame.width, *SHAPE[1:])
        side = side if frame.box is None else ceil(side * zoom(frame.box, image.size))
        mode, full = "L" if frame.channels == 1 else None, image.size
        drafted = image.draft(mode, (side, side))
        extent = (*drafted[1][2:], drafted[1][2] / full[0]) if drafted else None
        eighth = image.info.get("progressive") and image.size == tuple(-(-length // EIGHTH) for length in full)
        if header_only or not eighth or not isinstance(stream, io.BytesIO):
            yield image, extent
            return
    with Image.open(io.BytesIO(without_details(stream.getvalue())), formats=formats) as image:
        image.draft(mode, (side, side))
        yield image, extent


def reason(error: Exception, frame: Frame) -> str:
    """Explain what is wrong with an image and what to do."""
    match error:
        case UnreadableError():
            return str(error)
        case FileNotFoundError() if is_url(str(error.filename)):
            return "it is a web address, and nothing is downloaded. Download it and give the file."
        case NotAFileError():
            kind = (
                "it is a folder. Give the images in it"
                if "folder" in str(error.strerror)
                else f"{error.strerror}. Give an image"
            )
            return f"{kind}."
        case FileNotFoundError():
            return NO_FILE
        case PermissionError():
            return "permission to read it is denied. Change its permissions."
        case UnidentifiedImageError():
            return "it is not an image of a known format, or its beginning is damaged. Replace it or remove it."
        case Image.DecompressionBombError():  # "Image size (n pixels) exceeds ..."
            return _too_large("".join(filter(str.isdigit, str(error).partition("pixels")[0])), frame)
        case OSError() if error.errno:
            return f"it cannot be opened ({error.strerror}). Check the path."
        case MemoryError():
            return "there is not enough memory to decode it. Make it smaller."
    return f"it is damaged or cut off ({error}). Replace it or remove it."


def is_url(word: str) -> bool:
    """Return whether a word is a web address, possibly with one slash lost by conversion to a path."""
    return re.match("(https?|ftp|s3|gs):/", word, re.IGNORECASE) is not None


def _check_pixels(width: int, height: int, frame: Frame) -> None:
    if width * height > frame.max_pixels:
        raise UnreadableError(_too_large(f"{width}x{height} = {width * height}", frame))


def _too_large(pixels: str, frame: Frame) -> str:
    limit = min(frame.max_pixels, 2 * (Image.MAX_IMAGE_PIXELS or frame.max_pixels))
    return f"it has too many pixels ({pixels}; the limit is {limit}). Make it smaller."
