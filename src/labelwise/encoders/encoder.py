"""The interface of encoders: images in, features out."""

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

    The encoder normalises, crops, resizes and averages over the mirror image itself. Optional attributes: ``batch``, the best
    number of images in a call, and ``cacheable``, False to skip the feature cache.
    """

    @property
    def id(self) -> str:
        """Identifier of the features: encoders with the same id make the same features."""

    @property
    def name(self) -> str:
        """The name shown to users."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input: ``(c, h, w)`` bytes, ``(samples,)`` or ``(a,)`` float32."""

    @property
    def fit(self) -> Fit:
        """How an image file is resized to the shape."""

    @property
    def width(self) -> int:
        """The number of features of an image."""

    @property
    def runtime(self) -> str:
        """The library and version that runs the encoder; features are bit-identical only within one runtime."""

    def __call__(self, images: Array) -> Features:
        """Return the features ``[n, width]`` of images ``[n, *shape]``."""


@runtime_checkable
class Locates(Protocol):
    """An encoder whose features are pooled from feature maps, as heat maps need."""

    @property
    def has_maps(self) -> bool:
        """Whether feature maps are available."""

    @property
    def window(self) -> tuple[slice, slice]:
        """The rows and columns of an image that the maps cover."""

    def locate(self, images: Array) -> tuple[Features, Features]:
        """Return the features ``[n, width]`` of images ``[n, *shape]`` and their maps ``[n, width, h, w]``."""


@dataclass(frozen=True)
class Precomputed:
    """The identity encoder, for precomputed features.

    >>> Precomputed(2)(np.ones((1, 2)))
    array([[1., 1.]], dtype=float32)
    """

    width: int
    fit: Fit = "crop"
    runtime: str = ""
    cacheable: ClassVar[bool] = False

    @property
    def id(self) -> str:
        """Return the id, which depends on the width alone."""
        return f"features/{self.width}"

    @property
    def name(self) -> str:
        """Return the name shown to users."""
        return f"{self.width} precomputed features"

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one row."""
        return (self.width,)

    def __call__(self, images: Array) -> Features:
        """Return the rows as float32."""
        return np.asarray(images, np.float32)
