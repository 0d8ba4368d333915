"""A generator of features from noise and label vectors, and a softmax layer on generated features, in NumPy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from labelwise.images.describe.labels import Labels
from labelwise.methods.izf.generated_head import GeneratedHead, noise
from labelwise.methods.izf.head import IzfSoftmaxHead
from labelwise.methods.shared.head import leaky, linear

Array = npt.NDArray[Any]
SLOPE = 0.2


@dataclass(frozen=True, eq=False, kw_only=True)
class CganHead(GeneratedHead):
    """A softmax layer on real features of seen labels and on those that a conditional GAN makes of unseen ones."""

    kind: ClassVar[str] = "cgan"

    generator: Mapping[str, Array]  # the state of a network of one hidden layer

    def generate(self, labels: Labels, count: int, seed: int) -> Array:
        """Return features ``[k, count, d]`` of each label, made from its description."""
        vectors = self.vectors(labels)
        drawn = noise(labels, (count, vectors.shape[1]), seed)
        x = np.concatenate([drawn.reshape(-1, vectors.shape[1]), np.repeat(vectors, count, 0)], 1)
        hidden = leaky(linear(x, self.generator["0.weight"], self.generator["0.bias"]), SLOPE)
        made = linear(hidden, self.generator["2.weight"], self.generator["2.bias"])
        return made.reshape(len(labels), count, -1)


@dataclass(frozen=True, eq=False, kw_only=True)
class IzfFeaturesHead(IzfSoftmaxHead):
    """A softmax layer on real features of seen labels and on those that a flow makes of unseen ones, compared as features."""

    kind: ClassVar[str] = "izf_features"

    def latents(self, features: Array) -> Array:
        """Return features unchanged."""
        return features
