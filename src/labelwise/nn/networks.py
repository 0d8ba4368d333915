"""Residual, VGG and small convolutional networks.

Residual and VGG networks name their parameters as torchvision does, so public weights of these networks fit.
"""

from typing import Final

from torch import Tensor, nn
from torch.nn import functional as F

from labelwise.errors import UnsupportedError
from labelwise.nn.backbone import Backbone, convolution, initialise
from labelwise.nn.weights import IMAGENET

SMALL = 64  # images up to this side keep their resolution in the stem


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, ``[n, channels, h, w] -> [n, planes, h / stride, w / stride]``."""

    expansion: Final = 1

    def __init__(self, channels: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = convolution(channels, planes, 3, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = convolution(planes, planes, 3)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = shortcut(channels, planes, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's maps."""
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x), inplace=True)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions and a shortcut, ``[n, channels, h, w] -> [n, 4 * planes, h / stride, w / stride]``."""

    expansion: Final = 4

    def __init__(self, channels: int, planes: int, stride: int) -> None:
        super().__init__()
        out = planes * self.expansion
        self.conv1 = convolution(channels, planes, 1)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = convolution(planes, planes, 3, stride)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = convolution(planes, out, 1)
        self.bn3 = nn.BatchNorm2d(out)
        self.downsample = shortcut(channels, out, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's maps."""
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x), inplace=True)


Block = BasicBlock | Bottleneck


def shortcut(channels: int, out: int, stride: int) -> nn.Sequential:
    """Return the path around a block: nothing where shapes agree, else a 1x1 convolution."""
    if channels == out and stride == 1:
        return nn.Sequential()
    return nn.Sequential(convolution(channels, out, 1, stride), nn.BatchNorm2d(out))


def blocks(block: type[Block], depth: int, channels: int, out: int, stride: int) -> nn.Sequential:
    """Return one stage of a residual network; its first block changes the shape."""
    planes = out // block.expansion
    return nn.Sequential(block(channels, planes, stride), *(block(out, planes, 1) for _ in range(depth - 1)))


class ResNet(Backbone):
    """A residual network; d is 8 (basic blocks) or 32 (bottlenecks) times its width.

    Args:
        block: BasicBlock or Bottleneck.
        depths: how many blocks each of the four stages has.
        shape: of one image, ``(c, h, w)``. Images up to 64 pixels get a 3x3 stem that keeps their resolution; larger
            ones the usual 7x7 stem of stride 2 and max pooling.
        width: channels of the stem; 64 is the published network.
        quiet_start: start every block as its shortcut alone (zero scale in its last batch norm).
    """

    published = IMAGENET

    def __init__(
        self,
        block: type[Block],
        depths: tuple[int, int, int, int],
        shape: tuple[int, ...],
        width: int = 64,
        quiet_start: bool = False,
    ) -> None:
        super().__init__(8 * width * block.expansion)
        small = max(shape[1:]) <= SMALL
        self.conv1 = convolution(shape[0], width, 3) if small else convolution(shape[0], width, 7, stride=2)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1)
        out = [width * 2**stage * block.expansion for stage in range(4)]
        self.layer1 = blocks(block, depths[0], width, out[0], 1)
        self.layer2 = blocks(block, depths[1], out[0], out[1], 2)
        self.layer3 = blocks(block, depths[2], out[1], out[2], 2)
        self.layer4 = blocks(block, depths[3], out[2], out[3], 2)
        initialise(self)
        if quiet_start:
            for part in self.modules():
                if isinstance(part, Block):
                    nn.init.zeros_((part.bn2 if isinstance(part, BasicBlock) else part.bn3).weight)

    def maps(self, x: Tensor) -> Tensor:
        """Return the maps of the last stage ``[n, d, h, w]``."""
        x = self.maxpool(F.relu(self.bn1(self.conv1(x)), inplace=True))
        return self.layer4(self.layer3(self.layer2(self.layer1(x))))  # type: ignore[no-any-return]


class VGG(Backbone):
    """VGG-11 with batch norm, without its fully connected layers; d is 8 times its width (64 as published).

    Of its five max pools those that would leave no map are left out: images below 32 pixels get fewer.
    """

    published = IMAGENET

    def __init__(self, shape: tuple[int, ...], width: int = 64) -> None:
        super().__init__(8 * width)
        layers: list[nn.Module] = []
        channels, side = shape[0], min(shape[1:])
        for multiples in ((1,), (2,), (4, 4), (8, 8), (8, 8)):
            for multiple in multiples:
                out = multiple * width
                layers += [nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
                channels = out
            layers.append(nn.MaxPool2d(2) if side >= 2 else nn.Identity())  # numbering stays the published one
            side //= 2
        self.features = nn.Sequential(*layers)
        initialise(self)

    def maps(self, x: Tensor) -> Tensor:
        """Return the maps of the last block ``[n, d, h, w]``."""
        return self.features(x)  # type: ignore[no-any-return]


class ConvNet(Backbone):
    """A small network for a CPU: four 3x3 convolutions with batch norm; d is 8 times its width.

    A max-pool follows each of the first three as long as at least 4 pixels a side are left. The embedding takes the maximum
    of each map, not its mean: with so few layers, what tells two labels apart may fill only a few pixels.
    """

    def __init__(self, shape: tuple[int, ...], width: int = 16) -> None:
        super().__init__(8 * width)
        layers: list[nn.Module] = []
        channels, side = shape[0], min(shape[1:])
        for place, out in enumerate((width, 2 * width, 4 * width, 8 * width)):
            layers += [convolution(channels, out, 3), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
            channels = out
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
    """Passes precomputed features ``[n, a]`` on as they are."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape[0])

    def maps(self, x: Tensor) -> Tensor:  # noqa: ARG002
        """Raise an error: features have no maps."""
        raise UnsupportedError("Precomputed features have no feature maps; give images to see where a label is found.")

    def forward(self, x: Tensor) -> Tensor:
        """Return the features ``[n, a]``."""
        return x
