"""An index of a gallery: which codes lie together, so that a search looks only where the best are likely to be.

Codes are divided into regions, each around a centre (k-means on the sphere), and a query looks through the regions whose
centres are nearest (an inverted file, by the package faiss). What is kept is the centres and the region of each code: plain
tensors, which follow the gallery row by row, so a row that is gone cannot be found. The lists that faiss searches are put
together from them and the codes when they are first needed.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.errors import UsageError

LOOKED_AT = 64  # regions that a query looks through
DRAWN = 40  # codes for each centre that the centres are found from
ROUNDS = 10  # of k-means
CHUNK = 2**24  # numbers held at a time
OUTGROWN = 2  # an index with so many times fewer regions than a new one would have is made again


@dataclass(frozen=True, eq=False, kw_only=True)
class Index:
    """The regions of a gallery's codes. Never changes.

    Attributes:
        centres: of unit length ``[c, d]``, float32 on the CPU.
        regions: the row of the nearest centre for each code ``[m]``, int32.
        digest: what ``digest_of`` returned for the codes, the centres and the regions.
    """

    centres: Tensor
    regions: Tensor
    digest: str

    def __post_init__(self) -> None:
        """Check that every region is there."""
        shapes = self.centres.ndim == 2 and self.regions.ndim == 1 and self.regions.dtype == torch.int32
        if not shapes or (len(self.regions) and not 0 <= self.regions.min() <= self.regions.max() < len(self.centres)):
            raise UsageError(
                "An index needs centres [c, d] and for each code a region from 0 to c - 1, int32; given centres "
                f"{list(self.centres.shape)} and regions {list(self.regions.shape)}, {self.regions.dtype}."
            )

    @property
    def outgrown(self) -> bool:
        """Whether the gallery is now so large that other centres would make searching faster."""
        return region_count(len(self.regions)) >= OUTGROWN * len(self.centres)

    def extended(self, codes: Tensor) -> "Index":
        """Return the index of codes ``[m, d]`` of which it knows the first ones; the centres stay."""
        self.check(codes[: len(self.regions)])
        regions = torch.cat([self.regions, _nearest_centre(codes[len(self.regions) :], self.centres)])
        return _index(codes, self.centres, regions)

    def selected(self, codes: Tensor, rows: list[int]) -> "Index":
        """Return the index of some rows of these codes ``[m, d]``; the centres stay."""
        self.check(codes)
        return _index(codes[rows], self.centres, self.regions[rows])

    def check(self, codes: Tensor) -> None:
        """Raise an error unless this is the index of these codes ``[m, d]``."""
        shape = (len(self.regions), self.centres.shape[1])
        if codes.shape != shape or digest_of(codes, self.centres, self.regions) != self.digest:
            raise UsageError(
                f"The index of this gallery does not belong to its {len(codes)} codes: one of both was changed or is "
                "damaged. Make it anew: replace(gallery, index=None).with_index()."
            )


class Lists:
    """The codes of each region, ready for searching; queries look through the regions nearest to them."""

    def __init__(self, index: Index, codes: Tensor) -> None:
        faiss = need_faiss()
        from faiss.contrib.ivf_tools import add_preassigned

        index.check(codes)
        count, size = index.centres.shape
        near = faiss.IndexFlatIP(size)
        half = faiss.ScalarQuantizer.QT_fp16  # the scores that count are computed from the codes themselves
        self._lists = faiss.IndexIVFScalarQuantizer(near, size, count, half, faiss.METRIC_INNER_PRODUCT, False)
        near.add(index.centres.numpy())
        self._lists.train(index.centres.numpy())  # the centres are there: nothing is learnt
        self._lists.nprobe = min(LOOKED_AT, count)
        step = max(1, CHUNK // size)
        for codes_here, regions in zip(torch.split(codes, step), torch.split(index.regions, step), strict=True):
            add_preassigned(self._lists, normalize(codes_here, dim=1).numpy(), regions.long().numpy())

    def __len__(self) -> int:
        return int(self._lists.ntotal)

    def near(self, queries: Tensor, count: int) -> Tensor:
        """Return rows of the codes ``[n, count]`` for queries ``[n, d]``, best by cosine first; -1 where no more are found."""
        _, rows = self._lists.search(normalize(queries.float(), dim=1).cpu().numpy(), count)
        return torch.from_numpy(rows)


def make_index(codes: Tensor, seed: int = 0) -> Index:
    """Return an index of codes ``[m, d]``, float32 on the CPU."""
    faiss = need_faiss()
    if not len(codes) or not torch.isfinite(codes).all():
        raise UsageError(
            f"An index needs codes that are finite numbers; given {len(codes)} codes, or some that are not."
        )
    count = region_count(len(codes))
    drawn = torch.randperm(len(codes), generator=torch.Generator().manual_seed(seed))[: DRAWN * count]
    settings = {"niter": ROUNDS, "spherical": True, "seed": seed, "min_points_per_centroid": 1}
    means = faiss.Kmeans(codes.shape[1], count, max_points_per_centroid=DRAWN, **settings)
    means.train(normalize(codes[drawn], dim=1).numpy())
    centres = torch.from_numpy(means.centroids).clone()
    return _index(codes, centres, _nearest_centre(codes, centres))


def region_count(codes: int) -> int:
    """Return how many regions so many codes are divided into: a few times the root of their number."""
    return max(1, min(int(4 * codes**0.5), codes // DRAWN))


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


def _index(codes: Tensor, centres: Tensor, regions: Tensor) -> Index:
    return Index(centres=centres, regions=regions, digest=digest_of(codes, centres, regions))


def _nearest_centre(codes: Tensor, centres: Tensor) -> Tensor:
    """Return the row of the nearest centre for each code ``[m]``, int32."""
    parts = torch.split(codes, max(1, CHUNK // len(centres)))
    return torch.cat([(normalize(part, dim=1) @ centres.T).argmax(1) for part in parts]).int()
