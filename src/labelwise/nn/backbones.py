"""Image backbones: networks that turn images into codes and know no task.

Residual and VGG networks name their parameters as torchvision does, so public weights of these networks fit.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from torch import Tensor, nn
from torch.nn import functional as F

from labelwise.errors import UnsupportedError, UsageError, listing, suggest
from labelwise.nn.weights import IMAGENET, Normalisation, load_weights

__all__ = ["BACKBONES", "Backbone", "build_backbone", "load_weights"]

SMALL = 64  # images up to this side keep their resolution in the stem


class Backbone(nn.Module, ABC):
    """Turns normalised images ``[n, c, h, w]`` into codes ``[n, d]``.

    Attributes:
        width_out: d, the size of a code.
        published: how images must be normalised for its public weights; None where there are none.
        comes_trained: whether it has public weights of its own, which ``load_published`` loads.
        size: the side of the images that these were trained on; None takes images as they are.
        waveforms: whether it takes sound ``[n, samples]`` in place of images.
    """

    published: Normalisation | None = None
    comes_trained: bool = False
    size: int | None = None
    waveforms: bool = False

    def __init__(self, width_out: int) -> None:
        super().__init__()
        self.width_out = width_out

    @abstractmethod
    def maps(self, x: Tensor) -> Tensor:
        """Return the last convolutional feature maps ``[n, d, h, w]``."""

    def pool(self, maps: Tensor) -> Tensor:
        """Return codes ``[n, d]``: the mean of each map."""
        return maps.mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Return codes ``[n, d]``."""
        return self.pool(self.maps(x))

    def load_published(self) -> None:
        """Load the public weights."""
        raise UnsupportedError(f"{type(self).__name__} has no public weights of its own.")


class _Thinning(nn.Conv2d):
    """A convolution of single pixels with a stride, on CPUs over those pixels alone.

    It is the same map. But there the gradient of torch's own (2.13) writes beyond its memory where there are eight channels
    or fewer, last in memory, and many images.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return ``[n, out, h', w']`` from ``[n, channels, h, w]``."""
        if input.device.type != "cpu":
            return super().forward(input)
        down, right = self.stride
        return F.conv2d(input[:, :, ::down, ::right], self.weight)


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

    A max-pool follows each of the first three as long as at least 4 pixels a side are left. The code takes the maximum
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


def efficientnet_lite0(shape: tuple[int, ...], width: int = 32) -> Backbone:
    """Return EfficientNet-lite0, whose width is fixed; grey images are given to all of its three channels."""
    from labelwise.nn.efficientnet import EfficientNetLite0

    if shape[0] not in (1, 3) or width != 32:
        raise UsageError(
            f'"efficientnet_lite0" takes grey or colour images and no width; given {shape}, width {width}.'
        )
    return EfficientNetLite0()


def small(name: str, shape: tuple[int, ...], width: int | None = None) -> Backbone:
    """Return a backbone of ``nn.small_backbones``."""
    from labelwise.nn.small_backbones import SMALL_BACKBONES

    return SMALL_BACKBONES[name](shape) if width is None else SMALL_BACKBONES[name](shape, width)


def patches(shape: tuple[int, ...], width: int = 200) -> Backbone:
    """Return the network of ``nn.patches``."""
    from labelwise.nn.patches import PatchNet

    return PatchNet(shape, width)


WAVEFORMS: Final = ("xvector_8k", "xvector_16k", "xvector_mel_8k", "xvector_mel_16k")
ON_FEATURES: Final = ("identity", *WAVEFORMS)  # the others take images
BACKBONES: Final[Mapping[str, Callable[..., Backbone]]] = {
    "convnet": ConvNet,
    "resnet18": partial(ResNet, BasicBlock, (2, 2, 2, 2)),
    "resnet50": partial(ResNet, Bottleneck, (3, 4, 6, 3)),
    "vgg11_bn": VGG,
    "efficientnet_lite0": efficientnet_lite0,
    "patches": patches,
    "identity": Identity,
    **{name: partial(small, name) for name in ("lenet", "wrn28_10", "resnet12", "xvector", *WAVEFORMS)},
}


def build_backbone(name: str, shape: tuple[int, ...], width: int | None = None) -> Backbone:
    """Return a new backbone for images of one shape, without public weights.

    Args:
        name: one of ``BACKBONES``; or "auto": "identity" for features, "convnet" for images; or a network of another
            library, such as "timm:NAME" (see ``nn.adapters``).
        shape: ``(c, h, w)``, or ``(a,)`` for precomputed features and waveforms.
        width: channels of the first convolution; None is the default of the backbone, mostly 64, as published.
    """
    features = len(shape) == 1
    if len(shape) not in (1, 3) or min(shape) < 1:
        raise UsageError(f"An image is (channels, height, width), features are (size,), all at least 1; given {shape}.")
    if name == "auto":
        name = "identity" if features else "convnet"
    library, _, model = name.partition(":")
    if model and not features:
        from labelwise.nn.adapters import build_adapter

        return build_adapter(library, model, shape, width)
    if name not in BACKBONES:
        raise UsageError(
            f'No backbone "{name}".{suggest(name, BACKBONES)} Known backbones: {listing(["auto", *BACKBONES])}.'
        )
    if features != (name in ON_FEATURES):
        needed = listing(f'"{known}"' for known in BACKBONES if (known in ON_FEATURES) == features)
        given = "precomputed features" if features else "images"
        raise UsageError(f'The data are {given} of shape {shape}, and "{name}" does not take these. Use {needed}.')
    if width is None:
        return BACKBONES[name](shape=shape)
    if name == "identity":
        raise UsageError(f'The backbone "identity" has no width; given {width}. Leave it out.')
    if width < 1:
        raise UsageError(f"The width of a backbone must be at least 1; given {width}.")
    return BACKBONES[name](shape=shape, width=width)
