"""An index of a gallery: which embeddings lie together, so that a search looks only where the best are likely to be.

Embeddings are divided into regions, each around a centre (k-means on the sphere), and a query looks through the regions whose
centres are nearest (an inverted file, by the package faiss). What is kept is the centres and the region of each embedding: plain
tensors, which follow the gallery row by row, so a row that is gone cannot be found. The lists that faiss searches are put
together from them and the embeddings when they are first needed.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.support.errors import UsageError
from labelwise.support.settings import brief

LOOKED_AT = 64  # regions that a query looks through
DRAWN = 40  # embeddings for each centre that the centres are found from
ROUNDS = 10  # of k-means
CHUNK = 2**24  # numbers held at a time
OUTGROWN = 2  # an index with so many times fewer regions than a new one would have is made again


@dataclass(frozen=True, eq=False, kw_only=True)
class Index:
    """The regions of a gallery's embeddings. Never changes."""

    centres: Tensor  # of unit length [c, d], float32 on the CPU
    regions: Tensor  # the row of the nearest centre for each embedding [m], int32
    digest: str  # what digest_of returned for the embeddings, the centres and the regions

    __repr__ = brief

    def __post_init__(self) -> None:
        shapes = self.centres.ndim == 2 and self.regions.ndim == 1 and self.regions.dtype == torch.int32
        if not shapes or (len(self.regions) and not 0 <= self.regions.min() <= self.regions.max() < len(self.centres)):
            raise UsageError(
                "An index needs centres [c, d] and for each embedding a region from 0 to c - 1, int32; given centres "
                f"{list(self.centres.shape)} and regions {list(self.regions.shape)}, {self.regions.dtype}."
            )

    @property
    def outgrown(self) -> bool:
        """Whether the gallery is now so large that other centres would make searching faster."""
        return region_count(len(self.regions)) >= OUTGROWN * len(self.centres)

    def extended(self, embeddings: Tensor) -> "Index":
        """Return the index of embeddings ``[m, d]`` of which it knows the first ones; the centres stay."""
        self.check(embeddings[: len(self.regions)])
        regions = torch.cat([self.regions, _nearest_centre(embeddings[len(self.regions) :], self.centres)])
        return _index(embeddings, self.centres, regions)

    def selected(self, embeddings: Tensor, rows: list[int]) -> "Index":
        """Return the index of some rows of these embeddings ``[m, d]``; the centres stay."""
        self.check(embeddings)
        return _index(embeddings[rows], self.centres, self.regions[rows])

    def check(self, embeddings: Tensor) -> None:
        """Raise an error unless this is the index of these embeddings ``[m, d]``."""
        shape = (len(self.regions), self.centres.shape[1])
        if embeddings.shape != shape or digest_of(embeddings, self.centres, self.regions) != self.digest:
            raise UsageError(
                f"The index of this gallery does not belong to its {len(embeddings)} embeddings: one of both was changed or is "
                "damaged. Make it anew: replace(gallery, index=None).with_index()."
            )


class Lists:
    """The embeddings of each region, ready for searching; queries look through the regions nearest to them."""

    def __init__(self, index: Index, embeddings: Tensor) -> None:
        faiss = need_faiss()
        from faiss.contrib.ivf_tools import add_preassigned

        index.check(embeddings)
        count, size = index.centres.shape
        near = faiss.IndexFlatIP(size)
        half = faiss.ScalarQuantizer.QT_fp16  # the scores that count are computed from the embeddings themselves
        self._lists = faiss.IndexIVFScalarQuantizer(near, size, count, half, faiss.METRIC_INNER_PRODUCT, False)
        near.add(index.centres.numpy())
        self._lists.train(index.centres.numpy())  # the centres are there: nothing is learnt
        self._lists.nprobe = min(LOOKED_AT, count)
        step = max(1, CHUNK // size)
        for part, regions in zip(torch.split(embeddings, step), torch.split(index.regions, step), strict=True):
            add_preassigned(self._lists, normalize(part, dim=1).numpy(), regions.long().numpy())

    def __len__(self) -> int:
        return int(self._lists.ntotal)

    def near(self, queries: Tensor, count: int) -> Tensor:
        """Return rows of the embeddings ``[n, count]`` for queries ``[n, d]``, best by cosine first; -1 where no more are found."""
        _, rows = self._lists.search(normalize(queries.float(), dim=1).cpu().numpy(), count)
        return torch.from_numpy(rows)


def make_index(embeddings: Tensor, seed: int = 0) -> Index:
    """Return an index of embeddings ``[m, d]``, float32 on the CPU."""
    faiss = need_faiss()
    if not len(embeddings) or not torch.isfinite(embeddings).all():
        raise UsageError(
            f"An index needs embeddings that are finite numbers; given {len(embeddings)} embeddings, or some that are not."
        )
    count = region_count(len(embeddings))
    drawn = torch.randperm(len(embeddings), generator=torch.Generator().manual_seed(seed))[: DRAWN * count]
    settings = {"niter": ROUNDS, "spherical": True, "seed": seed, "min_points_per_centroid": 1}
    means = faiss.Kmeans(embeddings.shape[1], count, max_points_per_centroid=DRAWN, **settings)
    means.train(normalize(embeddings[drawn], dim=1).numpy())
    centres = torch.from_numpy(means.centroids).clone()
    return _index(embeddings, centres, _nearest_centre(embeddings, centres))


def region_count(embeddings: int) -> int:
    """Return how many regions so many embeddings are divided into: a few times the root of their number."""
    return max(1, min(int(4 * embeddings**0.5), embeddings // DRAWN))


def digest_of(*tensors: Tensor) -> str:
    """Return a digest that is another one for other tensors."""
    digest = sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()


def need_faiss() -> Any:
    """Return the package faiss, or say what to install."""
    try:
        import faiss
    except ModuleNotFoundError:
        raise UsageError('An approximate search needs faiss: pip install "labelwise[search]".') from None
    return faiss


def _index(embeddings: Tensor, centres: Tensor, regions: Tensor) -> Index:
    return Index(centres=centres, regions=regions, digest=digest_of(embeddings, centres, regions))


def _nearest_centre(embeddings: Tensor, centres: Tensor) -> Tensor:
    """Return the row of the nearest centre for each embedding ``[m]``, int32."""
    parts = torch.split(embeddings, max(1, CHUNK // len(centres)))
    return torch.cat([(normalize(part, dim=1) @ centres.T).argmax(1) for part in parts]).int()
