"""Sort images into one folder per answer: copies or links, recorded so that a later sort replaces an earlier one.

No file is moved, no other file is overwritten or removed, and no link is followed: anyone who can write to the folder could
plant one.
"""

import filecmp
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from labelwise.support.errors import DataError, UsageError
from labelwise.support.file_names import ANSWERS, RECORD, numbered, read_record
from labelwise.support.files import MAX_BYTES, regular_path
from labelwise.support.writable import write_atomically

UNKNOWN, UNSURE, NONE = "unknown", "unsure", "none"  # answers other than labels; each has its folder


def check_sorted(root: Path, source: str = ANSWERS) -> None:
    """Raise an error unless a folder is new, empty, or filled by an earlier command from the same source."""
    if not root.is_dir() or not any(root.iterdir()) or read_record(root).get("source") == source:
        return
    raise UsageError(f'"{root}" exists and was not written by this verb. Choose another folder.')


@dataclass
class Sorter:
    """Puts images into one folder per answer, after removing an earlier sort."""

    root: Path
    folders: Mapping[str, str]  # the name of the folder of each answer
    link: bool = False
    source: str = ANSWERS  # the source of the folders
    placed: dict[str, tuple[int, int]] = field(default_factory=dict)  # size and modification time by path

    def __post_init__(self) -> None:
        """Remove the files of an earlier sort that nobody changed since."""
        check_sorted(self.root, self.source)
        earlier = read_record(self.root).get("placed", {})
        for name, state in earlier.items() if isinstance(earlier, dict) else ():
            place = self.root / name
            if _is_below(self.root, name) and not place.parent.is_symlink() and _state(place) == tuple(state):
                place.unlink()
                with suppress(OSError):
                    place.parent.rmdir()
        self.root.mkdir(parents=True, exist_ok=True)
        self._record({})

    def place(self, file: str, word: str, name: str = "") -> None:
        """Put an image into the folder of its answer; an equal file that is already there stays."""
        source, home = Path(file), self.root / self.folders[word]
        try:
            if home.is_symlink():
                raise DataError(
                    f'"{home}" is a link, and images are written only to real folders. Remove it, or choose another folder.'
                )
            home.mkdir(exist_ok=True)
            target = next(
                home / candidate
                for candidate in numbered(name or source.name)
                if self._place_file(source, home / candidate)
            )
            state = _state(target)
        except OSError as error:
            self._record({})
            raise DataError(
                f'Cannot put "{source}" into "{home}": {error.strerror}. Fix this and run the command again; it starts over.'
            ) from None
        if state is not None:
            self.placed[f"{home.name}/{target.name}"] = state

    def finish(self, model: str) -> None:
        """Save the record of placed files."""
        self._record({"model": model})

    def _record(self, entries: Mapping[str, str]) -> None:
        document = {"source": self.source, **entries, "placed": self.placed}
        write_atomically(self.root / RECORD, json.dumps(document, indent=0).encode("utf-8", "replace"))

    def _place_file(self, source: Path, target: Path) -> bool:
        """Put the image at the target; return False if another file has that name."""
        if os.path.lexists(target):
            if target.is_symlink() or not target.is_file():
                return self.link and target.is_symlink() and os.readlink(target) == str(source.resolve())
            return not self.link and filecmp.cmp(source, target, shallow=False)
        if self.link:
            with suppress(FileExistsError):
                os.symlink(source.resolve(), target)
                return True
            return False
        handle, part = tempfile.mkstemp(prefix=".", suffix=".part", dir=target.parent)  # a new file, never a link
        os.close(handle)
        try:
            shutil.copy2(regular_path(source, MAX_BYTES), part)
            _name_unused(Path(part), target)
        except FileExistsError:
            return False
        finally:
            Path(part).unlink(missing_ok=True)
        return True


def _is_below(root: Path, name: str) -> bool:
    """Return whether a recorded name is a file in a folder of the root, since records may be forged."""
    parts = Path(name).parts
    return len(parts) == 2 and ".." not in parts and not Path(name).is_absolute() and root.is_dir()


def _state(file: Path) -> tuple[int, int] | None:
    """Return size and modification time of a file (of a link itself), or None."""
    try:
        stat = file.lstat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns


def _name_unused(part: Path, target: Path) -> None:
    """Rename a file, or raise ``FileExistsError``; not atomic on disks without hard links."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise
    except OSError:
        if os.path.lexists(target):
            raise FileExistsError(target) from None
        os.rename(part, target)
