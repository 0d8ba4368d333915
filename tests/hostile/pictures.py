"""Pictures made to hurt whoever decodes them, each from a few kilobytes of code."""

import io
import struct
import zlib
from collections.abc import Callable

from PIL import Image


def encoded(image: Image.Image, kind: str, **settings: object) -> bytes:
    """The content of a picture file."""
    stream = io.BytesIO()
    image.save(stream, kind, **settings)
    return stream.getvalue()


def scan_bomb(scans: int, side: int = 1000) -> bytes:
    """A progressive JPEG whose last scan comes again and again: ten bytes each, and each a pass over all pixels."""
    plain = encoded(Image.new("RGB", (side, side), (90, 120, 60)), "JPEG", progressive=True)
    return plain[:-2] + plain[plain.rindex(b"\xff\xda") : -2] * scans + plain[-2:]


def pixel_bomb(side: int = 5000, shade: int = 1) -> bytes:
    """A PNG of one colour and many pixels: 84 kB for 25 million of them."""
    return encoded(Image.new("RGB", (side, side), (shade % 256, shade // 256, 3)), "PNG", compress_level=9)


def chunk(name: bytes, data: bytes = b"") -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def in_png(*chunks: bytes) -> bytes:
    """A PNG with chunks after its head."""
    plain = encoded(Image.new("RGB", (16, 16), (1, 2, 3)), "PNG")
    return plain[:33] + b"".join(chunks) + plain[33:]


def in_jpeg(content: bytes) -> bytes:
    """A JPEG with more before its first segment."""
    plain = encoded(Image.new("RGB", (16, 16), (1, 2, 3)), "JPEG")
    return plain[:2] + content + plain[2:]


def segment(mark: int, content: bytes = b"") -> bytes:
    """A segment of a JPEG."""
    return struct.pack(">BBH", 0xFF, mark, len(content) + 2) + content


def in_gif(content: bytes) -> bytes:
    """A GIF with more before its first frame."""
    plain = encoded(Image.new("P", (16, 16), 3), "GIF")
    at = 13 + (3 << (plain[10] & 7) + 1 if plain[10] & 128 else 0)
    return plain[:at] + content + plain[at:]


def exif_bomb(entries: int = 20_000, segments: int = 20) -> bytes:
    """A JPEG whose EXIF entries all refer to the same bytes: 1 MB that become gigabytes."""
    size = 64_000 * segments
    table = b"".join(struct.pack("<HHII", 40_000 + i, 7, size // 2, size // 2) for i in range(entries))
    whole = (b"II*\0" + struct.pack("<IH", 8, entries) + table + bytes(4)).ljust(size, b"\1")
    parts = [whole[i : i + 64_000] for i in range(0, size, 64_000)]
    return in_jpeg(b"".join(segment(0xE1, b"Exif\0\0" + part) for part in parts))


# By name: what is beyond a limit of the header, and a word of the refusal.
BEYOND: dict[str, tuple[Callable[[], bytes], str]] = {
    "scans": (lambda: scan_bomb(3000), "100 scans"),
    "segments": (lambda: in_jpeg(segment(0xE5) * 300_000), "parts"),
    "padding": (lambda: in_jpeg(b"\xff" * 1_000_000), "parts"),
    "colour profile": (lambda: in_jpeg(segment(0xE2, b"ICC_PROFILE\0".ljust(65_000, b"x")) * 70), "bytes of ICC"),
    "exif": (lambda: in_jpeg(segment(0xE1, b"Exif\0\0".ljust(65_000, b"x")) * 70), "bytes of EXIF"),
    "chunks": (lambda: in_png(chunk(b"prVt") * 100_000), "parts"),
    "texts": (lambda: in_png(chunk(b"tEXt", b"a\0b") * 100_000), "parts"),
    "image data in pieces of nothing": (lambda: in_png(chunk(b"IDAT") * 100_000), "parts"),
    "profile in a png": (lambda: in_png(chunk(b"iCCP", bytes(5_000_000))), "bytes of ICC"),
    "blocks of a gif": (lambda: in_gif(b"!\xfe\0" * 300_000), "parts"),
    "frames of a webp": (lambda: _webp(b"ANMF" + bytes(4), 300_000), "parts"),
}


def _webp(chunk: bytes, count: int) -> bytes:
    plain = encoded(Image.new("RGB", (16, 16), (1, 2, 3)), "WEBP")
    content = plain[12:] + chunk * count
    return b"RIFF" + struct.pack("<I", len(content) + 4) + b"WEBP" + content
