"""Settings of an image encoder: network, weights, trained or frozen."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from labelwise.encoders.choose import choose_encoder
from labelwise.encoders.efficientnet import VARIANTS
from labelwise.encoders.encoder import Encoder as FrozenEncoder
from labelwise.encoders.registry import is_fixed, is_installed, open_encoder
from labelwise.images.view import WHOLE, View
from labelwise.support.errors import UsageError
from labelwise.support.settings import setting

if TYPE_CHECKING:
    from labelwise.train.networks.image_encoder import ImageEncoder

PRETRAINED = "efficientnet_lite0"
DEFAULT_SIDE = 64  # default image side of a network trained from scratch
LARGEST = 2**28  # upper bound of an image side: beyond 9,000 pixels is a mistake


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """The image encoder. The first setting to change if accuracy is too low."""

    backbone: str = setting(
        "auto",
        "convnet, resnet18, resnet50, efficientnet_lite0, timm:NAME or another known network; auto is efficientnet_lite0 where frozen, else a small one.",
    )
    width: int | None = setting(None, "Base width of the backbone; none: as published.")
    code_size: int | None = setting(None, "Embedding size; none: as the backbone has.")
    weights: str | None = setting(
        None, "A .safetensors file of weights; none: public weights if there are any, else random."
    )
    frozen: bool = setting(False, "Keep the weights; each training image is encoded once and only the head is trained.")
    size: int | None = setting(None, "Another name of view.size.")

    def build(self, shape: tuple[int, ...], view: View = WHOLE, *, to_publish: bool = False) -> "ImageEncoder":
        """Build the image encoder for a shape and a view.

        Weights that cannot be loaded raise their error on first use, so that a saved classifier, which holds them, opens
        without. One whose own weights are ``to_publish`` is normalised as public ones are.
        """
        if self.by_onnx:
            raise UsageError(
                f'"{self.backbone}" makes features, and is not trained. Choose "{PRETRAINED}" to train it further.'
            )
        from labelwise.train.networks.backbones import build_backbone
        from labelwise.train.networks.image_encoder import ImageEncoder

        view = self.sized(view)
        if view.size is not None and len(shape) == 1:
            raise UsageError(f"The encoder's size is a side of images in pixels; given {view.size} for {shape}.")
        is_frozen = self.frozen and len(shape) == 3  # features have no backbone to freeze
        name = PRETRAINED if self.backbone == "auto" and is_frozen else self.backbone
        input_shape = view.seen(shape)
        largest = max(shape, input_shape, key=math.prod)
        if math.prod(largest) > LARGEST:
            raise UsageError(f"An image has at most {LARGEST} numbers; given {largest}.")
        backbone = build_backbone(name, input_shape, self.width)
        is_trained = backbone.comes_trained or self.weights is not None
        published = backbone.published if is_trained or to_publish else None
        if published and not backbone.comes_trained and shape[0] == 1:  # grey images fill all channels
            backbone = build_backbone(name, (len(published[0]), *input_shape[1:]), self.width)
        if is_frozen and not is_trained:
            raise UsageError(
                f'A frozen "{name}" would keep its random weights. Give weights, the path of a .safetensors file, or '
                'choose "efficientnet_lite0", which brings its own.'
            )
        view = replace(view, size=view.size or backbone.size)
        encoder = ImageEncoder(backbone, shape, self.code_size, fixed=published, frozen=is_frozen, view=view)
        if is_trained:
            encoder.load_weights(self.weights)
        return encoder

    def check(self, side: int, view: View = WHOLE) -> None:
        """Raise an error before images are read, if the encoder cannot be built for them or its weights cannot be loaded."""
        if self.by_onnx:
            self.open_encoder(view)
            return
        if self.backbone in ("auto", *VARIANTS) and self.weights is None:
            if self.frozen and not is_installed():
                VARIANTS[PRETRAINED].weights()  # raises an error with the missing package
            return
        from labelwise.train.networks.backbones import ON_FEATURES

        if self.backbone not in ("auto", *ON_FEATURES) or self.weights is not None:
            self.build((3, side, side), view).check_weights()

    @property
    def by_onnx(self) -> bool:
        """Whether it takes one image shape and is never trained: an ONNX file, or a fixed plug-in."""
        return is_fixed(self.backbone)

    def open_encoder(self, view: View = WHOLE, shape: tuple[int, ...] | None = None) -> FrozenEncoder:
        """Return the torch-free encoder: of an ONNX file, or of published weights."""
        if self.by_onnx and (self.weights, self.width, self.code_size) != (None, None, None):
            raise UsageError(
                f'"{self.backbone}" has its own weights and width. Leave out encoder.weights, encoder.width and '
                "encoder.code_size."
            )
        name = PRETRAINED if self.backbone == "auto" else self.backbone
        return open_encoder(name, None if self.by_onnx else shape, self.sized(view))

    def sized(self, view: View) -> View:
        """Return a view with the side set here, which must not contradict its own."""
        if None not in (self.size, view.size) and self.size != view.size:
            raise UsageError(
                f"encoder.size={self.size} and view.size={view.size} are both the side that the network sees. Keep one of them."
            )
        return view if self.size is None else replace(view, size=self.size)

    def side(self, view: View = WHOLE) -> int | None:
        """Return the side to read images at: as set, or as the backbone's weights require; None: any."""
        if self.by_onnx:
            return self.open_encoder(view).shape[1]
        name = PRETRAINED if self.backbone == "auto" and self.frozen else self.backbone
        size = self.sized(view).size
        if size is None and name == PRETRAINED:
            size = VARIANTS[PRETRAINED].size
        elif size is None and ":" in name:  # other libraries bring no weights
            from labelwise.train.networks.backbones import build_backbone

            size = build_backbone(name, (3, DEFAULT_SIDE, DEFAULT_SIDE), self.width).size
        return None if size is None else view.side(size)


def pretrained_encoder(images: int = 0, *, trainable: bool = False) -> Encoder | None:
    """Return the default encoder for this many user images; None if none is installed."""
    if trainable:
        return Encoder(backbone=PRETRAINED, frozen=True) if is_installed() else None
    choice = choose_encoder(images)
    return None if choice is None else Encoder(backbone=choice.name, frozen=True)


def side_for(encoder: Encoder | None, view: View = WHOLE) -> int:
    """Return the side in pixels to read the user's images at; None: for training from scratch."""
    return (encoder or Encoder()).side(view) or view.side(DEFAULT_SIDE)
