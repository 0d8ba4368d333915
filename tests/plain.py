"""An encoder and a head so plain that every score is known: the mean of each colour, weighed by one number per label and colour."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from labelwise.core.classifier import Classifier, bind
from labelwise.core.head import Array, HeadDefaults
from labelwise.core.saved_parts import shaped
from labelwise.images.describe.labels import Labels
from tests.changed import changed

ABC = Labels(
    names=("a", "b", "c"),
    vectors=np.eye(3, dtype=np.float32),
    texts=(("first",), ("second", "2nd"), ("third",)),
    order=(2, 0, 1),
    shares=np.array([0.5, 0.3, 0.2], np.float32),
)


@dataclass(frozen=True)
class Colours:
    """Features are the mean of each colour in [0, 1], or what was given."""

    shape: tuple[int, ...] = (3, 2, 2)
    fit: Literal["crop", "stretch"] = "crop"
    runtime: str = ""

    @property
    def id(self) -> str:
        return f"colours/{self.shape}"

    @property
    def name(self) -> str:
        return "colours"

    @property
    def width(self) -> int:
        return self.shape[0]

    def __call__(self, images: Array) -> Array:
        means: Array = images if images.ndim == 2 else images.astype(np.float32).mean((2, 3)) / np.float32(255)
        return means.astype(np.float32)


@dataclass(frozen=True, eq=False, kw_only=True)
class Weighed(HeadDefaults):
    """Scores by one weight per label and feature."""

    kind: ClassVar[str] = "weighed"
    labels: Labels = ABC
    weights: Array = shaped("k", "d")

    @property
    def width(self) -> int:
        return int(self.weights.shape[1])

    def embed_labels(self, labels: Labels) -> Array:
        return self.weights[[self.labels.index(name) for name in labels.names]]

    def score(self, embeddings: Array, label_embeddings: Array) -> Array:
        return np.asarray(embeddings @ label_embeddings.T)


def plain_classifier() -> Classifier:
    """Labels a, b and c, calibrated as if by hand."""
    bound = bind(Weighed(weights=np.eye(3, dtype=np.float32)), Colours(), ABC)
    scale, offset = np.array([1, 2, 3], np.float32), np.array([0, 1, 2], np.float32)
    return changed(bound, scale=scale, offset=offset)
