"""Faster decoding of progressive JPEGs at an eighth of their size: skip the scans that do not affect any pixel.

At an eighth an 8 x 8 block becomes one pixel, its first coefficient. So scans with the other coefficients of brightness, most of the
file, are skipped, except for the first: without it libjpeg would smooth the one pixel, too. Colour is often stored at half the
size, where an eighth is a quarter, so its scans stay.
"""

import re
from typing import Final

EIGHTH: Final = 8
START, END, SCAN, PROGRESSIVE, STUFFED = 0xD8, 0xD9, 0xDA, 0xC2, 0x00
FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # frame headers of all kinds of JPEG
ALONE: Final = frozenset((0x01, *range(0xD0, 0xD8)))  # markers without a length
MARKER: Final = re.compile(rb"\xff+[^\x00\xd0-\xd7\xff]")  # after the data of a scan


def without_details(content: bytes) -> bytes:
    """Remove the scans with brightness details from a progressive JPEG; return other content unchanged.

    A broken JPEG is returned unchanged too, so that its decoder reports the error.
    """
    parts, place, brightness = [content[:2]], 2, -1
    if content[:2] != bytes((0xFF, START)):
        return content
    while place + 4 <= len(content) and content[place] == 0xFF:
        kind = content[place + 1]
        if kind == END:
            return b"".join([*parts, content[place:]])
        if kind in ALONE or kind in (STUFFED, 0xFF):
            return content
        end = place + 2 + int.from_bytes(content[place + 2 : place + 4], "big")
        segment = content[place + 4 : end]
        if kind in FRAMES:
            if kind != PROGRESSIVE or len(segment) < 9 or segment[5] != 3:
                return content
            brightness = segment[6]
        keep = True
        if kind == SCAN:
            data_end = MARKER.search(content, end)
            if data_end is None or len(segment) < 6:
                return content
            end = data_end.start()
            details = segment[3] > 1 or (segment[3] == 1 and segment[5] >> 4 > 0)
            keep = not (segment[0] == 1 and segment[1] == brightness and details)
        if keep:
            parts.append(content[place:end])
        place = end
    if content[place : place + 2] == bytes((0xFF, END)):
        return b"".join([*parts, content[place:]])
    return content
