"""Every image backbone by name."""

from collections.abc import Callable, Mapping
from functools import partial
from pkgutil import resolve_name
from typing import Any, Final

from labelwise.support.errors import UsageError, listing, suggest
from labelwise.support.plugins import plugins
from labelwise.train.networks.adapters import build_adapter
from labelwise.train.networks.backbone import Backbone
from labelwise.train.networks.efficientnet import EfficientNetLite0
from labelwise.train.networks.networks import ConvNet, Identity, ResNet
from labelwise.train.networks.patches import PatchNet


def efficientnet_lite0(shape: tuple[int, ...], width: int = 32) -> Backbone:
    """Build EfficientNet-lite0 with its fixed width; grey images fill its three channels."""
    if shape[0] not in (1, 3) or width != 32:
        raise UsageError(
            f'"efficientnet_lite0" takes grey or colour images and no width; given {shape}, width {width}.'
        )
    return EfficientNetLite0()


def _of_plugin(place: str, **options: Any) -> Backbone:
    """Build a backbone of a plug-in, importing its module."""
    backbone: Backbone = resolve_name(place)(**options)
    return backbone


BACKBONES: Final[Mapping[str, Callable[..., Backbone]]] = {
    "convnet": ConvNet,
    "resnet18": partial(ResNet, (2, 2, 2, 2)),
    "resnet50": partial(ResNet, (3, 4, 6, 3), bottleneck=True),
    "efficientnet_lite0": efficientnet_lite0,
    "patches": PatchNet,
    "identity": Identity,
    **{name: partial(_of_plugin, at) for plugin in plugins() for name, at in plugin.BACKBONES.items()},
}
ON_FEATURES: Final = ("identity", *(name for plugin in plugins() for name in plugin.ON_FEATURES))  # others take images


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
        return build_adapter(library, model, shape, width)
    if name not in BACKBONES:
        raise UsageError(
            f'No backbone "{name}".{suggest(name, BACKBONES)} Known backbones: {listing(["auto", *BACKBONES])}.'
        )
    if features != (name in ON_FEATURES):
        allowed = listing(f'"{backbone}"' for backbone in BACKBONES if (backbone in ON_FEATURES) == features)
        kind = "precomputed features" if features else "images"
        raise UsageError(f'The data are {kind} of shape {shape}, and "{name}" does not take these. Use {allowed}.')
    if width is not None and name == "identity":
        raise UsageError(f'The backbone "identity" has no width; given {width}. Leave it out.')
    if width is not None and width < 1:
        raise UsageError(f"The width of a backbone must be at least 1; given {width}.")
    return BACKBONES[name](shape=shape, **({} if width is None else {"width": width}))
