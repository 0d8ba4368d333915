"""Digests of image files: of the content, of a crop, and a stamp that identifies an unchanged file without reading it."""

import hashlib
import os
import stat
import time
from pathlib import Path

from PIL import Image

from labelwise.images.decode.crops import Crop
from labelwise.images.decode.decoding import File
from labelwise.images.images import Unreadable
from labelwise.support.cache import digest
from labelwise.support.files import open_regular

Content = File | Image.Image | Crop
FRESH = 2e9  # nanoseconds: a file changed this recently may change again within one clock tick


def content_digest(content: Content | Unreadable) -> bytes:
    """Return the digest of a file's content; an unreadable file gets a unique one."""
    if isinstance(content, Unreadable):
        return digest(b"unreadable", content.reason.encode())
    if isinstance(content, Crop):
        return crop_digest(content_digest(content.file), content)
    if isinstance(content, bytes):
        return hashlib.blake2b(content, digest_size=16).digest()
    if isinstance(content, Image.Image):
        return digest(repr((content.mode, content.size)).encode(), content.tobytes())
    try:
        with open_regular(content) as file:
            state = hashlib.blake2b(digest_size=16)
            while part := file.read(2**20):
                state.update(part)
            return state.digest()
    except OSError:
        return digest(b"unreadable", os.fsencode(content))


def crop_digest(whole: bytes, crop: Crop) -> bytes:
    """Return the digest of a part of a file that has the digest ``whole``."""
    return digest(whole, repr(crop.box if crop.seconds is None else crop[1:]).encode())


def file_stamp(path: str | Path) -> bytes:
    """Return the identity of an unchanged file: path, size and times. Empty if the file changed just now or is not regular."""
    try:
        about = os.stat(path)
    except OSError:
        return b""
    if not stat.S_ISREG(about.st_mode) or time.time_ns() - max(about.st_mtime_ns, about.st_ctime_ns) < FRESH:
        return b""
    numbers = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    return digest(os.fsencode(os.path.abspath(path)), repr(numbers).encode())
