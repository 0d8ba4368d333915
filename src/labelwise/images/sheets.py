"""Contact sheets: rows of thumbnails with captions."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from labelwise.images.images import Array
from labelwise.support.text import visible

if TYPE_CHECKING:
    from PIL import Image, ImageFont

LAST = 9  # letters kept at the end of a shortened caption: a count, or a colour
FONTS = ("DejaVuSans.ttf", "Arial Unicode.ttf", "arial.ttf")  # fonts with more scripts than Pillow's default


def draw_sheet(title: str, strips: Mapping[str, Array], images: int) -> "Image.Image":
    """Draw columns of image strips, each with a caption."""
    from PIL import Image, ImageDraw

    side, gap, margin, head = 80, 4, 24, 56
    width = images * (side + gap) - gap
    columns = min(len(strips), max(1, round(math.sqrt(len(strips) * 1.5 * (side + 34) / width))))
    deep = math.ceil(len(strips) / columns)
    size = (margin + columns * (width + margin), head + deep * (side + 34) + margin // 2)
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    large, small = _font(20), _font(14)
    draw.text((margin, 18), _shorten(title, size[0] - 2 * margin, large), "black", large)
    for i, (caption, strip) in enumerate(strips.items()):
        left, top = margin + i // deep * (width + margin), head + i % deep * (side + 34)
        draw.text((left, top), _shorten(caption, width, small), "#333333", small)
        for j, image in enumerate(strip):
            sheet.paste(thumbnail(image, side), (left + j * (side + gap), top + 20))
    return sheet


def add_title(image: "Image.Image", lines: Sequence[str]) -> "Image.Image":
    """Draw an image with a title of a few lines, shortened to its width."""
    from PIL import Image, ImageDraw

    height, font = 22, _font(15)
    sheet = Image.new("RGB", (image.width, image.height + len(lines) * height + 6), "white")
    for i, line in enumerate(lines):
        ImageDraw.Draw(sheet).text((6, 4 + i * height), _shorten(line, image.width - 12, font), "black", font)
    sheet.paste(image, (0, sheet.height - image.height))
    return sheet


def thumbnail(values: Array, side: int) -> "Image.Image":
    """Return an image resized to fit a square box; the pixels of a tiny image stay visible."""
    from PIL import Image

    pixels = np.moveaxis(np.asarray(values), 0, 2)
    pixels = np.repeat(pixels, 3, 2) if pixels.shape[2] == 1 else pixels[:, :, :3]
    image = Image.fromarray(np.ascontiguousarray(pixels))
    scale = side / max(image.size)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return image.resize(size, Image.Resampling.NEAREST if scale > 2 else Image.Resampling.LANCZOS)


def _font(size: int) -> "ImageFont.FreeTypeFont":
    from PIL import ImageFont

    for name in FONTS:
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    return ImageFont.load_default(size)  # type: ignore[return-value]


def _shorten(text: str, width: int, font: "ImageFont.FreeTypeFont") -> str:
    """Shorten a text in the middle to fit the width; its end is kept."""
    short = text = visible(" ".join(text.split()))
    head, end = text[:-LAST][:width], text[-LAST:]  # letters are at least a pixel wide
    while head and font.getlength(short) > width:
        short = f"{head}…{end}"
        head = head[:-1]
    return short
