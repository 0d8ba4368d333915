"""Tables of observations and the photos that a person downloaded: nothing is fetched, photos are recognised by their names.

Downloads have no agreed names for photos. A photo belongs to the one observation that its path, its name, a number in its name or the
folder that it is in identifies: ``1234567.jpg``, ``1234567_2.jpg``, ``Parus major 1234567.jpg``, ``photos/1234567/original.jpg``.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from labelwise.images.formats.annotations import Annotations, Record, shaped
from labelwise.images.sources.paths import list_images
from labelwise.support.errors import DataError

_NUMBERS = re.compile(r"\d{4,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SEVERAL = ""  # marks a name of more than one observation


class Taxon(NamedTuple):
    """What an observation is of."""

    label: str
    ranks: tuple[str, ...]  # as ``taxonomy.ranks_of`` returns them


class Photos:
    """The photos in a folder and below it, and the observation that each belongs to."""

    def __init__(self, home: Path) -> None:
        self._names = {file: _names(file.relative_to(home)) for file in list_images(home)}
        self._homes: dict[str, str | None] = {name: None for names in self._names.values() for name in names}

    def match(self, observation: str, names: Iterable[str]) -> bool:
        """Note that an observation has these names, and return whether a photo has one of them."""
        known = [name for name in map(str.casefold, names) if name in self._homes]
        for name in known:
            self._homes[name] = observation if self._homes[name] in (None, observation) else SEVERAL
        return bool(known)

    @property
    def observations(self) -> dict[Path, str]:
        """The observation of each photo that has one: that of the first of its names that is of one alone."""
        homes = {file: [self._homes[name] for name in names] for file, names in self._names.items()}
        return {file: next(filter(None, each)) for file, each in homes.items() if any(each)}


def _names(file: Path) -> list[str]:
    """Return what tables may call a photo, the surest first."""
    stem = file.stem.casefold()
    parts = [part.casefold() for part in file.parts]
    return list(
        dict.fromkeys(["/".join(parts), "/".join(parts[-2:]), parts[-1], stem, *_NUMBERS.findall(stem), *parts[-2:-1]])
    )


def names_in(address: str) -> list[str]:
    """Return the names that a photo from a web address may have: its last parts, the number of its folder, or a hash."""
    parts = PurePosixPath(unquote(urlsplit(address).path)).parts[-2:]
    if not address or not parts:
        return []
    hashes = [hashlib.new(kind, address.encode(), usedforsecurity=False).hexdigest() for kind in ("sha1", "md5")]
    return [address, "/".join(parts), parts[-1], PurePosixPath(parts[-1]).stem, *parts[:-1], *hashes]


@dataclass(frozen=True, kw_only=True)
class Download(Annotations):
    """Tables whose records are the photos that are here."""

    words: str  # how errors call the format
    read: Callable[[Photos], Mapping[str, Taxon]]  # matches photos with observations, and returns what these are of

    def located(self, root: Path | None = None, *, outside: bool = False) -> Iterator[tuple[str, Record]]:  # noqa: ARG002 - photos are here in any case
        """Yield the path of each photo that an observation is of, and its record; photos of one observation are a group."""
        home = root or self.home
        photos = Photos(home)
        with shaped(self.source, self.words):
            taxa = self.read(photos)
        files = {file: one for file, one in photos.observations.items() if one in taxa}
        if not files:
            raise DataError(
                f'No photo of "{self.source}" is in "{home}" or below it, and nothing is downloaded. Download the photos into that folder, '
                "or name theirs: --data-root FOLDER in the shell, root=FOLDER in Python. A photo is recognised by the number of its "
                "observation or its own, or by the last part of its address: 1234567.jpg, 1234567_2.jpg."
            )
        count = Counter(files.values())
        for file, one in files.items():
            label, ranks = taxa[one]
            group = one if count[one] > 1 else ""
            yield str(file), Record(file=file.name, labels=(label,) if label else None, ranks=ranks, group=group)
