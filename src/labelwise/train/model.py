"""The base of trainable torch models: they score every (image, label) pair, and export an encoder and a head.

Shape letters: n images, k labels, d image embedding, e label embedding.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, compress
from typing import ClassVar

import torch
from torch import Tensor, nn

from labelwise.core.head import Head
from labelwise.encoders.encoder import Encoder
from labelwise.images.describe.labels import Labels
from labelwise.images.view import WHOLE, View
from labelwise.support.errors import UnsupportedError


@dataclass(frozen=True, eq=False, kw_only=True)
class Spec:
    """The inputs to build a model: the shape of one image, the training labels, and the view of images.

    ``shape`` is ``(channels, height, width)``, or ``(size,)`` for precomputed features. A model keeps ``view`` itself when it encodes
    images of this shape, as ``nn.image_encoder`` does.
    """

    shape: tuple[int, ...]
    labels: Labels
    view: View = WHOLE

    def __post_init__(self) -> None:
        self.view.check(self.shape)


class LabelModel(nn.Module, ABC):
    """Scores (image, label) pairs. Larger is better; a score never depends on other labels.

    Images are floats in [0, 1], ``[n, c, h, w]`` (or features ``[n, a]``). The model normalises them itself, so that pixel
    bounds mean the same for every method.

    The state holds what gradients change. Closed-form solutions and counts are plain arrays, exported with the head.
    """

    exclusive: ClassVar[bool] = False  # scores of one image compete (softmax): only their differences carry meaning

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec  # what the model was built for

    @abstractmethod
    def encode_images(self, images: Tensor) -> Tensor:
        """Return image embeddings ``[n, d]`` of images in [0, 1]."""

    def encode_labels(self, labels: Labels) -> Tensor:
        """Return label embeddings ``[k, e]``, without gradients unless the model trains through them."""
        return torch.from_numpy(self.export_head().embed_labels(labels)).to(self.device)

    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        """Return the score of every pair ``[n, k]`` from image embeddings ``[n, d]`` and label embeddings ``[k, e]``; likewise."""
        pair = (embedding.detach().cpu().numpy() for embedding in (image_embeddings, label_embeddings))
        return torch.from_numpy(self.export_head().score(*pair)).to(self.device)

    def export_head(self) -> Head:
        """Return the equivalent NumPy head."""
        raise UnsupportedError(f"{type(self).__name__} has no head.")

    def export_encoder(self) -> Encoder:
        """Return the encoder that makes the head's features."""
        raise UnsupportedError(f"{type(self).__name__} has no encoder.")

    def head_features(self, images: Tensor) -> Tensor:  # noqa: ARG002
        """Return the head's features ``[n, f]`` of images, or of the output of ``prepare``."""
        raise UnsupportedError(f"{type(self).__name__} has no head.")

    def prepare(self, images: Tensor) -> Tensor:
        """Return the input for ``encode_images``: cached features of a frozen trunk, else the images."""
        return images

    def restore(self, head: Head) -> None:
        """Load from the head of a saved classifier what the state does not hold."""

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return next((t.device for t in chain(self.parameters(), self.buffers())), torch.device("cpu"))


def as_float(images: Tensor) -> Tensor:
    """Return images as floats; bytes become [0, 1]."""
    return images.float().div_(255) if images.dtype == torch.uint8 else images.float()


def first_not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor that holds NaN or an infinity; else None.

    All tensors are on one device; it is synchronised once.
    """
    tensors_checked = {
        name: tensor for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.numel()
    }
    if not tensors_checked:
        return None
    largest = [
        torch.linalg.vector_norm(tensor, torch.inf) for tensor in tensors_checked.values()
    ]  # NaN where one holds it
    return next(compress(tensors_checked, torch.stack([~value.isfinite() for value in largest]).tolist()), None)
