"""The image encoder: normalisation, a backbone, and a projection where another code size is wanted."""

from typing import Self

import torch
from torch import Tensor, nn

from labelwise.errors import UsageError
from labelwise.nn.backbones import Backbone, build_backbone

CHUNK = 2**22  # numbers held in double precision at a time
FLOOR = 1e-3  # smallest standard deviation, relative to the largest


class ImageEncoder(nn.Module):
    """Turns images in [0, 1] ``[n, c, h, w]``, or features ``[n, a]``, into codes ``[n, d]``.

    Args:
        backbone: what follows normalisation.
        shape: of one image, ``(c, h, w)``, or ``(a,)`` for precomputed features.
        code_size: d; a linear layer follows the backbone where its own size differs. None: the backbone's size.

    Attributes:
        mean: subtracted from each channel ``[c]`` (or feature ``[a]``); 0 until ``fit_normalisation``.
        std: divides each channel ``[c]`` (or feature ``[a]``); 1 until ``fit_normalisation``.
        code_size: d.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: Backbone, shape: tuple[int, ...], code_size: int | None = None) -> None:
        super().__init__()
        if code_size is not None and code_size < 1:
            raise UsageError(f"The code size must be at least 1; given {code_size}.")
        self.shape = shape
        self.backbone = backbone
        self.code_size = backbone.width_out if code_size is None else code_size
        self.project: nn.Module = nn.Identity()
        if self.code_size != backbone.width_out:
            self.project = nn.Linear(backbone.width_out, self.code_size)
        self.register_buffer("mean", torch.zeros(shape[0]))
        self.register_buffer("std", torch.ones(shape[0]))

    @classmethod
    def build(
        cls, backbone: str, shape: tuple[int, ...], width: int | None = None, code_size: int | None = None
    ) -> Self:
        """Return a new encoder with the backbone of this name (see ``build_backbone``)."""
        return cls(build_backbone(backbone, shape, width), shape, code_size)

    def normalise(self, x: Tensor) -> Tensor:
        """Return images with each channel (or feature) shifted and scaled, in the memory layout given."""
        channels = (-1, *[1] * (len(self.shape) - 1))
        return (x - self.mean.view(channels)) / self.std.view(channels)

    def maps(self, x: Tensor) -> Tensor:
        """Return the backbone's feature maps ``[n, d_backbone, h, w]`` of images in [0, 1]."""
        return self.backbone.maps(self.normalise(x))

    def pool(self, maps: Tensor) -> Tensor:
        """Return codes ``[n, d]`` from feature maps."""
        return self.project(self.backbone.pool(maps))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        """Return codes ``[n, d]`` of images in [0, 1]: ``pool(maps(x))`` where there are maps."""
        return self.project(self.backbone(self.normalise(x)))  # type: ignore[no-any-return]

    def fit_normalisation(self, images: Tensor) -> None:
        """Set mean and std to those of each channel of images (bytes count as [0, 1]), or of each feature.

        Computed in double precision, a chunk at a time. No std is less than a thousandth of the largest, so what
        hardly varies is not blown up; where nothing varies at all, it is 1.
        """
        if tuple(images.shape[1:]) != self.shape or not len(images):
            raise UsageError(
                f"Normalisation needs at least one image of shape {list(self.shape)}; given {list(images.shape)}."
            )
        unit = 255 if images.dtype == torch.uint8 else 1
        mean = channel_means(images, torch.zeros(self.shape[0]), power=1)
        std = channel_means(images, mean, power=2).sqrt()
        if not std.isfinite().all():
            raise UsageError("The images hold a value that is not a finite number (NaN or infinity).")
        std = std.clamp(min=FLOOR * float(std.max())) if std.any() else torch.full_like(std, unit)
        self.mean.copy_(mean / unit)
        self.std.copy_(std / unit)


def channel_means(images: Tensor, centre: Tensor, power: int) -> Tensor:
    """Return the mean of ``(value - centre) ** power`` of each channel ``[c]``, in double precision."""
    centre = centre.to(images.device, torch.float64).view(-1, *[1] * (images.ndim - 2))
    others = [0, *range(2, images.ndim)]
    rows = max(1, CHUNK // images[0].numel())
    sums = [(chunk.double() - centre).pow_(power).sum(others) for chunk in torch.split(images, rows)]
    return torch.stack(sums).sum(0) / images[:, 0].numel()
