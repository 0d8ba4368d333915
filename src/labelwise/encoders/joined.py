"""Several encoders as one: their features at unit length, concatenated."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from labelwise.encoders.encoder import Array, Encoder, Features
from labelwise.images.view import Fit
from labelwise.support.cache import digest
from labelwise.support.errors import UsageError
from labelwise.support.rows import unit_rows

LEAST: Final = np.float32(1e-12)  # smallest length to divide by


@dataclass(frozen=True, eq=False)
class JoinedEncoder:
    """Concatenates the features of encoders that take images of one shape."""

    parts: tuple[Encoder, ...]

    def __post_init__(self) -> None:
        first = self.parts[0]
        if wrong := [each for each in self.parts if (each.shape, each.fit) != (first.shape, first.fit)]:
            raise UsageError(
                f"Joined encoders see the same images: {first.name} takes {list(first.shape)}, {wrong[0].name} "
                f"{list(wrong[0].shape)}. Join others."
            )
        if len({each.id for each in self.parts}) < len(self.parts):
            raise UsageError(f"{self.name} joins an encoder with itself. Name each once.")

    @property
    def name(self) -> str:
        """The name shown to users."""
        return "+".join(each.name for each in self.parts)

    @cached_property
    def id(self) -> str:
        """Identifier of the features: encoders with the same id make the same features."""
        return digest(b"joined", *(each.id.encode() for each in self.parts)).hex()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an image."""
        return self.parts[0].shape

    @property
    def fit(self) -> Fit:
        """How an image file is resized to the shape."""
        return self.parts[0].fit

    @property
    def width(self) -> int:
        """The number of features of an image."""
        return sum(each.width for each in self.parts)

    @property
    def runtime(self) -> str:
        """The libraries and versions that run the encoders."""
        return ", ".join(dict.fromkeys(each.runtime for each in self.parts))

    def __call__(self, images: Array) -> Features:
        """Return the features ``[n, d]`` of images ``[n, *shape]``."""
        return self.join([each(images) for each in self.parts])

    def join(self, features: Sequence[Features]) -> Features:
        """Concatenate the features of all encoders ``[n, d]``."""
        return np.concatenate([_of_unit_length(each) for each in features], 1)


def _of_unit_length(features: Features) -> Features:
    """Scale rows ``[n, d]`` to unit length; take square roots first if no value is negative, as the closed form does."""
    sizes = abs(features)
    rooted = np.sqrt(sizes / np.maximum(sizes.sum(1, keepdims=True), LEAST))
    rows: Features = np.where((features >= 0).all(1, keepdims=True), rooted, unit_rows(features)).astype(np.float32)
    return rows
