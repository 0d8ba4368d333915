"""Features of images: the only place that calls an encoder outside training.

One thread reads, decodes and encodes an image; several threads run in parallel. So features depend on the image alone.
They are bit-identical whether computed alone, among others, or read from the cache.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import PIL

from labelwise.encoders.encoder import Encoder, Precomputed
from labelwise.encoders.joined import JoinedEncoder
from labelwise.images.decode.decoding import QUIET
from labelwise.images.images import Array, Images, Rows, Skipped, Unreadable, positions, read_all
from labelwise.images.view import Fit
from labelwise.support.cache import Cache, digest, is_on
from labelwise.support.processes import begin_all, cancel_on_error, threads
from labelwise.support.settings import brief
from labelwise.support.text import with_bar

FORM: Final = 3  # of the feature cache; changes whenever decoding changes
FLUSH: Final = 256  # images of one write to the cache
AHEAD: Final = 4096  # pieces of work queued for threads at a time

Row = npt.NDArray[np.float32]
Result = Row | Unreadable


@dataclass(frozen=True, eq=False)
class Features:
    """The features of the readable images."""

    values: npt.NDArray[np.float32]  # [m, d]
    rows: npt.NDArray[np.int64]  # positions of these images [m], ascending
    ids: Sequence[str]  # name of each [m]
    digests: Sequence[bytes]  # digest of the content of each [m]
    encoder_id: str
    skipped: tuple[Skipped, ...] = ()  # images that could not be read

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class ImagesWithFeatures:
    """Images with precomputed features: the same encoder returns these."""

    images: Images
    features: Features  # of all of the images

    __repr__ = brief

    @classmethod
    def readable(cls, images: Images, features: Features) -> Self:
        """Return the readable images."""
        rows = np.arange(len(features), dtype=np.int64)
        return cls(images.select(features.rows), replace(features, rows=rows, skipped=()))

    def __len__(self) -> int:
        return len(self.images)

    @property
    def ids(self) -> Sequence[str]:
        """The name of each image."""
        return self.images.ids

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of all, if they have one."""
        return self.images.shape

    def digests(self) -> Sequence[bytes]:
        """Return 16 bytes for the content of each."""
        return self.features.digests

    def read(self, rows: Rows, shape: tuple[int, ...], fit: Fit = "crop") -> list[Array | Unreadable]:
        """Return images of a shape."""
        return self.images.read(rows, shape, fit)

    def select(self, rows: Rows) -> Self:
        """Return these rows, in this order."""
        at, known = positions(rows), self.features
        some = replace(
            known,
            values=known.values[at],
            rows=np.arange(len(at), dtype=np.int64),
            ids=[known.ids[row] for row in at],
            digests=[known.digests[row] for row in at],
        )
        return type(self)(self.images.select(at), some)


def encode(
    encoder: Encoder, images: Images, *, cache: bool = True, workers: int | None = None, progress: bool = True
) -> Features:
    """Return the features of images, without the unreadable ones.

    Args:
        encoder: the encoder.
        images: any source of images, or of precomputed feature rows, which are returned unchanged.
        cache: read features from the user's cache, and add missing ones to it.
        workers: number of threads; None: ``limits.threads``.
        progress: show a progress bar if standard error is a terminal.
    """
    if isinstance(images, ImagesWithFeatures) and images.features.encoder_id == encoder.id:
        return images.features
    if isinstance(encoder, JoinedEncoder):
        parts = [encode(each, images, cache=cache, workers=workers, progress=progress) for each in encoder.parts]
        return replace(parts[0], values=encoder.join([each.values for each in parts]), encoder_id=encoder.id)
    digests, ids = images.digests(), images.ids
    if isinstance(encoder, Precomputed):
        values = read_all(images, encoder.shape)
        return Features(values=values, rows=np.arange(len(values)), ids=ids, digests=digests, encoder_id=encoder.id)
    first: dict[bytes, int] = {}
    for row, key in enumerate(digests):
        first.setdefault(key, row)
    store = _Store(encoder, on=cache and is_on() and getattr(encoder, "cacheable", True))
    known: dict[bytes, Result] = {**store.read(list(first))}
    missing = [row for key, row in first.items() if key not in known]
    results = _encoded(encoder, images, missing, workers)
    try:
        for row, result in with_bar(results, len(missing), "Encoding images") if progress else results:
            known[digests[row]] = result
            if not isinstance(result, Unreadable):
                store.add(digests[row], result)
    finally:  # what was encoded before an interruption is not lost
        store.flush()
    good = {key: one for key, one in known.items() if not isinstance(one, Unreadable)}
    rows = [row for row, key in enumerate(digests) if key in good]
    values = np.empty((len(rows), encoder.width), np.float32)
    for place, row in enumerate(rows):
        values[place] = good[digests[row]]
    faults = ((ids[row], known[key]) for row, key in enumerate(digests))
    return Features(
        values=values,
        rows=np.array(rows, np.int64),
        ids=[ids[row] for row in rows],
        digests=[digests[row] for row in rows],
        encoder_id=encoder.id,
        skipped=tuple(Skipped(file=name, reason=one.reason) for name, one in faults if isinstance(one, Unreadable)),
    )


def _encoded(
    encoder: Encoder, images: Images, rows: Sequence[int], workers: int | None
) -> Iterator[tuple[int, Result]]:
    """Yield rows and their features, in order."""
    size = getattr(encoder, "batch", 1)
    pieces = [rows[start : start + size] for start in range(0, len(rows), size)]
    work, count = partial(_piece, encoder, images), min(workers or threads(), len(pieces))
    with QUIET:
        if count < 2:
            for piece in pieces:
                yield from work(piece)
            return
        with cancel_on_error(ThreadPoolExecutor(count)) as pool:
            for start in range(0, len(pieces), AHEAD):
                for future in begin_all(pool, work, pieces[start : start + AHEAD]):
                    yield from future.result()


def _piece(encoder: Encoder, images: Images, rows: Sequence[int]) -> list[tuple[int, Result]]:
    """Return rows and their features: one image, or a batch if the encoder prefers it."""
    read = images.read(rows, encoder.shape, encoder.fit)
    results: dict[int, Result] = {row: one for row, one in zip(rows, read, strict=True) if isinstance(one, Unreadable)}
    good = [(row, one) for row, one in zip(rows, read, strict=True) if not isinstance(one, Unreadable)]
    if good:
        features = encoder(np.stack([one for _, one in good]))
        results |= {row: each for (row, _), each in zip(good, features, strict=True)}
    return [(row, results[row]) for row in rows]


class _Store:
    """The features of one encoder in the user's cache."""

    def __init__(self, encoder: Encoder, *, on: bool) -> None:
        form = (FORM, encoder.id, encoder.runtime, encoder.shape, encoder.fit, PIL.__version__)
        self._space, self._name, self._width, self._on = digest(repr(form).encode()), encoder.name, encoder.width, on
        self._cache = Cache()
        self._fresh: dict[bytes, bytes] = {}

    def read(self, keys: Sequence[bytes]) -> dict[bytes, Row]:
        """Return features by digest."""
        return self._cache.read_rows(self._space, keys, self._width) if self._on else {}

    def add(self, key: bytes, row: Row) -> None:
        """Add the features of an image; write several images at a time."""
        if self._on:
            self._fresh[key] = row.tobytes()
            if len(self._fresh) >= FLUSH:
                self.flush()

    def flush(self) -> None:
        """Write the added features."""
        fresh, self._fresh = self._fresh, {}
        self._cache.write(self._space, fresh, self._name)
