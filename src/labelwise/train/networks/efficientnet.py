"""EfficientNet-lite0: a small network with ImageNet weights from a package, so nothing is downloaded.

The network is the published one: no squeeze-and-excite, ReLU6, and padding as TensorFlow has it, where the odd pixel goes
to the right and the bottom.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labelwise.encoders.efficientnet import EPSILON, LITE0, WIDTH
from labelwise.train.networks.backbone import Backbone

# The package's layer names, inside and outside of blocks.
BLOCK_NAMES: Final = {
    "_expand_conv": "expand.0", "_bn0": "expand.1", "_depthwise_conv": "depthwise.0", "_bn1": "depthwise.1",
    "_project_conv": "project.0", "_bn2": "project.1",
}  # fmt: skip
OUTER_NAMES: Final = {"_conv_stem": "stem.0", "_bn0": "stem.1", "_conv_head": "head.0", "_bn1": "head.1"}


class SameConvolution(nn.Conv2d):
    """A convolution without bias whose output has ``ceil(side / stride)`` pixels per side."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(channels, out, kernel, stride, kernel // 2 if stride == 1 else 0, groups=groups, bias=False)

    def spare(self, shape: Sequence[int]) -> list[tuple[int, int]]:
        """Return the padding before and after the height and the width of maps ``(n, c, h, w)``."""
        stride, kernel = self.stride[0], self.kernel_size[0]
        sums = [max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in shape[2:]]
        return [(pixels // 2, pixels - pixels // 2) for pixels in sums]

    def forward(self, x: Tensor) -> Tensor:
        """Return the maps."""
        if self.stride[0] > 1:
            x = F.pad(x, [pixels for side in reversed(self.spare(x.shape)) for pixels in side])
        return super().forward(x)


def layer(channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Return a convolution and its batch norm."""
    return nn.Sequential(SameConvolution(channels, out, kernel, stride, groups), nn.BatchNorm2d(out, eps=EPSILON))


class InvertedBlock(nn.Module):
    """An inverted residual block: widen, filter per channel, narrow; with a shortcut if the shape stays."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = channels * expansion
        self.expand = layer(channels, inner, 1) if expansion > 1 else None
        self.depthwise = layer(inner, inner, kernel, stride, groups=inner)
        self.project = layer(inner, out, 1)
        self.shortcut = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's maps ``[n, out, h / stride, w / stride]``."""
        y = x if self.expand is None else F.relu6(self.expand(x), inplace=True)
        y = self.project(F.relu6(self.depthwise(y), inplace=True))
        return x + y if self.shortcut else y  # type: ignore[no-any-return]


class EfficientNetLite0(Backbone):
    """The network for colour images of any size (trained on 224 x 224); d is 1280."""

    published = ((127 / 255,) * 3, (128 / 255,) * 3)
    comes_trained = True
    registered = LITE0.name
    size = LITE0.size

    def __init__(self) -> None:
        super().__init__(WIDTH)
        self.stem = layer(3, 32, 3, 2)
        self.blocks = nn.Sequential(
            *(
                InvertedBlock(channels, out, kernel, stride, expansion)
                for kernel, stride, expansion, channels, out in LITE0.blocks()
            )
        )
        self.head = layer(320, self.width_out, 1)

    def maps(self, x: Tensor) -> Tensor:
        """Return the last maps ``[n, 1280, h / 32, w / 32]``."""
        x = F.relu6(self.stem(x), inplace=True)
        return F.relu6(self.head(self.blocks(x)), inplace=True)

    def load_published(self) -> None:
        """Load the ImageNet weights of the installed package."""
        self.load_state_dict(packaged_weights())

    def has_published(self) -> bool:
        """Return whether the weights are the public ones; False if these are not installed."""
        if LITE0.file() is None:
            return False
        own = self.state_dict()
        return all(torch.equal(own[name].cpu(), value) for name, value in packaged_weights().items())


def packaged_weights() -> dict[str, Tensor]:
    """Return the installed ImageNet weights under our names."""
    return our_names({name: torch.from_numpy(value) for name, value in LITE0.weights().items()})


def our_names(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the package's weights under our names, without the classification head."""
    renamed = {}
    for name, value in weights.items():
        *block, layer_name, piece = name.split(".")
        if block or layer_name in OUTER_NAMES:
            ours = f"blocks.{block[1]}.{BLOCK_NAMES[layer_name]}" if block else OUTER_NAMES[layer_name]
            renamed[f"{ours}.{piece}"] = value
    return renamed
