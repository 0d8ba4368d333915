"""Files opened only where they are files: a pipe, a device or a socket in a folder would be waited for without end."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

MAX_BYTES = 2**30  # of a picture or a sound: 100 million pixels of four 16-bit values have 0.8 GB uncompressed
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class NotAFileError(OSError):
    """A path leads to something that is no file."""


def open_regular(path: str | Path, most: int | None = MAX_BYTES) -> BinaryIO:
    """Return the content of a file as a stream, or raise an ``OSError`` where it is no file or has more bytes than ``most``.

    Links are followed. What is no file is not opened: to open a device may do something, and to open a pipe waits.
    """
    _check(os.stat(path), most)
    stream = os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")
    try:
        _check(os.fstat(stream.fileno()), most)  # it may have been replaced meanwhile
    except OSError:
        stream.close()
        raise
    return stream


def read_regular(path: str | Path, most: int = MAX_BYTES) -> bytes:
    """Return the content of a file, as ``open_regular`` opens it."""
    with open_regular(path, most) as stream:
        return stream.read(most)  # it may grow


def _check(about: os.stat_result, most: int | None) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise NotAFileError(
            errno.EINVAL, f"it is {_KINDS.get(stat.S_IFMT(about.st_mode), 'something else')}, not a file"
        )
    if most is not None and about.st_size > most:
        raise OSError(errno.EFBIG, f"it has {about.st_size} bytes; the limit is {most}")
