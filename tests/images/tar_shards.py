"""Tar files to read: members as they are given, honest or not."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from tests.images.samples import png


def write_tar(path: Path, members: Mapping[str, bytes]) -> Path:
    """Write a tar file of regular members, and return where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def numbered(count: int, start: int = 0) -> dict[str, bytes]:
    """Pictures of one grey each, whose labels are the numbers 0 and 1 by turns."""
    members: dict[str, bytes] = {}
    for i in range(start, start + count):
        members |= {f"{i:04d}.png": png(i), f"{i:04d}.cls": str(i % 2).encode()}
    return members


def write_numbered(folder: Path, shards: int = 3, each: int = 8, name: str = "x") -> Path:
    """Write shards of numbered pictures and the names of their labels, and return the folder."""
    for shard in range(shards):
        write_tar(folder / f"{name}-{shard:03d}.tar", numbered(each, shard * each))
    (folder / "classnames.txt").write_text("even\nodd\n")
    return folder
