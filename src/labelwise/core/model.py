"""A model scores every (image, label) pair; larger is better, and a score never depends on the other labels.

What some models can do besides is a ``Protocol`` each, asked for with ``isinstance``; ``can`` lists them. Shape letters: n
images, k labels, d image embedding, e label embedding, a vector.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from labelwise.core.arrays import Array
from labelwise.core.calibration import Penalty
from labelwise.core.capabilities import COMPARE, GENERATE, LEARN, LOCATE, WHITEN
from labelwise.images.describe.labels import Labels
from labelwise.images.view import WHOLE, View
from labelwise.support.cache import digest
from labelwise.support.errors import UnsupportedError, UsageError


@dataclass(frozen=True, eq=False, kw_only=True)
class Spec:
    """All that a method needs to build its model: the shape of one image, the labels to train on, and how it sees pictures.

    ``shape`` is ``(channels, height, width)``, or ``(size,)`` for precomputed features. A model keeps ``view`` itself when it encodes
    pictures of this shape, as ``nn.image_encoder`` does.
    """

    shape: tuple[int, ...]
    labels: Labels
    view: View = WHOLE

    def __post_init__(self) -> None:
        self.view.check(self.shape)


class LabelModel(nn.Module, ABC):
    """Scores (image, label) pairs. Larger is better, always; a score never depends on the other labels.

    Images reach a model as floats in [0, 1], ``[n, c, h, w]`` (or features ``[n, a]``); a model normalises
    inside, so that pixel bounds mean the same for every method.
    """

    reads: ClassVar[tuple[str, ...]] = ()  # which pieces of ``Labels`` beyond the names ``encode_labels`` needs
    exclusive: ClassVar[bool] = False  # scores of one image compete (softmax): only their differences carry meaning
    fitted_together: ClassVar[bool] = False  # embeddings depend on all labels at once, so none is added on its own
    added_apart: ClassVar[bool] = False  # one is all the same, fitted against the trained ones, which stay as they are
    penalty: ClassVar[Penalty] = "offset"  # how seen labels are held back against those known from a description alone
    infinite: ClassVar[tuple[str, ...]] = ()  # which entries of its state may be infinite; all others are finite

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec  # what the model was built for

    @abstractmethod
    def encode_images(self, images: Tensor) -> Tensor:
        """Return image embeddings ``[n, d]`` of images in [0, 1]."""

    @abstractmethod
    def encode_labels(self, labels: Labels) -> Tensor:
        """Return label embeddings ``[k, e]``."""

    @abstractmethod
    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        """Return the score of every pair ``[n, k]`` from image embeddings ``[n, d]`` and label embeddings ``[k, e]``."""

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        return next((t.device for t in chain(self.parameters(), self.buffers())), torch.device("cpu"))


@runtime_checkable
class LearnsFromExamples(Protocol):
    """It makes a label of a few example images."""

    def labels_from_examples(self, embeddings: Tensor, groups: Tensor) -> Tensor:
        """Return label embeddings ``[g, e]`` from those of example images ``[n, d]``; ``groups [n]`` says whose each is."""


@runtime_checkable
class JoinsKnowledge(Protocol):
    """It makes a label of example images and a description together."""

    reads_descriptions: bool  # whether it does: the labels it was trained on were described

    def label_from_both(self, embeddings: Tensor, description: Labels) -> Tensor:
        """Return the embedding ``[e]`` of one label from those of example images ``[n, d]`` and what describes it."""


@runtime_checkable
class Locates(Protocol):
    """Its embedding is pooled from maps, so an answer has a place in the picture."""

    def feature_maps(self, images: Tensor) -> Tensor:
        """Return the spatial features ``[n, c, h, w]`` of images in [0, 1]."""

    def pool_maps(self, maps: Tensor) -> Tensor:
        """Return image embeddings ``[n, d]`` from feature maps."""


@runtime_checkable
class Generates(Protocol):
    """It makes features of images that do not exist."""

    def generate(self, labels: Labels, count: int, seed: int) -> Tensor:
        """Return features ``[k, count, f]`` made from the labels' descriptions."""

    def features_of(self, images: Tensor) -> Tensor:
        """Return features ``[n, f]`` of images in [0, 1], in the space of those that ``generate`` makes."""


@runtime_checkable
class Compares(Protocol):
    """It learnt how alike two images are; all others compare by the cosine of embeddings."""

    def similarity(self, queries: Tensor, gallery: Tensor) -> Tensor:
        """Return how alike images are ``[n, m]``, larger is more alike, from embeddings ``[n, d]`` and ``[m, d]``."""

    def matched(self, queries: Tensor, others: Tensor) -> Tensor:
        """Return ``similarity`` of each row of embeddings ``[n, d]`` and the same row of others ``[n, d]`` alone: ``[n]``."""


@runtime_checkable
class Whitens(Protocol):
    """It knows how embeddings vary inside a label."""

    @property
    def whitens(self) -> bool:
        """Whether it does: training may have shown too little of it."""

    def whitened(self, embeddings: Tensor) -> Tensor:
        """Return embeddings ``[n, d]`` in which images of one label differ alike in every direction."""


@runtime_checkable
class SensesFamiliarity(Protocol):
    """It tells by itself how unfamiliar an image is."""

    def unfamiliarity(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        """Return ``[n]``, larger is stranger, from image embeddings ``[n, d]`` and label embeddings ``[k, e]``."""


@runtime_checkable
class MeasuresExamples(Protocol):
    """How unfamiliar an image is, is a squared distance to it: so it can be told how far images of a new label spread."""

    def example_distances(self, embeddings: Tensor) -> Tensor:
        """Return how unfamiliar each of some examples of a label ``[n, d]`` is to what the others say of it ``[n]``; two at least."""


@runtime_checkable
class Completes(Protocol):
    """It can take images that were held out from its training into what it solves in closed form."""

    @property
    def started(self) -> bool:
        """Whether anything was solved in closed form."""

    def complete(self, images: Tensor, targets: Tensor, groups: Sequence[str] = ()) -> None:
        """Solve it anew with all images, from their targets ``[n]`` and the names of their groups."""


@runtime_checkable
class FreezesTrunk(Protocol):
    """What it computes of an image before anything that is trained can be kept."""

    def prepare(self, images: Tensor) -> Tensor:
        """Return what ``encode_images`` takes in place of these images."""


@runtime_checkable
class NamesClusters(Protocol):
    """It was made without a labelled image."""

    def second_opinions(self, embeddings: Tensor) -> Tensor:
        """Return the answers ``[m, n]`` (label positions) of m models that were made without labels, too."""

    def about(self) -> Mapping[str, Any]:
        """Return what can be told of how it came about, plain JSON values."""


CAPABILITIES: Mapping[str, type] = {
    LEARN: LearnsFromExamples,
    LOCATE: Locates,
    GENERATE: Generates,
    COMPARE: Compares,
    WHITEN: Whitens,
}


def can(model: LabelModel) -> list[str]:
    """Return what this model can do besides scoring."""
    return [name for name, protocol in CAPABILITIES.items() if isinstance(model, protocol)]


def cannot(model: LabelModel, what: str) -> UnsupportedError:
    """Return the error that says what a model cannot do, and what it can."""
    able = ", ".join(can(model)) or "score images and labels only"
    return UnsupportedError(f"{type(model).__name__} cannot {what}. What it can: {able}.")


def prepared(model: LabelModel, images: Any) -> Any:
    """Return what the model takes in place of images: the features of a frozen trunk, computed once, else the images."""
    return model.prepare(images) if isinstance(model, FreezesTrunk) else images


def state_digest(model: nn.Module) -> bytes:
    """Return what is the same for modules of the same state: its names and numbers."""
    state = model.state_dict().items()
    return digest(
        *(part for name, each in state for part in (name.encode(), each.cpu().contiguous().numpy().tobytes()))
    )


def in_numpy(function: Callable[..., Tensor]) -> Callable[..., Array]:
    """Return a method of a model as a function of arrays, which returns an array of floats."""
    model: LabelModel = function.__self__  # type: ignore[attr-defined]

    def call(*inputs: Any) -> Array:
        tensors = [
            torch.from_numpy(np.require(x, requirements=["C", "W"])).to(model.device)
            if isinstance(x, np.ndarray)
            else x
            for x in inputs
        ]
        with torch.no_grad():
            return function(*tensors).float().cpu().numpy()

    return call


def as_float(images: Tensor) -> Tensor:
    """Return images as floats; bytes become [0, 1]."""
    return images.float().div_(255) if images.dtype == torch.uint8 else images.float()


def check_shape(images: Tensor, shape: tuple[int, ...]) -> None:
    """Raise an error unless ``images`` is ``[n, *shape]`` and finite."""
    if tuple(images.shape[1:]) != shape:
        advice = f" Read pictures with size={shape[1]}." if len(shape) == 3 and images.ndim == 4 else ""
        raise UsageError(
            f"This model takes images of shape {list(shape)}; given {list(images.shape[1:])} (after the first axis).{advice}"
        )
    if images.is_floating_point() and not torch.isfinite(images).all():
        bad = (~torch.isfinite(images.flatten(1))).any(1).nonzero()[0].item()
        raise UsageError(f"Image {bad} holds a value that is not a finite number (NaN or infinity).")
