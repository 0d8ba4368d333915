"""Bring an opened image or crop to the size of a model: orientation, crop, scale, modes."""

from dataclasses import dataclass, replace
from math import ceil, floor
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image

from labelwise.images.decode.crops import Box, window
from labelwise.images.decode.headers import SHAPE, UnreadableError
from labelwise.support.errors import UsageError

if TYPE_CHECKING:  # decoding processes do without torch
    from labelwise.images.view import Fit

MAX_PIXELS = 100_000_000
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_LYING = [turn for orientation, turn in _TURNS.items() if orientation > 4]  # these swap width and height


@dataclass(frozen=True)
class Frame:
    """The target shape of an image, and how to resize it (see ``View``)."""

    height: int
    width: int
    channels: int
    max_pixels: int = MAX_PIXELS
    fit: "Fit" = "crop"
    box: Box | None = None  # the crop; None: the whole image

    def __post_init__(self) -> None:
        if self.channels not in (1, 3):
            raise UsageError(f"Images have 1 channel (grey) or 3 (colour); asked for {self.channels}.")
        if min(self.height, self.width) < 1:
            raise UsageError(f"Images must be at least 1 pixel wide and high; asked for {self.height}x{self.width}.")

    @classmethod
    def of(cls, shape: tuple[int, ...], fit: "Fit" = "crop") -> Self:
        """Return the frame of a shape ``(c, h, w)``, or raise an error for an invalid shape."""
        return cls(shape[1], shape[2], shape[0], fit=fit)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the result."""
        return self.channels, self.height, self.width

    @property
    def fingerprinted(self) -> "Frame":
        """The frame for the fingerprint of the same crop."""
        return replace(FINGERPRINTED, box=self.box)


FINGERPRINTED = Frame.of(SHAPE)  # the frame of fingerprints
# For an image decoded at reduced size: true width and height, and the size of a true pixel in reduced pixels.
Extent = tuple[float, float, float]


def fit_image(image: Image.Image, frame: Frame, extent: Extent | None = None) -> npt.NDArray[np.uint8]:
    """Convert an image of any mode to bytes ``[c, h, w]``: resized to cover the frame and centre-cropped, or stretched.

    EXIF orientation is applied first, so that a turned image gives what it gives upright.
    """
    if min(image.size) < 1:
        raise UnreadableError(f"it has no pixels ({image.width}x{image.height}). Replace it or remove it.")
    image.load()
    try:
        turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # a damaged EXIF block does not affect the pixels
        turn = None
    full = extent[:2] if extent else image.size
    if turn is not None:
        kind, image = image.format, image.transpose(turn)
        image.format = kind  # this records the depth of its values
        full = full[::-1] if turn in _LYING else full
    crop, box = frame.fit.startswith("crop"), (0.0, 0.0, *full)
    if frame.box is not None:
        box = window(frame.box, full, extent[2] if extent else 1.0, frame.width / frame.height if crop else None)
        image, box = _cut_out(image, box)
    if crop:
        width, height = box[2] - box[0], box[3] - box[1]
        scale = min(width / frame.width, height / frame.height)
        left = box[0] + round((width / scale - frame.width) / 2) * scale
        top = box[1] + round((height / scale - frame.height) / 2) * scale
        box = (left, top, min(left + frame.width * scale, box[2]), min(top + frame.height * scale, box[3]))
    small = _resize(image, (frame.width, frame.height), box, bicubic=frame.fit.endswith("bicubic"))
    pixels = np.asarray(small.convert("L" if frame.channels == 1 else "RGB"), dtype=np.uint8)
    return np.array(pixels[None] if frame.channels == 1 else pixels.transpose(2, 0, 1), order="C")


def _cut_out(
    image: Image.Image, box: tuple[float, float, float, float]
) -> tuple[Image.Image, tuple[float, float, float, float]]:
    """Return the pixels that a box touches, and the box among them, so the kernel uses no pixels outside."""
    left, top, right, bottom = floor(box[0]), floor(box[1]), ceil(box[2]), ceil(box[3])
    part = image.crop((left, top, right, bottom))
    part.format = image.format
    return part, (box[0] - left, box[1] - top, box[2] - left, box[3] - top)


def _resize(
    image: Image.Image, size: tuple[int, int], box: tuple[float, float, float, float], *, bicubic: bool
) -> Image.Image:
    """Return a box of an image, resized, as 8-bit grey or colour."""
    kernel = Image.Resampling.BICUBIC if bicubic else Image.Resampling.BILINEAR  # Pillow antialiases
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
    """Return the values of a 32-bit image that map to 0 and 255."""
    low, high = (float(value) for value in image.getextrema())  # type: ignore[arg-type]
    if low < 0 or high > 255:
        return low, max(high, low + 1)
    return 0.0, 1.0 if image.mode == "F" and high <= 1 else 255.0
