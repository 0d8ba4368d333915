"""An index for approximate search in a gallery: an inverted file of the package faiss.

Spherical k-means divides embeddings into regions, and a query looks through the regions whose centres are nearest. The index is
the centres and the region of each embedding, arrays that follow the gallery row by row, so a removed row cannot be found. The
lists that faiss searches are built from them and the embeddings when they are first needed.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.support.errors import UsageError
from labelwise.support.rows import Draws, unit_rows
from labelwise.support.settings import brief

LOOKED_AT = 64  # regions that a query looks through
DRAWN = 40  # embeddings for each centre that the centres are found from
ROUNDS = 10  # of k-means
CHUNK = 2**24  # numbers held at a time
OUTGROWN = 2  # an index with so many times fewer regions than a new one would have is made again


@dataclass(frozen=True, eq=False, kw_only=True)
class Index:
    """The regions of a gallery's embeddings. Immutable."""

    centres: NDArray[np.float32]  # of unit length [c, d]
    regions: NDArray[np.int32]  # the row of the nearest centre for each embedding [m], int32
    digest: str  # what digest_of returned for the embeddings, the centres and the regions

    __repr__ = brief

    def __post_init__(self) -> None:
        shapes = self.centres.ndim == 2 and self.regions.ndim == 1 and self.regions.dtype == np.int32
        if not shapes or (len(self.regions) and not 0 <= self.regions.min() <= self.regions.max() < len(self.centres)):
            raise UsageError(
                "An index needs centres [c, d] and for each embedding a region from 0 to c - 1, int32; given centres "
                f"{list(self.centres.shape)} and regions {list(self.regions.shape)}, {self.regions.dtype}."
            )

    @property
    def outgrown(self) -> bool:
        """Whether the gallery is now so large that other centres would make searching faster."""
        return region_count(len(self.regions)) >= OUTGROWN * len(self.centres)

    def extended(self, embeddings: NDArray[np.float32]) -> "Index":
        """Return the index of embeddings ``[m, d]`` of which it knows the first ones; the centres stay."""
        self.check(embeddings[: len(self.regions)])
        regions = np.concatenate([self.regions, _nearest_centre(embeddings[len(self.regions) :], self.centres)])
        return _index(embeddings, self.centres, regions)

    def selected(self, embeddings: NDArray[np.float32], rows: list[int]) -> "Index":
        """Return the index of some rows of these embeddings ``[m, d]``; the centres stay."""
        self.check(embeddings)
        return _index(embeddings[rows], self.centres, self.regions[rows])

    def check(self, embeddings: NDArray[np.float32]) -> None:
        """Raise an error unless this is the index of these embeddings ``[m, d]``."""
        shape = (len(self.regions), self.centres.shape[1])
        if embeddings.shape != shape or digest_of(embeddings, self.centres, self.regions) != self.digest:
            raise UsageError(
                f"The index of this gallery does not match its {len(embeddings)} embeddings: one of them was changed or is "
                "damaged. Rebuild the index: replace(gallery, index=None).with_index()."
            )


class Lists:
    """The embeddings of each region, ready for searching; queries look through the regions nearest to them."""

    def __init__(self, index: Index, embeddings: NDArray[np.float32]) -> None:
        faiss = need_faiss()
        from faiss.contrib.ivf_tools import add_preassigned

        index.check(embeddings)
        count, size = index.centres.shape
        near = faiss.IndexFlatIP(size)
        half = faiss.ScalarQuantizer.QT_fp16  # the scores that count are computed from the embeddings themselves
        self._lists = faiss.IndexIVFScalarQuantizer(near, size, count, half, faiss.METRIC_INNER_PRODUCT, False)
        near.add(index.centres)
        self._lists.train(index.centres)  # the centres are there: nothing is learnt
        self._lists.nprobe = min(LOOKED_AT, count)
        step = max(1, CHUNK // size)
        for start in range(0, len(embeddings), step):
            part = slice(start, start + step)
            add_preassigned(self._lists, unit_rows(embeddings[part]), index.regions[part].astype(np.int64))

    def __len__(self) -> int:
        return int(self._lists.ntotal)

    def near(self, queries: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """Return rows of the embeddings ``[n, count]`` for queries ``[n, d]``, best by cosine first; -1 where no more are found."""
        rows: NDArray[np.int64] = self._lists.search(unit_rows(queries), count)[1]
        return rows


def make_index(embeddings: NDArray[np.float32]) -> Index:
    """Return an index of embeddings ``[m, d]``."""
    faiss = need_faiss()
    if not len(embeddings) or not np.isfinite(embeddings).all():
        raise UsageError(
            f"An index needs embeddings that are finite numbers; given {len(embeddings)} embeddings, or some that are not."
        )
    count = region_count(len(embeddings))
    drawn = Draws(0).permutation(len(embeddings))[: DRAWN * count]
    settings = {"niter": ROUNDS, "spherical": True, "seed": 0, "min_points_per_centroid": 1}
    means = faiss.Kmeans(embeddings.shape[1], count, max_points_per_centroid=DRAWN, **settings)
    means.train(unit_rows(embeddings[drawn]))
    centres = means.centroids.copy()
    return _index(embeddings, centres, _nearest_centre(embeddings, centres))


def region_count(embeddings: int) -> int:
    """Return how many regions so many embeddings are divided into: a few times the root of their number."""
    return max(1, min(int(4 * embeddings**0.5), embeddings // DRAWN))


def digest_of(*arrays: NDArray[Any]) -> str:
    """Return a digest that differs for other arrays."""
    digest = sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {list(array.shape)}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def need_faiss() -> Any:
    """Return the package faiss, or say what to install."""
    try:
        import faiss
    except ModuleNotFoundError:
        raise UsageError('An approximate search needs faiss: pip install "labelwise[search]".') from None
    return faiss


def _index(embeddings: NDArray[np.float32], centres: NDArray[np.float32], regions: NDArray[np.int32]) -> Index:
    return Index(centres=centres, regions=regions, digest=digest_of(embeddings, centres, regions))


def _nearest_centre(embeddings: NDArray[np.float32], centres: NDArray[np.float32]) -> NDArray[np.int32]:
    """Return the row of the nearest centre for each embedding ``[m]``."""
    step, rows = max(1, CHUNK // len(centres)), np.empty(len(embeddings), np.int32)
    for start in range(0, len(embeddings), step):
        part = slice(start, start + step)
        rows[part] = (unit_rows(embeddings[part]) @ centres.T).argmax(1)
    return rows
