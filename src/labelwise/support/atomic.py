"""Files written whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path


def write_atomically(path: Path, *content: bytes | memoryview, keep: Path | None = None) -> None:
    """Write a file so that a reader sees the old content or the new, never a part, even after a crash.

    ``content`` is written one piece after another; ``keep`` is where the file that is replaced goes.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    try:
        with part.open("xb") as file:  # a new file: a link that somebody planted is not followed
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        if keep is not None and path.exists():
            os.replace(path, keep)
        os.replace(part, path)
        sync_folder(path.parent)
    finally:
        with suppress(OSError):  # where the disk is read-only there is none
            part.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to disk, as after a rename; some file systems cannot."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            os.fsync(directory)
    finally:
        os.close(directory)
