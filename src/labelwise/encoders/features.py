"""Features: what an encoder makes of images, and all that tasks and heads need to know of these."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from labelwise.images.skipped import Skipped
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
