"""What turns images into features, as everything above sees it."""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from labelwise.images.view import Fit

Array = npt.NDArray[Any]
Features = npt.NDArray[np.float32]


@runtime_checkable
class Encoder(Protocol):
    """Turns images into features. Pure: row i depends on image i alone.

    Normalising, centre crop, resizing and averaging over the mirror image happen inside. One that is best asked about several images
    at a time has their number as ``batch``; one whose features nobody will ask for again has ``cacheable`` False.
    """

    @property
    def id(self) -> str:
        """Encoders with the same id make the same features."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input: ``(c, h, w)`` bytes, ``(samples,)`` or ``(a,)`` float32."""

    @property
    def fit(self) -> Fit:
        """How an image file is brought to the shape."""

    @property
    def width(self) -> int:
        """The number of features of an image."""

    @property
    def runtime(self) -> str:
        """The library and version that runs it; equal bits are promised within one runtime only."""

    def __call__(self, images: Array) -> Features:
        """Return the features ``[n, width]`` of images ``[n, *shape]``."""


@runtime_checkable
class Locates(Protocol):
    """An encoder whose features are pooled from maps: how much of a feature lies where."""

    @property
    def has_maps(self) -> bool:
        """Whether it knows its maps."""

    @property
    def window(self) -> tuple[slice, slice]:
        """The rows and columns of an image that the maps cover."""

    def locate(self, images: Array) -> tuple[Features, Features]:
        """Return the features ``[n, width]`` of images ``[n, *shape]`` and their maps ``[n, width, h, w]``."""


@dataclass(frozen=True)
class Precomputed:
    """The encoder of images that are feature rows already: it changes nothing.

    >>> Precomputed(2)(np.ones((1, 2)))
    array([[1., 1.]], dtype=float32)
    """

    width: int
    fit: Fit = "crop"
    runtime: str = ""
    cacheable: ClassVar[bool] = False

    @property
    def id(self) -> str:
        """Return the id: rows of one width need no other."""
        return f"features/{self.width}"

    @property
    def name(self) -> str:
        """Return what people call it."""
        return f"{self.width} precomputed features"

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one row."""
        return (self.width,)

    def __call__(self, images: Array) -> Features:
        """Return the rows as float32."""
        return np.asarray(images, np.float32)
