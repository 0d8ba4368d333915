"""Backbones that tables of papers are about: VGG, LeNet, wide and 12-layer residual networks.

VGG names its parameters as torchvision does, so public weights fit.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from labelwise.support.errors import UsageError
from labelwise.train.networks.backbone import Backbone, convolution, initialise
from labelwise.train.networks.weights import IMAGENET

SMALLEST = 16  # the side that two unpadded 5x5 convolutions, each halved after, leave one pixel of


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


class LeNet(Backbone):
    """Two 5x5 convolutions, each with a max pool, and a linear layer; d is 5 times its width, 50 for digits."""

    def __init__(self, shape: tuple[int, ...], width: int = 10) -> None:
        super().__init__(5 * width)
        if min(shape[1:]) < SMALLEST:
            raise UsageError(f'"lenet" takes images of at least {SMALLEST} pixels a side; given {shape}.')
        self.conv1 = nn.Conv2d(shape[0], width, 5)
        self.conv2 = nn.Conv2d(width, 2 * width, 5)
        sides = [((side - 4) // 2 - 4) // 2 for side in shape[1:]]
        self.full = nn.Linear(2 * width * sides[0] * sides[1], 5 * width)
        initialise(self)

    def maps(self, x: Tensor) -> Tensor:
        """Return the maps of the second convolution ``[n, 2 * width, h, w]``."""
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        return F.relu(F.max_pool2d(self.conv2(x), 2))

    def pool(self, maps: Tensor) -> Tensor:
        """Return embeddings ``[n, d]``: a linear layer on all pixels of the maps."""
        return F.relu(self.full(maps.flatten(1)))


class LeNetDropout(LeNet):
    """LeNet whose maps of the second convolution are dropped half of the time, as in the code of the prototype paper."""

    def maps(self, x: Tensor) -> Tensor:
        """Return the maps of the second convolution ``[n, 2 * width, h, w]``."""
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        return F.relu(F.max_pool2d(F.dropout2d(self.conv2(x), 0.5, self.training), 2))


class WideBlock(nn.Module):
    """Batch norm and ReLU before each of two 3x3 convolutions, and a shortcut."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = convolution(channels, out, 3, stride)
        self.bn2 = nn.BatchNorm2d(out)
        self.conv2 = convolution(out, out, 3)
        self.shortcut = None if channels == out and stride == 1 else convolution(channels, out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's maps ``[n, out, h / stride, w / stride]``."""
        y = F.relu(self.bn1(x))
        around = x if self.shortcut is None else self.shortcut(y)
        return self.conv2(F.relu(self.bn2(self.conv1(y)))) + around  # type: ignore[no-any-return]


class WideResNet(Backbone):
    """WRN-28-10: three stages of four blocks, ten times as wide as the stem; d is 40 times its width (16 as published)."""

    def __init__(self, shape: tuple[int, ...], width: int = 16) -> None:
        super().__init__(40 * width)
        self.conv1 = convolution(shape[0], width, 3)
        layers: list[nn.Module] = []
        channels = width
        for stage, out in enumerate((10 * width, 20 * width, 40 * width)):
            layers += [WideBlock(channels if i == 0 else out, out, 2 if stage and i == 0 else 1) for i in range(4)]
            channels = out
        self.blocks = nn.Sequential(*layers)
        self.bn = nn.BatchNorm2d(channels)
        initialise(self)

    def maps(self, x: Tensor) -> Tensor:
        """Return the maps of the last stage ``[n, d, h, w]``."""
        return F.relu(self.bn(self.blocks(self.conv1(x))))


class TripleBlock(nn.Module):
    """Three 3x3 convolutions with batch norm, a shortcut, and a max pool where at least two pixels are left to pool."""

    def __init__(self, channels: int, out: int, pooled: bool) -> None:
        super().__init__()
        sizes = (channels, out, out)
        self.convs = nn.ModuleList(convolution(size, out, 3) for size in sizes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(out) for _ in sizes)
        self.shortcut = nn.Sequential(convolution(channels, out, 1), nn.BatchNorm2d(out))
        self.pooled = pooled

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's maps ``[n, out, h / 2, w / 2]``."""
        y = x
        for place, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            y = norm(conv(y))
            y = F.leaky_relu(y if place < 2 else y + self.shortcut(x), 0.1)
        return F.max_pool2d(y, 2) if self.pooled else y


class ResNet12(Backbone):
    """The residual network of few-shot learning: four blocks of three convolutions; d is 10 times its width (64 as published)."""

    def __init__(self, shape: tuple[int, ...], width: int = 64) -> None:
        super().__init__(10 * width)
        layers: list[nn.Module] = []
        channels, side = shape[0], min(shape[1:])
        for out in (width, 5 * width // 2, 5 * width, 10 * width):
            layers.append(TripleBlock(channels, out, pooled=side >= 2))
            channels, side = out, side // 2 if side >= 2 else side
        self.blocks = nn.Sequential(*layers)
        initialise(self)

    def maps(self, x: Tensor) -> Tensor:
        """Return the maps of the last block ``[n, d, h, w]``."""
        return self.blocks(x)  # type: ignore[no-any-return]
