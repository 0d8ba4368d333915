"""What training works on: a model of torch that scores every (image, label) pair, and leaves an encoder and a head.

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
    """All that a method needs to build its model: the shape of one image, the labels to train on, and how it sees images.

    ``shape`` is ``(channels, height, width)``, or ``(size,)`` for precomputed features. A model keeps ``view`` itself when it encodes
    images of this shape, as ``nn.image_encoder`` does.
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

    Its state is what gradients change. What is solved in closed form or counted is plain arrays, and goes to the head.
    """

    exclusive: ClassVar[bool] = False  # scores of one image compete (softmax): only their differences carry meaning

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec  # what the model was built for

    @abstractmethod
    def encode_images(self, images: Tensor) -> Tensor:
        """Return image embeddings ``[n, d]`` of images in [0, 1]."""

    def encode_labels(self, labels: Labels) -> Tensor:
        """Return label embeddings ``[k, e]``; without gradients, unless a model that is trained through them says otherwise."""
        return torch.from_numpy(self.export_head().embed_labels(labels)).to(self.device)

    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        """Return the score of every pair ``[n, k]`` from image embeddings ``[n, d]`` and label embeddings ``[k, e]``; likewise."""
        pair = (each.detach().cpu().numpy() for each in (image_embeddings, label_embeddings))
        return torch.from_numpy(self.export_head().score(*pair)).to(self.device)

    def export_head(self) -> Head:
        """Return the equivalent NumPy head."""
        raise UnsupportedError(f"{type(self).__name__} has no head.")

    def export_encoder(self) -> Encoder:
        """Return what makes the features that the head takes."""
        raise UnsupportedError(f"{type(self).__name__} has no encoder.")

    def head_features(self, images: Tensor) -> Tensor:  # noqa: ARG002
        """Return the features ``[n, f]`` that the head takes, of many images or of what ``prepare`` made of them."""
        raise UnsupportedError(f"{type(self).__name__} has no head.")

    def prepare(self, images: Tensor) -> Tensor:
        """Return what ``encode_images`` takes in place of images: the features of a frozen trunk, computed once, else the images."""
        return images

    def restore(self, head: Head) -> None:
        """Take over from the head of a saved classifier what the state does not hold."""

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        return next((t.device for t in chain(self.parameters(), self.buffers())), torch.device("cpu"))


def as_float(images: Tensor) -> Tensor:
    """Return images as floats; bytes become [0, 1]."""
    return images.float().div_(255) if images.dtype == torch.uint8 else images.float()


def first_not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor that holds NaN or an infinity; else None.

    All tensors lie on one device, which is waited for once.
    """
    checked = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.numel()}
    if not checked:
        return None
    largest = [torch.linalg.vector_norm(tensor, torch.inf) for tensor in checked.values()]  # NaN where one holds it
    return next(compress(checked, torch.stack([~one.isfinite() for one in largest]).tolist()), None)
