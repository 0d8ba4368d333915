"""Decode an image file to bytes ``[c, h, w]``: formats, EXIF, modes, limits, and readable errors."""

import io
import os
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, UnidentifiedImageError

from labelwise.images.decode.headers import SHAPE, Print, fingerprint, read_header
from labelwise.images.decode.headers import UnreadableError as UnreadableError
from labelwise.images.decode.progressive import EIGHTH, without_details
from labelwise.support.errors import UsageError
from labelwise.support.files import NotAFileError, open_regular

if TYPE_CHECKING:  # a process that only decodes does without torch
    from labelwise.images.view import Fit

File = str | Path | bytes

MAX_PIXELS = 100_000_000
HERE = 1.0  # seconds: images that are likely to take less are decoded without a worker, but for a service's
SMALL = 2**23  # bytes of a file that is held in memory while it is decoded
# Only formats that Pillow decodes itself: a file called .jpg must not be able to start another program.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000", "ICO", "HEIF")
HEIC = 'it is a HEIC image, which the package pillow-heif reads: pip install "labelwise[heic]"'
# What begins like this is an image that Pillow cannot read by itself: "ftyp" and then the brand of the file, or its first bytes.
_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"hevm", b"hevs", b"mif1", b"msf1")
# How files are called that are images to people and to no reader here; those of cameras may begin as TIFF files do.
RAW_SUFFIXES = frozenset(
    [".3fr", ".arw", ".cr2", ".cr3", ".dng", ".nef", ".nrw", ".orf", ".pef", ".raf", ".rw2", ".sr2", ".srw", ".x3f"]
)
OTHER_SUFFIXES = frozenset((".jxl", ".psd", ".svg"))
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_LYING = [turn for orientation, turn in _TURNS.items() if orientation > 4]  # which swap width and height


@dataclass(frozen=True)
class Frame:
    """What an image is made to fit, and how (see ``View``)."""

    height: int
    width: int
    channels: int
    max_pixels: int = MAX_PIXELS
    fit: "Fit" = "crop"

    def __post_init__(self) -> None:
        if self.channels not in (1, 3):
            raise UsageError(f"Images have 1 channel (grey) or 3 (colour); asked for {self.channels}.")
        if min(self.height, self.width) < 1:
            raise UsageError(f"Images must be at least 1 pixel wide and high; asked for {self.height}x{self.width}.")

    @classmethod
    def of(cls, shape: tuple[int, ...], fit: "Fit" = "crop") -> Self:
        """Return the frame of a shape ``(c, h, w)``, or raise an error that says what is wrong with it."""
        return cls(shape[1], shape[2], shape[0], fit=fit)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the bytes that come back."""
        return self.channels, self.height, self.width


class _Quiet:
    """Pillow's warnings are off while anyone is inside; counted, since all threads share one list of filters."""

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


FINGERPRINTED = Frame.of(SHAPE)  # how the image is read that a fingerprint is made of
# The one object of this module that changes: filters belong to the process, so all threads must share one count.
QUIET = _Quiet()


def open_content(file: File) -> BinaryIO:
    """Return the content of a file as a stream, in memory where it is small: it is read twice.

    One whose name says that nobody here reads it raises ``UnreadableError``.
    """
    if isinstance(file, bytes):
        return io.BytesIO(file)
    stream, suffix = open_regular(file), os.path.splitext(file)[1].lower()
    if suffix in RAW_SUFFIXES or suffix in OTHER_SUFFIXES:
        stream.close()
        what = "a raw image of a camera" if suffix in RAW_SUFFIXES else "an image"
        raise UnreadableError(f"it is {what} ({suffix[1:].upper()}), which is not read. Export it as JPEG or PNG.")
    size = os.fstat(stream.fileno()).st_size
    if size > SMALL:
        return stream
    with stream:
        return io.BytesIO(stream.read(size))  # no more is asked for than there is: that memory would be cleared first


def check_header(stream: BinaryIO, frame: Frame) -> float | None:
    """Return the seconds that decoding is likely to take, None where the header does not say, or raise why nobody should."""
    header = read_header(stream)
    if not header.bytes:
        raise UnreadableError("it is empty (0 bytes). Replace it or remove it.")
    _check_kind(stream.read(12))
    stream.seek(0)
    _check_pixels(header.width, header.height, frame)
    return header.seconds


def is_quick(stream: BinaryIO, frame: Frame) -> bool:
    """Return whether an image is likely to take so little time that no worker is needed, or raise what ``check_header`` does."""
    seconds = check_header(stream, frame)
    return seconds is not None and seconds < HERE


def _check_kind(head: bytes) -> None:
    """Raise an error for what cannot be read, by its first bytes; a HEIC image opens its reader."""
    if head[4:8] == b"ftyp" and head[8:12] in _HEIF_BRANDS and "HEIF" not in Image.OPEN:
        try:
            import_module("pillow_heif").register_heif_opener()
        except ImportError:
            raise UnreadableError(f"{HEIC}, or export it as JPEG.") from None
    Image.init()
    if head[4:12] in (b"ftypavif", b"ftypavis") and "AVIF" not in Image.OPEN:
        raise UnreadableError("it is an AVIF image, which this Pillow does not read: pip install -U pillow.")


def decode_stream(stream: BinaryIO, frame: Frame) -> npt.NDArray[np.uint8]:
    """Return the bytes ``[c, h, w]`` of an image whose header was checked, or raise whatever a decoder does (see ``reason``)."""
    with _open_draft(stream, frame) as (image, extent):
        return fit_image(image, frame, extent)


def decode_with_fingerprint(stream: BinaryIO, frame: Frame) -> tuple[npt.NDArray[np.uint8], Print]:
    """Return what ``decode_stream`` does, and the fingerprint of the image.

    It is decoded once, unless it is a JPEG that is read in grey, or so large that it is decoded at another scale for the fingerprint.
    """
    with _open_draft(stream, FINGERPRINTED, header_only=True) as (image, _):
        wanted = image.mode, image.size
    with _open_draft(stream, frame) as (image, extent):
        same = (image.mode, image.size) == wanted
        pixels = fit_image(image, frame, extent)
        if same:
            return pixels, fingerprint(fit_image(image, FINGERPRINTED, extent))
    return pixels, fingerprint(decode_stream(stream, FINGERPRINTED))


@contextmanager
def _open_draft(
    stream: BinaryIO, frame: Frame, *, header_only: bool = False
) -> Iterator[tuple[Image.Image, tuple[float, float] | None]]:
    """Open an image, to be decoded at a fraction of its size where that covers the frame and a fingerprint; and its true size then."""
    formats = [name for name in _FORMATS if name in Image.OPEN]
    with Image.open(stream, formats=formats) as image:
        _check_pixels(*image.size, frame)
        side = max(frame.height, frame.width, *SHAPE[1:])
        mode, full = "L" if frame.channels == 1 else None, image.size
        drafted = image.draft(mode, (side, side))
        extent = drafted[1][2:] if drafted else None
        eighth = image.info.get("progressive") and image.size == tuple(-(-length // EIGHTH) for length in full)
        if header_only or not eighth or not isinstance(stream, io.BytesIO):
            yield image, extent
            return
    with Image.open(io.BytesIO(without_details(stream.getvalue())), formats=formats) as image:
        image.draft(mode, (side, side))
        yield image, extent


def reason(error: Exception, frame: Frame) -> str:
    """Return what is wrong with an image and what to do about it."""
    match error:
        case UnreadableError():
            return str(error)
        case FileNotFoundError() if is_url(str(error.filename)):
            return "it is a web address, and nothing is downloaded. Download it and give the file."
        case NotAFileError():
            what = (
                "it is a folder. Give the images in it"
                if "folder" in str(error.strerror)
                else f"{error.strerror}. Give an image"
            )
            return f"{what}."
        case FileNotFoundError():
            return "there is no such file. Check the path."
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
    """Return whether a word is an address on the web, also where a path was made of it, which keeps one slash of two."""
    return re.match("(https?|ftp|s3|gs):/", word, re.IGNORECASE) is not None


def _check_pixels(width: int, height: int, frame: Frame) -> None:
    if width * height > frame.max_pixels:
        raise UnreadableError(_too_large(f"{width}x{height} = {width * height}", frame))


def _too_large(pixels: str, frame: Frame) -> str:
    limit = min(frame.max_pixels, 2 * (Image.MAX_IMAGE_PIXELS or frame.max_pixels))
    return f"it has too many pixels ({pixels}; the limit is {limit}). Make it smaller."


def fit_image(image: Image.Image, frame: Frame, extent: tuple[float, float] | None = None) -> npt.NDArray[np.uint8]:
    """Return an image of any mode as bytes ``[c, h, w]``: resized to cover the frame and cropped to its centre, or stretched to it.

    EXIF orientation is applied first, so that a turned image gives what it gives upright. ``extent`` is the true width and height of
    an image that was decoded at a fraction of its size.
    """
    if min(image.size) < 1:
        raise UnreadableError(f"it has no pixels ({image.width}x{image.height}). Replace it or remove it.")
    image.load()
    try:
        turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # a damaged EXIF block says nothing about the pixels
        turn = None
    full = extent or image.size
    if turn is not None:
        kind, image = image.format, image.transpose(turn)
        image.format = kind  # which says how deep its values are
        full = full[::-1] if turn in _LYING else full
    box = (0.0, 0.0, *full)
    if frame.fit.startswith("crop"):
        scale = min(full[0] / frame.width, full[1] / frame.height)
        left = round((full[0] / scale - frame.width) / 2) * scale
        top = round((full[1] / scale - frame.height) / 2) * scale
        box = (left, top, min(left + frame.width * scale, full[0]), min(top + frame.height * scale, full[1]))
    small = _resize(image, (frame.width, frame.height), box, bicubic=frame.fit.endswith("bicubic"))
    pixels = np.asarray(small.convert("L" if frame.channels == 1 else "RGB"), dtype=np.uint8)
    return np.array(pixels[None] if frame.channels == 1 else pixels.transpose(2, 0, 1), order="C")


def _resize(
    image: Image.Image, size: tuple[int, int], box: tuple[float, float, float, float], *, bicubic: bool
) -> Image.Image:
    """Return the part of an image inside the box, resized, as 8-bit grey or colour."""
    kernel = Image.Resampling.BICUBIC if bicubic else Image.Resampling.BILINEAR  # antialiased in Pillow
    if image.mode[0] in "IF":
        deep = image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG")
        wide = image if image.mode in ("I", "F") else image.convert("I")
        low, high = (0.0, 65535.0) if deep else _range(wide)
        values = (np.asarray(wide.resize(size, kernel, box), np.float64) - low) * (255 / (high - low))
        if not np.isfinite(values).all():
            raise UnreadableError(
                "it holds values that are not finite numbers (NaN or infinity). Replace or remove it."
            )
        return Image.fromarray(np.rint(values).clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        part = (image if image.mode == "RGBA" else image.convert("RGBA")).resize(size, kernel, box)
        return Image.alpha_composite(Image.new("RGBA", size, "white"), part).convert("RGB")
    plain = image if image.mode in ("L", "RGB") else image.convert("L" if image.mode == "1" else "RGB")
    return plain.resize(size, kernel, box)


def _range(image: Image.Image) -> tuple[float, float]:
    """Return the values of a 32-bit image that become 0 and 255."""
    low, high = (float(value) for value in image.getextrema())  # type: ignore[arg-type]
    if low < 0 or high > 255:
        return low, max(high, low + 1)
    return 0.0, 1.0 if image.mode == "F" and high <= 1 else 255.0
