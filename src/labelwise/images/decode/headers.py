"""Read image headers before decoding: the size of the image, and an estimate of the decoding time.

A decoder trusts the file: it runs through a progressive JPEG once for each scan that the file claims, and ten bytes claim one. One
pass over markers and chunks, up to where the decoder stops, counts what costs time. Limits lie far above what cameras and
programs write, and each says why. Only the first frame of an animation and the first page of a file is ever decoded, so what
follows it is not counted, but for chunks, which are read.
"""

import contextlib
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from os import SEEK_CUR, SEEK_END
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from labelwise.support.files import open_regular

SCANS = 100  # limit for a JPEG. libjpeg writes 10, mozjpeg up to 20; libtiff also refuses above 100
PARTS = 4_000  # segments and chunks. Large examples: a depth map as XMP, 10 MB in 160 segments of 64 kB; 255 of a colour profile
PART_BYTES = (
    256  # plus one part per 256 bytes of a file: libpng writes image data in chunks of 8 kB, cameras of 32 kB and more
)
MEGABYTE = 1_000_000
METADATA = {
    "ICC": 4 * MEGABYTE,  # profiles of printing presses have up to 3 MB, those of cameras and screens 4 kB
    "EXIF": 4 * MEGABYTE,  # 64 kB in a JPEG; elsewhere with a preview and the notes of the maker
    "XMP": 32 * MEGABYTE,  # phones put depth maps and a second image there, 2 to 10 MB
}
_KINDS = {b"iCCP": "ICC", b"eXIf": "EXIF", b"iTXt": "XMP", b"ICCP": "ICC", b"EXIF": "EXIF", b"XMP ": "XMP"}
_PREFIXES = {b"ICC_PROFILE\0": "ICC", b"Exif\0\0": "EXIF", b"http://ns.adobe.com/": "XMP"}
_ALONE = frozenset((0x01, *range(0xD0, 0xD9)))  # JPEG markers without a length
_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # JPEG markers that give the size
_MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")
# Other formats that Pillow may detect: TIFF, AVIF, JPEG 2000, PPM, ICO.
_OTHERS = re.compile(rb"II|MM|....ftyp|\x00\x00\x00\x0cjP|\xff\x4f|P[0-9a-zA-Z]|\x00\x00\x01\x00", re.DOTALL)
_BLOCK = 2**20
_HEAVY = 100_000  # bytes of EXIF: cross-references inside a larger block can expand to gigabytes

# Nanoseconds of processor time on one server core, rounded up. JPEG time depends on its bytes and on its scans.
_PER_PIXEL = {"JPEG": 1.0, "PNG": 25.0, "WEBP": 20.0, "GIF": 10.0, "BMP": 8.0}
_PER_BYTE = 10.0


class UnreadableError(Exception):
    """An image that cannot be read, with the reason and advice for the user."""


@dataclass
class ImageHeader:
    """The header of an image file."""

    format: str = ""  # JPEG, PNG, WEBP, GIF or BMP; "other" for other images; empty if it is not an image
    width: int = 0
    height: int = 0
    scans: int = 1
    parts: int = 0  # segments and chunks
    bytes: int = 0  # of the file
    metadata: dict[str, int] | None = None  # bytes of ICC, EXIF, XMP

    @property
    def seconds(self) -> float | None:
        """Expected decoding time in processor seconds; None if the header does not say."""
        if self.format == "other" or (self.metadata or {}).get("EXIF", 0) > _HEAVY:
            return None
        return 1e-9 * (
            _PER_PIXEL.get(self.format, 0.0) * self.width * self.height * self.scans + _PER_BYTE * self.bytes
        )

    def add(self, kind: str, size: int) -> None:
        """Count a part, and the bytes of metadata."""
        self.parts += 1
        if self.parts > PARTS + self.bytes // PART_BYTES:
            raise UnreadableError(
                f"it has more than {self.parts - 1} parts, as no camera or program writes it. Save it again."
            )
        if kind:
            self.metadata = self.metadata or {}
            self.metadata[kind] = self.metadata.get(kind, 0) + size
            if self.metadata[kind] > METADATA[kind]:
                raise UnreadableError(f"it has more than {METADATA[kind]} bytes of {kind} data. Save it without them.")


def read_header(stream: BinaryIO) -> ImageHeader:
    """Read and rewind the header of an image; raise ``UnreadableError`` if it exceeds a limit.

    The decoder reports truncated and damaged files.
    """
    header = ImageHeader(bytes=stream.seek(0, SEEK_END))
    stream.seek(0)
    start = stream.read(16)
    if _OTHERS.match(start):
        header.format = "other"
    for magic, format, read in _FORMATS:
        if start.startswith(magic) and (format != "WEBP" or start[8:12] == b"WEBP"):
            header.format = format
            stream.seek(len(magic))
            with contextlib.suppress(struct.error, IndexError):
                read(stream, header)
            break
    stream.seek(0)
    return header


def is_image_file(file: Path) -> bool:
    """Return whether content starts as JPEG, PNG, WebP or GIF."""
    try:
        with open_regular(file) as stream:
            start = stream.read(16)
    except OSError:
        return False
    return any(start.startswith(magic) for magic, kind, _ in _FORMATS if kind != "BMP")  # "BM" may begin a text


def _jpeg(stream: BinaryIO, header: ImageHeader) -> None:
    """Read the segments up to the first scan, then count the scans, unless the first one is the only one decoded."""
    colours = 0  # offset of the scans if not progressive
    while (mark := _next_marker(stream, header)) and mark != 0xD9:
        if mark in _ALONE:
            header.add("", 0)
            continue
        size = struct.unpack(">H", stream.read(2))[0] - 2
        content = stream.read(min(size, 32)) if size > 0 else b""
        if mark == 0xDA:
            if content[:1] != bytes([colours]):
                _count_scans(stream, header)
            break
        if mark in _SIZES:
            header.height, header.width = struct.unpack(">HH", content[1:5])
            colours = content[5] if mark in (0xC0, 0xC1) else 0
        variant_names = (name for prefix, name in _PREFIXES.items() if content.startswith(prefix))
        header.add(next(variant_names, "") if mark & 0xF0 == 0xE0 else "", size)  # of an application
        stream.seek(max(0, size - len(content)), SEEK_CUR)


def _next_marker(stream: BinaryIO, header: ImageHeader) -> int:
    """Return the next marker of a JPEG, 0 at the end; bytes between segments are counted."""
    while byte := stream.read(1):
        if byte == b"\xff":
            while (mark := stream.read(1)) == b"\xff":
                header.add("", 0)
            if mark != b"\0":
                return mark[0] if mark else 0
        header.add("", 0)
    return 0


def _count_scans(stream: BinaryIO, header: ImageHeader) -> None:
    """Count the scans: first everything that looks like one, which is fast; if too many, exactly."""
    start, seam, likely = stream.tell(), b"", 1
    while block := stream.read(_BLOCK):
        likely += block.count(b"\xff\xda") + (seam == b"\xff" and block[:1] == b"\xda")
        seam = block[-1:]
    if likely > SCANS:
        stream.seek(start)
        likely = _true_scans(stream.read())
    header.scans = likely
    if likely > SCANS:
        raise UnreadableError(f"it has more than {SCANS} scans, as no camera or program writes it. Save it again.")


def _true_scans(content: bytes) -> int:
    """Return the number of scans after the first scan header, at most one above the limit."""
    scans, at = 1, 0
    while scans <= SCANS and (marker := _MARKER.search(content, at)):
        mark = marker[1][0]
        if mark == 0xD9:
            break
        scans, at = scans + (mark == 0xDA), marker.end()
        if mark not in _ALONE:
            at += int.from_bytes(content[at : at + 2])
    return scans


def _png(stream: BinaryIO, header: ImageHeader) -> None:
    while len(head := stream.read(8)) == 8 and head[4:] != b"IEND":
        size = int.from_bytes(head[:4])
        if head[4:] == b"IHDR":
            header.width, header.height = struct.unpack(">II", stream.read(8))
            stream.seek(-8, SEEK_CUR)
        header.add(_KINDS.get(head[4:], ""), size)
        stream.seek(size + 4, SEEK_CUR)


def _webp(stream: BinaryIO, header: ImageHeader) -> None:
    stream.seek(12)
    while len(head := stream.read(8)) == 8:
        size, content = int.from_bytes(head[4:], "little"), b""
        if head[:3] == b"VP8" and not header.width:
            content = stream.read(10)
            header.width, header.height = _webp_size(head[3:4], content)
        header.add(_KINDS.get(head[:4], ""), size)
        stream.seek(size + size % 2 - len(content), SEEK_CUR)


def _webp_size(kind: bytes, content: bytes) -> tuple[int, int]:
    if kind == b"X":
        return 1 + int.from_bytes(content[4:7], "little"), 1 + int.from_bytes(content[7:10], "little")
    if kind == b"L":
        bits = int.from_bytes(content[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack("<HH", content[6:10])
    return width & 0x3FFF, height & 0x3FFF


def _gif(stream: BinaryIO, header: ImageHeader) -> None:
    """Read the blocks up to the first frame, which may exceed the screen."""
    width, height, flags = struct.unpack("<HHB", stream.read(9)[2:7])
    stream.seek(3 << (flags & 7) + 1 if flags & 128 else 0, SEEK_CUR)
    while (kind := stream.read(1)) and kind not in (b",", b";"):
        header.add("", 0)
        if kind == b"!":
            stream.seek(1, SEEK_CUR)
            while size := stream.read(1)[0]:
                header.add("", 0)
                stream.seek(size, SEEK_CUR)
    left, top, wide, high = struct.unpack("<HHHH", stream.read(8)) if kind == b"," else (0, 0, 0, 0)
    header.width, header.height = max(width, left + wide), max(height, top + high)


def _bmp(stream: BinaryIO, header: ImageHeader) -> None:
    content = stream.read(24)
    old = int.from_bytes(content[12:16], "little") == 12
    header.width, header.height = map(abs, struct.unpack_from("<HH" if old else "<ii", content, 16))


_FORMATS: tuple[tuple[bytes, str, Callable[[BinaryIO, ImageHeader], None]], ...] = (
    (b"\xff\xd8", "JPEG", _jpeg),
    (b"\x89PNG\r\n\x1a\n", "PNG", _png),
    (b"RIFF", "WEBP", _webp),
    (b"GIF8", "GIF", _gif),
    (b"BM", "BMP", _bmp),
)


SHAPE = (3, 224, 224)  # of images for fingerprints
SIDE = 16
Print = NDArray[np.float32]
Places = NDArray[np.float64]


def fingerprint(image: NDArray[np.uint8]) -> Print:
    """Return the grey thumbnail of an image ``[c, h, w]``, with mean zero and length one ``[a]``; zeros for uniform grey."""
    flat = area(image.sum(0, dtype=np.uint32), SIDE, SIDE).ravel() / len(image)
    flat = flat - flat.mean()
    size = float(np.sqrt((flat**2).sum()))
    return np.asarray(flat / size if size > SIDE else flat * 0, np.float32)  # less than a shade of grey on average


def area(grey: Places, height: int, width: int) -> Places:
    """Resize an image ``[h, w]``: each new pixel is the overlap-weighted mean of the pixels it covers."""
    rows, columns = _edges(grey.shape[0], height), _edges(grey.shape[1], width)
    strips = np.stack([grey[start:end].sum(0) for start, end in zip(*rows, strict=True)])
    boxes = np.stack([strips[:, start:end].sum(1) for start, end in zip(*columns, strict=True)], 1)
    return np.asarray(boxes / np.outer(*(end - start for start, end in (rows, columns))))


def _edges(size: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the start and end of each of ``count`` parts of a side."""
    at = np.arange(count)
    return at * size // count, -(-(at + 1) * size // count)
