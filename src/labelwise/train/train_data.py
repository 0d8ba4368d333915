"""Training data as tensors, made from splits when training starts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from labelwise.images.dataset import PER_IMAGE, Split, labels_present, several_true
from labelwise.images.describe.labels import Labels
from labelwise.images.images import Array, Images, Rows, Selection, Unreadable, join
from labelwise.images.view import Fit
from labelwise.support.errors import DataError
from labelwise.train.model import Spec
from labelwise.train.pixels import pixels


class EncodedImages(Selection):
    """Images with precomputed features of a frozen encoder, which training reads instead of pixels."""

    def __init__(self, source: Images, features: Tensor, shape: tuple[int, ...]) -> None:
        super().__init__(features, range(len(features)))
        self._source, self._features, self._image_shape = source, features, shape

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an image as the encoder takes it."""
        return self._image_shape

    @property
    def source(self) -> Images:
        """The images themselves."""
        return self._source.select(self.rows)

    @property
    def features(self) -> Tensor:
        """The features ``[n, d]``."""
        return self._features[torch.from_numpy(self.rows).to(self._features.device)]

    @property
    def ids(self) -> Sequence[str]:
        """The name of each."""
        return self.source.ids

    def read(self, rows: Rows, shape: tuple[int, ...], fit: Fit = "crop") -> list[Array | Unreadable]:
        """Return the images themselves."""
        return self.source.read(rows, shape, fit)

    def _digests_of(self, rows: list[int]) -> list[bytes]:
        return list(self._source.select(rows).digests())


@dataclass(frozen=True, eq=False, kw_only=True)
class TensorSplit:
    """Images with their targets as tensors; row i of every piece belongs to the same image."""

    images: Tensor  # bytes ``[n, c, h, w]`` (uint8), or features ``[n, a]`` (float32)
    targets: Tensor  # positions of labels ``[n]`` (int64), -1 without; or which of several are true ``[n, k]`` (bool)
    files: tuple[str, ...] = ()  # as in ``Split``, as are the others
    texts: tuple[tuple[str, ...], ...] = ()
    domains: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    moments: tuple[str, ...] = ()

    source: Images | None = None  # where the images come from
    image_shape: tuple[int, ...] = ()  # of one image, where ``images`` are features that a frozen encoder made of these

    @classmethod
    def of(cls, split: Split, shape: tuple[int, ...] | None = None, fit: Fit = "crop") -> "TensorSplit":
        """Return a split as tensors, its images read at a shape; of images that have one that is the usual."""
        shape = shape or split.shape
        if shape is None:
            raise DataError("Image files have no shape of their own: say at which they are read.")
        images = split.images
        columns: dict[str, Any] = {column: getattr(split, column) for column in PER_IMAGE}
        if isinstance(images, EncodedImages):
            values, source, input_shape = images.features, images.source, images.shape
        else:
            values, source, input_shape = pixels(images, shape, fit), images, ()
        return cls(
            images=values, targets=torch.as_tensor(split.targets), source=source, image_shape=input_shape, **columns
        )

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        return f"<TensorSplit: {len(self)} images {' x '.join(map(str, self.shape))}>"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image."""
        return self.image_shape or tuple(self.images.shape[1:])

    @property
    def multilabel(self) -> bool:
        """Whether several labels may be true of one image, or none."""
        return several_true(self.targets)

    @property
    def present(self) -> list[int]:
        """The labels that some image has, in order."""
        return labels_present(self.targets.cpu().numpy())

    def select(self, rows: Sequence[int] | Tensor) -> "TensorSplit":
        """Return these rows only, in this order."""
        index = torch.as_tensor(rows, dtype=torch.int64)
        order = index.tolist()
        columns: dict[str, Any] = {
            column: tuple(getattr(self, column)[i] for i in order) for column in PER_IMAGE if getattr(self, column)
        }
        columns |= {"source": None if self.source is None else self.source.select(order)}
        images, targets = self.images[index.to(self.images.device)], self.targets[index.to(self.targets.device)]
        return TensorSplit(images=images, targets=targets, image_shape=self.image_shape, **columns)

    def join(self, other: "TensorSplit") -> "TensorSplit":
        """Return the rows of both; a piece that only one of them has is dropped."""
        if self.multilabel != other.multilabel:
            raise DataError("Images that have one label cannot be joined with images of which several may be true.")
        joined: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in PER_IMAGE}
        columns = {name: column for name, column in joined.items() if len(column) == len(self) + len(other)}
        images, targets = (torch.cat(pair) for pair in ((self.images, other.images), (self.targets, other.targets)))
        source = None if self.source is None or other.source is None else join([self.source, other.source])
        return TensorSplit(images=images, targets=targets, source=source, image_shape=self.image_shape, **columns)

    def to(self, device: str | torch.device) -> "TensorSplit":
        """Return the split with its targets on a device, and its images too unless they would fill half of it."""
        device = torch.device(device)
        fits = device.type != "cuda" or self.images.nbytes <= torch.cuda.mem_get_info(device)[0] // 2
        return replace(self, images=self.images.to(device) if fits else self.images, targets=self.targets.to(device))


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainData:
    """All that training may see: images to train on, images to validate on, and the labels' descriptions.

    Test images cannot be reached from here. ``unseen`` holds the descriptions of labels without a training image. In the
    trial run of a zero-shot method these are labels held out of training, and ``val`` has images of them: its targets are
    then positions in ``known``, the labels followed by the unseen ones. Images that have sentences and no label make all
    labels unseen: ``unseen`` is ``labels``.
    """

    train: TensorSplit
    val: TensorSplit
    labels: Labels
    unseen: Labels | None = None
    without_images: int = 0  # in a trial: the number of labels without images, which held-out labels simulate

    @property
    def spec(self) -> Spec:
        """What a method builds its model from."""
        return Spec(shape=self.train.shape, labels=self.labels)

    @property
    def known(self) -> Labels:
        """All labels with a description: those trained on, then the unseen ones."""
        if self.unseen is None or self.unseen is self.labels:
            return self.labels
        return self.labels.join(self.unseen)

    def to(self, device: str | torch.device) -> "TrainData":
        """Return a copy with the images on a device."""
        return replace(self, train=self.train.to(device), val=self.val.to(device))
