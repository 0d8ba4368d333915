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

LOOKED_AT = 64  # regions searched per query
DRAWN = 40  # sample embeddings per centre, to fit the centres
ROUNDS = 10  # of k-means
CHUNK = 2**24  # numbers in memory at a time
OUTGROWN = 2  # rebuild the index if it has this many times fewer regions than a new one


@dataclass(frozen=True, eq=False, kw_only=True)
class Index:
    """The regions of a gallery's embeddings. Immutable."""

    centres: NDArray[np.float32]  # unit length [c, d]
    regions: NDArray[np.int32]  # the nearest centre of each embedding [m], int32
    digest: str  # digest_of the embeddings, the centres and the regions

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
        """Whether the gallery has grown so much that new centres would search faster."""
        return region_count(len(self.regions)) >= OUTGROWN * len(self.centres)

    def extended(self, embeddings: NDArray[np.float32]) -> "Index":
        """Extend the index to all embeddings ``[m, d]``; the centres stay."""
        self.check(embeddings[: len(self.regions)])
        regions = np.concatenate([self.regions, _nearest_centre(embeddings[len(self.regions) :], self.centres)])
        return _index(embeddings, self.centres, regions)

    def select(self, embeddings: NDArray[np.float32], rows: list[int]) -> "Index":
        """Return the index of a subset of the embeddings ``[m, d]``; the centres stay."""
        self.check(embeddings)
        return _index(embeddings[rows], self.centres, self.regions[rows])

    def check(self, embeddings: NDArray[np.float32]) -> None:
        """Raise an error unless the index belongs to these embeddings ``[m, d]``."""
        shape = (len(self.regions), self.centres.shape[1])
        if embeddings.shape != shape or digest_of(embeddings, self.centres, self.regions) != self.digest:
            raise UsageError(
                f"The index of this gallery does not match its {len(embeddings)} embeddings: one of them was changed or is "
                "damaged. Rebuild the index: replace(gallery, index=None).with_index()."
            )


class Lists:
    """The embeddings by region; a query searches the regions nearest to it."""

    def __init__(self, index: Index, embeddings: NDArray[np.float32]) -> None:
        faiss = need_faiss()
        from faiss.contrib.ivf_tools import add_preassigned

        index.check(embeddings)
        count, size = index.centres.shape
        near = faiss.IndexFlatIP(size)
        half = faiss.ScalarQuantizer.QT_fp16  # final scores are computed from the embeddings
        self._lists = faiss.IndexIVFScalarQuantizer(near, size, count, half, faiss.METRIC_INNER_PRODUCT, False)
        near.add(index.centres)
        self._lists.train(index.centres)  # the centres are given, so nothing is trained
        self._lists.nprobe = min(LOOKED_AT, count)
        step = max(1, CHUNK // size)
        for start in range(0, len(embeddings), step):
            part = slice(start, start + step)
            add_preassigned(self._lists, unit_rows(embeddings[part]), index.regions[part].astype(np.int64))

    def __len__(self) -> int:
        return int(self._lists.ntotal)

    def near(self, queries: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """Return rows of the embeddings ``[n, count]`` for queries ``[n, d]``, best cosine first, padded with -1."""
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
    sample = Draws(0).permutation(len(embeddings))[: DRAWN * count]
    settings = {"niter": ROUNDS, "spherical": True, "seed": 0, "min_points_per_centroid": 1}
    means = faiss.Kmeans(embeddings.shape[1], count, max_points_per_centroid=DRAWN, **settings)
    means.train(unit_rows(embeddings[sample]))
    centres = means.centroids.copy()
    return _index(embeddings, centres, _nearest_centre(embeddings, centres))


def region_count(embeddings: int) -> int:
    """Return the number of regions for this many embeddings: a few times the square root."""
    return max(1, min(int(4 * embeddings**0.5), embeddings // DRAWN))


def digest_of(*arrays: NDArray[Any]) -> str:
    """Return a digest of arrays."""
    digest = sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {list(array.shape)}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def need_faiss() -> Any:
    """Import faiss, or say what to install."""
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
