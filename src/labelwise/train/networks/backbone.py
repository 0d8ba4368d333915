"""The base of image backbones: networks from images to embeddings, independent of the task."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from labelwise.support.errors import UnsupportedError
from labelwise.train.networks.weights import Normalisation

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)

Network = Callable[[Tensor], Tensor]


class Backbone(nn.Module, ABC):
    """Turns normalised images ``[n, c, h, w]`` into embeddings ``[n, d]``."""

    # normalisation for its public weights; None without public weights
    published: Normalisation | None = None
    comes_trained: bool = False  # it has public weights, which `load_published` loads
    registered: str | None = None  # its name in ``encoders.registry``, with public weights
    size: int | None = None  # training resolution of these weights; None: any
    waveforms: bool = False  # the input is sound [n, samples], not images

    def __init__(self, width_out: int) -> None:
        super().__init__()
        self.width_out = width_out  # the embedding size d

    @abstractmethod
    def maps(self, x: Tensor) -> Tensor:
        """Return the last convolutional feature maps ``[n, d, h, w]``."""

    def pool(self, maps: Tensor) -> Tensor:
        """Return embeddings ``[n, d]``: the mean of each map."""
        return maps.mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Return embeddings ``[n, d]``."""
        return self.pool(self.maps(x))

    def load_published(self) -> None:
        """Load the public weights."""
        raise UnsupportedError(f"{type(self).__name__} has no public weights of its own.")

    def has_published(self) -> bool:
        """Return whether the weights are the public ones, as far as known."""
        return False


class _Thinning(nn.Conv2d):
    """A strided 1x1 convolution that, on CPUs, first selects the strided pixels.

    The result is the same. It avoids a bug of torch 2.13 on CPUs: the gradient writes out of bounds with at most eight channels,
    channels-last memory and many images.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return ``[n, out, h', w']`` from ``[n, channels, h, w]``."""
        if input.device.type != "cpu":
            return super().forward(input)
        down, right = self.stride
        return F.conv2d(input[:, :, ::down, ::right], self.weight, self.bias)


def convolution(channels: int, out: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Return a convolution without bias that keeps the map's side at stride 1."""
    kind = _Thinning if kernel == 1 and stride > 1 else nn.Conv2d
    return kind(channels, out, kernel, stride, kernel // 2, bias=False)


def initialise(module: nn.Module) -> None:
    """Draw convolutions from a normal distribution scaled by their fan-out (Kaiming); biases become zero."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
            if part.bias is not None:
                nn.init.zeros_(part.bias)
