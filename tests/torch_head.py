"""A model of torch as a head, for tests whose models are easiest to write in torch: features are the pixels themselves."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np
import torch

from labelwise.core.calibration import Penalty
from labelwise.core.head import Array
from labelwise.images.describe.labels import Labels
from labelwise.train.model import LabelModel

# What some models can do besides scoring: the method of the model, and what the head calls it.
MORE = {
    "labels_from_examples": "labels_from_examples", "label_from_both": "label_from_both", "generate": "generate",
    "similarity": "similarity", "matched": "matched", "whitened": "whitened", "unfamiliarity": "outlier_score",
    "example_distances": "example_distances", "second_opinions": "second_opinions",
}  # fmt: skip


@dataclass(frozen=True)
class Flat:
    """Features are the pixels of an image in [0, 1], one after another; or what was given."""

    shape: tuple[int, ...]
    fit: Literal["crop", "stretch"] = "crop"
    runtime: str = ""

    @property
    def id(self) -> str:
        return f"flat/{self.shape}"

    @property
    def name(self) -> str:
        return "flat"

    @property
    def width(self) -> int:
        return prod(self.shape)

    def __call__(self, images: Array) -> Array:
        unit = np.float32(255 if images.dtype == np.uint8 else 1)
        pixels: Array = images.astype(np.float32).reshape(len(images), -1) / unit
        return pixels


@dataclass(init=False, eq=False)
class TorchHead:
    """A head that asks a model of torch."""

    kind = "torch"

    def __init__(self, model: LabelModel) -> None:
        self.model, self.reads, self.penalty = model, getattr(model, "reads", ()), getattr(model, "penalty", "offset")
        self.fitted_together, self.allows_new_labels = getattr(model, "fitted_together", False), False
        self.exclusive, self.labels, self.width = model.exclusive, model.spec.labels, prod(model.spec.shape)

    reads: tuple[str, ...]
    penalty: Penalty
    fitted_together: bool
    allows_new_labels: bool

    def embed(self, features: Array) -> Array:
        return self.ask("encode_images", features.reshape(-1, *self.model.spec.shape).astype(np.float32))

    def embed_labels(self, labels: Labels) -> Array:
        return self.ask("encode_labels", labels)

    def score(self, embeddings: Array, label_embeddings: Array) -> Array:
        return self.ask("score", embeddings, label_embeddings)

    def ask(self, what: str, *inputs: Any) -> Array:
        """Return what a method of the model says."""
        given = [torch.from_numpy(np.array(x)) if isinstance(x, np.ndarray) else x for x in inputs]
        with torch.no_grad():
            answer: Array = getattr(self.model, what)(*given).float().numpy()
        return answer


def head_of(model: LabelModel) -> Any:
    """Return the head of a model, which can do what the model can."""
    methods: dict[str, Any] = {theirs: _asking(ours) for ours, theirs in MORE.items() if hasattr(model, ours)}
    if hasattr(model, "whitens"):
        methods["whitens"] = property(lambda self: self.model.whitens)
    return type(f"{type(model).__name__}Head", (TorchHead,), methods)(model)


def _asking(what: str) -> Callable[..., Array]:
    return lambda self, *inputs: self.ask(what, *inputs)
