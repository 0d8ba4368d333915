"""A disk whose calls fail one after the other: the first try fails at the first call, the second at the second one, and so on."""

import builtins
import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CALLS = (
    "stat", "lstat", "open", "mkdir", "rmdir", "rename", "replace", "unlink", "symlink", "listdir", "scandir", "fsync", "chmod",
)  # fmt: skip
MOST = 400


class Disk:
    """Counts the calls about files below a folder; one of them fails, or all from it on."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count, self.at, self.lasting, self.error = str(folder), 0, 0, False, errno.EIO

    def wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a call that may fail."""

        def attempt(first: Any, *args: Any, **kwargs: Any) -> Any:
            named = args[0] if call is os.symlink else first
            path = os.readlink(f"/proc/self/fd/{named}") if isinstance(named, int) else os.fsdecode(named)
            if path.startswith(self.folder):
                self.count += 1
                if self.count == self.at or (self.lasting and 0 < self.at < self.count):
                    raise OSError(self.error, os.strerror(self.error), path)
            return call(first, *args, **kwargs)

        return attempt

    def tries(self, *errors: int) -> Iterator[str]:
        """Fail at each call in turn, once and from it on, until a try makes fewer calls; yield what fails."""
        for error in errors:
            for self.lasting in (False, True):
                for at in range(1, MOST):
                    self.count, self.at, self.error = 0, at, error
                    yield f"{os.strerror(error)} at call {at}{' and later' if self.lasting else ''}"
                    reached, self.at = self.count >= at, 0
                    if not reached:
                        break


@contextmanager
def failing_disk(folder: Path) -> Iterator[Disk]:
    """Yield a disk that fails below a folder."""
    disk = Disk(folder)
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, disk.wrapped(getattr(os, name)))
        opened = disk.wrapped(io.open)
        patch.setattr(io, "open", opened)
        patch.setattr(builtins, "open", opened)
        yield disk
