"""Contents of images by row, out of blocks that are opened when a row of theirs is asked for: shards, or parts of them."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from labelwise.support.errors import DataError, UsageError

Numbers = npt.NDArray[np.int64]
VARIABLE = "LABELWISE_SHARDS_GB"
DISK = 8.0  # gigabytes of copies of shards that are kept at a time, unless the variable says otherwise
FILES = 64  # blocks that are open at a time


@dataclass(frozen=True, eq=False, kw_only=True)
class Block:
    """Rows that are fetched together."""

    rows: int
    fetch: Callable[[], "Content"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Content:
    """A file of this machine, and the position of each row's image in it; its size is -1 where there is none."""

    file: BinaryIO
    starts: Numbers
    sizes: Numbers
    copied: int = 0  # bytes of disk that it takes, because it is a copy


class Blocks:
    """The contents of all rows of some blocks, one after another; several threads may ask."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = blocks
        self._first = np.cumsum([0, *(block.rows for block in blocks)])
        self._open: OrderedDict[int, Content] = OrderedDict()
        self._lock = threading.Lock()
        words = os.environ.get(VARIABLE)
        self._most = DISK * 1e9
        if words:
            with suppress(ValueError):
                self._most = float(words) * 1e9 if float(words) > 0 else 0.0
            if not self._most:
                raise UsageError(f"{VARIABLE} must be a number of gigabytes above 0; given {words!r:.40}.")

    def __reduce__(self) -> "tuple[type[Blocks], tuple[Sequence[Block]]]":
        return Blocks, (self._blocks,)  # another process opens blocks itself

    def read(self, rows: Sequence[int]) -> list[bytes]:
        """Return the content of each image; empty where there is none."""
        at = np.asarray(rows, np.int64)
        places = np.searchsorted(self._first, at, "right") - 1
        contents = [b""] * len(at)
        for place in np.unique(places).tolist():
            with self._lock:
                block = self._content(place)
                for i in np.flatnonzero(places == place).tolist():
                    row = int(at[i] - self._first[place])
                    if block.sizes[row] > 0:
                        contents[i] = os.pread(block.file.fileno(), int(block.sizes[row]), int(block.starts[row]))
        return contents

    def _content(self, place: int) -> Content:
        """Return an open block; those used longest ago are closed where too many are."""
        if place in self._open:
            self._open.move_to_end(place)
            return self._open[place]
        content = self._blocks[place].fetch()
        if len(content.sizes) != self._blocks[place].rows:
            content.file.close()
            raise DataError("A shard was changed while it was being used. Run the command again.")
        self._open[place] = content
        while len(self._open) > 1 and (
            len(self._open) > FILES or sum(each.copied for each in self._open.values()) > self._most
        ):
            self._open.popitem(last=False)[1].file.close()
        return content

    def __del__(self) -> None:
        for content in self._open.values():
            content.file.close()
