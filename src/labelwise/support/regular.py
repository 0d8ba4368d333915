"""The one way to open a file that a user names: only where it is a file, and only up to a limit.

A pipe or a socket would be waited for without end, a device such as ``/dev/zero`` has no end, and a sparse file may say that it has
a terabyte. ``tests/contract/test_opener.py`` finds other ways.
"""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

MAX_BYTES = 2**30  # of an image or a sound: 100 million pixels of four 16-bit values have 0.8 GB uncompressed
MAX_TEXT = 2**28  # of names, settings, a log
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class NotAFileError(OSError):
    """A path leads to something that is no file."""


def open_regular(path: str | Path, most: int | None = MAX_BYTES) -> BufferedReader:
    """Return the content of a file as a stream, or raise an ``OSError`` where it is no file or has more bytes than ``most``.

    Links are followed. What is no file is not opened: to open a device may do something, and to open a pipe waits.
    """
    _check(path, os.stat(path), most)
    stream = open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")  # noqa: SIM115
    try:
        _check(path, os.fstat(stream.fileno()), most)  # it may have been replaced meanwhile
    except OSError:
        stream.close()
        raise
    return stream


def read_regular(path: str | Path, most: int = MAX_BYTES) -> bytes:
    """Return the content of a file, as ``open_regular`` opens it."""
    with open_regular(path, most) as stream:
        return stream.read(most)  # it may grow


def read_text(path: str | Path, most: int = MAX_TEXT, encoding: str = "utf-8") -> str:
    """Return the text of a file, as ``open_regular`` opens it."""
    return read_regular(path, most).decode(encoding)


def regular_path(path: str | Path, most: int | None = None) -> str:
    """Return the path of a file for a library that opens it by itself, or raise what ``open_regular`` does."""
    _check(path, os.stat(path), most)
    return os.fspath(path)


def _check(path: str | Path, about: os.stat_result, most: int | None) -> None:
    if not stat.S_ISREG(about.st_mode):
        kind = _KINDS.get(stat.S_IFMT(about.st_mode), "something else")
        raise NotAFileError(errno.EINVAL, f"it is {kind}, not a file", os.fspath(path))
    if most is not None and about.st_size > most:
        raise OSError(errno.EFBIG, f"it has {about.st_size} bytes; the limit is {most}", os.fspath(path))
