"""Features: what an encoder makes of images, and all that tasks and heads need to know of these."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from labelwise.images.images import Array, Images, Rows, Skipped, Unreadable, positions
from labelwise.images.view import Fit
from labelwise.support.settings import brief


@dataclass(frozen=True, eq=False)
class Features:
    """The features of those images that could be read."""

    values: npt.NDArray[np.float32]  # [m, d]
    rows: npt.NDArray[np.int64]  # which of the images these are [m], rising
    ids: Sequence[str]  # how each is called [m]
    digests: Sequence[bytes]  # of the content of each [m]
    encoder_id: str
    skipped: tuple[Skipped, ...] = ()  # images that could not be read

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class ImagesWithFeatures:
    """Images whose features are known: whoever asks the same encoder for them gets these."""

    images: Images
    features: Features  # of all of the images

    __repr__ = brief

    @classmethod
    def readable(cls, images: Images, features: Features) -> Self:
        """Return those of the images that could be read."""
        rows = np.arange(len(features), dtype=np.int64)
        return cls(images.select(features.rows), replace(features, rows=rows, skipped=()))

    def __len__(self) -> int:
        return len(self.images)

    @property
    def ids(self) -> Sequence[str]:
        """What each is called."""
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
        """Return these rows only, in this order."""
        at, known = positions(rows), self.features
        some = replace(
            known,
            values=known.values[at],
            rows=np.arange(len(at), dtype=np.int64),
            ids=[known.ids[row] for row in at],
            digests=[known.digests[row] for row in at],
        )
        return type(self)(self.images.select(at), some)
