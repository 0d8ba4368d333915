"""Residual and small convolutional networks.

Residual networks name their parameters as torchvision does, so public weights of these networks fit.
"""

from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from labelwise.support.errors import UnsupportedError
from labelwise.train.networks.backbone import Backbone, convolution, initialise
from labelwise.train.networks.weights import IMAGENET

EXPANSION = 4  # width of a bottleneck's output relative to its inner layers
SMALL = 64  # no downsampling in the stem up to this side


class ResidualBlock(nn.Module):
    """Convolutions with batch norm and a shortcut around them, ``[n, channels, h, w] -> [n, out, h / stride, w / stride]``.

    Two of 3x3; or, as a bottleneck, 1x1, 3x3 and 1x1, of which the first two have a quarter of the channels.
    """

    def __init__(self, channels: int, channels_out: int, stride: int, *, bottleneck: bool = False) -> None:
        super().__init__()
        planes = channels_out // EXPANSION if bottleneck else channels_out
        sizes = (channels, planes, planes, channels_out) if bottleneck else (channels, planes, channels_out)
        self.depth = len(sizes) - 1
        for place, (size, wide) in enumerate(pairwise(sizes), 1):
            kernel = 3 if not bottleneck or place == 2 else 1
            self.add_module(f"conv{place}", convolution(size, wide, kernel, stride if place == self.depth - 1 else 1))
            self.add_module(f"bn{place}", nn.BatchNorm2d(wide))
        same = channels == channels_out and stride == 1
        self.downsample = nn.Sequential(
            *([] if same else [convolution(channels, channels_out, 1, stride), nn.BatchNorm2d(channels_out)])
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's maps."""
        y = x
        for place in range(1, self.depth + 1):
            y = self.get_submodule(f"bn{place}")(self.get_submodule(f"conv{place}")(y))
            y = F.relu(y if place < self.depth else y + self.downsample(x), inplace=True)
        return y


class ResNet(Backbone):
    """A residual network of four stages with these numbers of blocks; d is 8 (basic blocks) or 32 (bottlenecks) times its width.

    Images up to 64 pixels get a 3x3 stem that keeps their resolution; larger ones the usual 7x7 stem of stride 2 and max pooling.
    """

    published = IMAGENET

    def __init__(
        self, depths: tuple[int, int, int, int], shape: tuple[int, ...], width: int = 64, *, bottleneck: bool = False
    ) -> None:
        super().__init__(8 * width * (EXPANSION if bottleneck else 1))
        small = max(shape[1:]) <= SMALL
        self.conv1 = convolution(shape[0], width, 3) if small else convolution(shape[0], width, 7, stride=2)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1)
        channels = width
        for stage, depth in enumerate(depths, 1):
            channels_out = self.width_out // 2 ** (4 - stage)
            blocks = [
                ResidualBlock(
                    channels_out if place else channels,
                    channels_out,
                    1 if place or stage == 1 else 2,
                    bottleneck=bottleneck,
                )
                for place in range(depth)
            ]
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
            channels = channels_out
        initialise(self)

    def maps(self, x: Tensor) -> Tensor:
        """Return the maps of the last stage ``[n, d, h, w]``."""
        x = self.maxpool(F.relu(self.bn1(self.conv1(x)), inplace=True))
        for stage in range(1, 5):
            x = self.get_submodule(f"layer{stage}")(x)
        return x


class ConvNet(Backbone):
    """A small network for a CPU: four 3x3 convolutions with batch norm; d is 8 times its width.

    A max-pool follows each of the first three as long as at least 4 pixels a side are left. The embedding takes the maximum
    of each map, not its mean: with so few layers, what tells two labels apart may fill only a few pixels.
    """

    def __init__(self, shape: tuple[int, ...], width: int = 16) -> None:
        super().__init__(8 * width)
        layers: list[nn.Module] = []
        channels, side = shape[0], min(shape[1:])
        for place, channels_out in enumerate((width, 2 * width, 4 * width, 8 * width)):
            layers += [convolution(channels, channels_out, 3), nn.BatchNorm2d(channels_out), nn.ReLU(inplace=True)]
            channels = channels_out
            if place < 3 and side >= 8:
                layers.append(nn.MaxPool2d(2))
                side //= 2
        self.features = nn.Sequential(*layers)
        initialise(self)

    def maps(self, x: Tensor) -> Tensor:
        """Return the maps of the last convolution ``[n, d, h, w]``."""
        return self.features(x)  # type: ignore[no-any-return]

    def pool(self, maps: Tensor) -> Tensor:
        """Return the largest value of each map ``[n, d]``."""
        return maps.amax((2, 3))


class Identity(Backbone):
    """Pass precomputed features ``[n, a]`` through."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape[0])

    def maps(self, x: Tensor) -> Tensor:  # noqa: ARG002
        """Raise an error: features have no maps."""
        raise UnsupportedError("Precomputed features have no feature maps; give images to see where a label is found.")

    def forward(self, x: Tensor) -> Tensor:
        """Return the features ``[n, a]``."""
        return x
