"""The image encoder: normalisation, a backbone, and a projection where another code size is wanted.

Normalisation and backbone are the trunk, what follows is the finish: ``embeddings = finish(trunk(images))``. A frozen trunk is
never trained, so its features can be computed once and finished many times.
"""

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torch.utils.weak import WeakTensorKeyDictionary

from labelwise.cache import Cache, digest, is_on, pixel_digests
from labelwise.errors import LabelwiseError, UsageError
from labelwise.lazy import LazyImages
from labelwise.model import as_float
from labelwise.nn.backbone import Backbone
from labelwise.nn.backbones import ON_FEATURES, build_backbone
from labelwise.nn.efficientnet import EfficientNetLite0
from labelwise.nn.runtime import PIECE, Network, Runtime, side_by_side
from labelwise.nn.weights import Normalisation, load_weights
from labelwise.processes import total
from labelwise.streams import by_shares, byte_sums, own_rows, stream_of
from labelwise.view import WHOLE, View

PRETRAINED = "efficientnet_lite0"
DEFAULT_SIDE = 64  # of pictures for a network that is trained from scratch
CHUNK = 2**22  # numbers held in double precision at a time
FLOOR = 1e-3  # smallest standard deviation, relative to the largest
LARGEST = 2**28  # numbers of an image: one of more than 9,000 pixels a side is a mistake
QUIET = 1e-5  # root mean square of a waveform below which it is not made louder: silence stays silence
KEPT = 1000  # images whose features go to the cache at a time
CACHE = "earlier commands (feature cache)"  # in place of a runtime, where no image was encoded
FORM = 1  # of features in the cache; another one where the same weights make others
LENGTH = 4.0  # root mean square of a standardised embedding: the right learning rate then does not depend on its size


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """Which image encoder: what turns a picture into numbers. The first thing to change where accuracy is too low."""

    # a network by name: convnet, resnet18, resnet50, efficientnet_lite0, timm:NAME ...; "auto" is "efficientnet_lite0"
    # where it is frozen, else a small one. Larger ones see more and take longer.
    backbone: str = "auto"
    width: int | None = None  # the backbone's base width; None is the published one, a smaller one is quicker
    code_size: int | None = None  # how many numbers a picture becomes; None is what the backbone makes
    # a .safetensors file of the backbone's weights; None starts from the public ones where the backbone brings them
    # (efficientnet_lite0 and those of other libraries), else at random
    weights: str | None = None
    # the backbone keeps these weights: each training image is encoded once, and only what follows is trained
    frozen: bool = False
    size: int | None = None  # another name of `View.size`, the side that the backbone sees

    def build(self, shape: tuple[int, ...], view: View = WHOLE, *, to_publish: bool = False) -> "ImageEncoder":
        """Return a new image encoder with these settings, for images of a shape that are seen so.

        Weights that cannot be loaded raise their error on first use, so that a saved classifier, which holds them, opens
        without. One whose own weights are ``to_publish`` is normalised as public ones are.
        """
        view = self.sized(view)
        if view.size is not None and len(shape) == 1:
            raise UsageError(f"The encoder's size is a side of images in pixels; given {view.size} for {shape}.")
        frozen = self.frozen and len(shape) == 3  # features have no backbone to freeze
        name = PRETRAINED if self.backbone == "auto" and frozen else self.backbone
        seen = view.seen(shape)
        largest = max(shape, seen, key=math.prod)
        if math.prod(largest) > LARGEST:
            raise UsageError(f"An image has at most {LARGEST} numbers; given {largest}.")
        backbone = build_backbone(name, seen, self.width)
        trained = backbone.comes_trained or self.weights is not None
        fixed = backbone.published if trained or to_publish else None
        if fixed and not backbone.comes_trained and shape[0] == 1:  # grey images fill all channels
            backbone = build_backbone(name, (len(fixed[0]), *seen[1:]), self.width)
        if frozen and not trained:
            raise UsageError(
                f'A frozen "{name}" would keep its random weights. Give weights, the path of a .safetensors file, or '
                'choose "efficientnet_lite0", which brings its own.'
            )
        view = replace(view, size=view.size or backbone.size)
        encoder = ImageEncoder(backbone, shape, self.code_size, fixed=fixed, frozen=frozen, view=view)
        if trained:
            encoder.load_weights(self.weights)
        return encoder

    def check(self, side: int, view: View = WHOLE) -> None:
        """Raise an error where it cannot be built for pictures of a side, or its weights cannot be loaded: before these are read."""
        if self.backbone not in ("auto", *ON_FEATURES) or self.weights is not None:
            self.build((3, side, side), view).check_weights()

    def sized(self, view: View) -> View:
        """Return a view with the side that is set here, which must not contradict its own."""
        if None not in (self.size, view.size) and self.size != view.size:
            raise UsageError(
                f"encoder.size={self.size} and view.size={view.size} are both the side that the network sees. Keep one of them."
            )
        return view if self.size is None else replace(view, size=self.size)

    def side(self, view: View = WHOLE) -> int | None:
        """Return the side that pictures are best read at to be seen so: as set, or as the weights of the backbone ask; None is any."""
        name = PRETRAINED if self.backbone == "auto" and self.frozen else self.backbone
        size = self.sized(view).size
        if size is None and name == PRETRAINED:
            size = EfficientNetLite0.size
        elif size is None and ":" in name:  # the others bring no weights
            size = build_backbone(name, (3, DEFAULT_SIDE, DEFAULT_SIDE), self.width).size
        return None if size is None else view.side(size)


def pretrained_encoder() -> Encoder | None:
    """Return the encoder for a person's own pictures where nothing else is asked for; None where it is not installed."""
    from labelwise.nn.efficientnet import is_installed

    return Encoder(backbone=PRETRAINED, frozen=True) if is_installed() else None


def side_for(encoder: Encoder | None, view: View = WHOLE) -> int:
    """Return the side in pixels that a person's own pictures are read at for an encoder; None trains one from scratch."""
    return (encoder or Encoder()).side(view) or view.side(DEFAULT_SIDE)


class Kept(WeakTensorKeyDictionary):
    """What was made of tensors, as long as these live; a pickle holds none of it, for these tensors stay behind."""

    def __reduce__(self) -> tuple[type["Kept"], tuple[()]]:
        return Kept, ()


class ImageEncoder(nn.Module):
    """Turns images in [0, 1] ``[n, c, h, w]``, features ``[n, a]`` or waveforms ``[n, samples]`` into embeddings ``[n, d]``.

    Channels and features are shifted and scaled by what ``fit_normalisation`` finds. A waveform is brought to one loudness instead, a
    root mean square of 1: a sample at one place of a recording means nothing that others at that place share.

    Args:
        backbone: what follows normalisation.
        shape: of one image, ``(c, h, w)``, or ``(a,)`` for precomputed features.
        code_size: d; a linear layer follows the backbone where its own size differs. None: the backbone's size.
        fixed: mean and std that stay as they are, because the backbone's weights were made with them; one-channel images
            are normalised into as many channels as these have. None: ``fit_normalisation`` sets them.
        frozen: the trunk is never trained; ``fit_features`` standardises what it makes, before the projection.
        view: how images of the shape are seen; others are only brought to its size.
    """

    mean: Tensor  # subtracted from each channel [c] (or feature [a]); 0 until `fit_normalisation`
    std: Tensor  # divides each channel [c] (or feature [a]); 1 until `fit_normalisation`
    feature_mean: Tensor
    feature_std: Tensor

    def __init__(
        self,
        backbone: Backbone,
        shape: tuple[int, ...],
        code_size: int | None = None,
        *,
        fixed: Normalisation | None = None,
        frozen: bool = False,
        view: View = WHOLE,
    ) -> None:
        super().__init__()
        if code_size is not None and code_size < 1:
            raise UsageError(f"The code size must be at least 1; given {code_size}.")
        self.shape = shape
        self.view = view
        self.frozen = frozen
        # whether nothing before `finish` is trained, as with a frozen trunk or precomputed features
        self.untrained = frozen or (len(shape) == 1 and not backbone.waveforms)
        self.fixed = fixed is not None or backbone.waveforms
        self.backbone = backbone
        self.code_size = backbone.width_out if code_size is None else code_size  # d
        self.project: nn.Module = nn.Identity()
        if self.code_size != backbone.width_out:
            self.project = nn.Linear(backbone.width_out, self.code_size)
        channels = 1 if backbone.waveforms else shape[0]
        self.register_buffer("mean", torch.zeros(channels) if fixed is None else torch.tensor(fixed[0]))
        self.register_buffer("std", torch.ones(channels) if fixed is None else torch.tensor(fixed[1]))
        if frozen:
            self.register_buffer("feature_mean", torch.zeros(backbone.width_out))
            self.register_buffer("feature_std", torch.ones(backbone.width_out))
            self.backbone.requires_grad_(False).eval()
        self.tuning = False  # whether a frozen backbone is being trained all the same
        self._missing: LabelwiseError | None = None
        self._encoded = Kept()
        self.runtime = Runtime()  # what a backbone that is not being trained is run by
        self.register_load_state_dict_post_hook(ImageEncoder._loaded)  # type: ignore[no-untyped-call]

    def load_weights(self, path: str | None) -> None:
        """Load the backbone's weights from a file, or the public ones; an error is kept for the first use.

        Where the encoder is built without memory (on torch's "meta" device) there is nothing to load them into.
        """
        if self.mean.is_meta:
            return
        try:
            if path is None:
                self.backbone.load_published()
            else:
                load_weights(self.backbone, path)
        except LabelwiseError as error:
            self._missing = error

    def check_weights(self) -> None:
        """Raise the error of weights that could not be loaded."""
        if self._missing is not None:
            raise self._missing

    def _loaded(self, _: object) -> None:
        self._missing = None

    def train(self, mode: bool = True) -> Self:
        """Return self in training mode, or not; a frozen backbone never is, nor are batch norms that came with public weights."""
        super().train(mode)
        for module in self.backbone.modules() if self.frozen or self.backbone.comes_trained else ():
            if self.frozen or isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.training = False
        return self

    def tune(self, on: bool) -> None:
        """Let the weights of a frozen backbone be trained, with batch norms as they are, or no longer; features made before are forgotten."""
        self.backbone.requires_grad_(on)
        self.tuning, self._encoded = on, Kept()

    def normalise(self, x: Tensor) -> Tensor:
        """Return images with each channel (or feature) shifted and scaled, in the memory layout given; waveforms equally loud."""
        if self.backbone.waveforms:
            return x / x.square().mean(1, keepdim=True).sqrt().clamp_min(QUIET)
        channels = (-1, *[1] * (len(self.shape) - 1))
        return (x - self.mean.view(channels)).div_(self.std.view(channels))

    def prepare(self, x: Tensor) -> Tensor:
        """Return what the backbone takes: what the view keeps of images, of its size, normalised."""
        self.check_weights()
        size = self.view.size
        if self.view.crop is not None and x.shape[1:] == self.shape:
            x = self.view.centre(x)
        if size is not None and x.shape[2:] != (size, size):
            x = interpolate(x, (size, size), mode="bicubic", antialias=True).clamp(0, 1)
        return self.normalise(x)

    @property
    def mirrors(self) -> bool:
        """Whether a mirror image is seen, too: never by what is being trained."""
        return self.view.mirror and not self.tuning and (self.frozen or not self.training)

    def maps(self, x: Tensor) -> Tensor:
        """Return the backbone's feature maps ``[n, d_backbone, h, w]`` of images in [0, 1], without their mirror images."""
        return self.backbone.maps(self.prepare(x))

    def pool(self, maps: Tensor) -> Tensor:
        """Return embeddings ``[n, d]`` from feature maps."""
        return self.finish(self.backbone.pool(maps))

    def trunk(self, x: Tensor) -> Tensor:
        """Return the backbone's features ``[n, d_backbone]`` of images in [0, 1]; one that is not being trained takes a few at a time."""
        trains = self.training or torch.is_grad_enabled() or x.device.type == "cpu"
        if (trains and not self.frozen) or self.tuning or x.requires_grad or torch.compiler.is_exporting():
            return self._seen(self.prepare(x), self.backbone)
        features = []
        for part in torch.split(x, PIECE.get(x.device.type, 8)):
            images = self.prepare(part)
            features.append(self._seen(images, self.runtime.network(self.backbone, images)))
        return features[0] if len(features) == 1 else torch.cat(features)

    def _seen(self, x: Tensor, network: Network) -> Tensor:
        """Return the features that a network makes of what it takes, and of the mirror image where that counts, too."""
        features = network(x)
        return (features + network(x.flip(3))) / 2 if self.mirrors else features

    def finish(self, features: Tensor) -> Tensor:
        """Return embeddings ``[n, d]`` from the backbone's features ``[n, d_backbone]``; those not trained get one length."""
        if self.frozen:
            features = (features - self.feature_mean) / self.feature_std
        if self.untrained:
            features = features * (LENGTH * self.backbone.width_out**-0.5)
        return self.project(features)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        """Return embeddings ``[n, d]`` of images in [0, 1], or of features that ``trunk`` made of images."""
        return self.finish(x if self.made_by_trunk(x) else self.trunk(x))

    def made_by_trunk(self, x: Tensor) -> bool:
        """Return whether these are features of images, not images (nor the features an identity backbone takes)."""
        return x.ndim == 2 and len(self.shape) == 3

    @torch.no_grad()
    def features(self, images: Tensor) -> Tensor:
        """Return the trunk's features ``[n, d_backbone]`` of images (bytes count as [0, 1]), in eval mode, float32.

        For a frozen trunk they are kept as long as the images are, so a second call costs nothing. A bar on standard
        error shows progress where a person looks at it.
        """
        if self.made_by_trunk(images):
            return images
        if self.frozen and images in self._encoded:
            return self._encoded[images]  # type: ignore[no-any-return]
        stream = stream_of(images) if self.frozen else None
        if stream is not None:
            features = self.survey(images)
            stream.check(images.rows.tolist())  # type: ignore[attr-defined]
        else:
            features = by_shares(images, self._made)
        if self.frozen:
            self._encoded[images] = features
        return features

    def survey(self, images: Tensor) -> Tensor:
        """Return the features of images that are never kept, made once for each; zeros where one cannot be read."""
        stream = stream_of(images)
        assert stream is not None
        rows: Tensor = images.rows  # type: ignore[attr-defined]
        return stream.features(self.owner(), rows, self._made, self.backbone.width_out).to(self.mean.device)

    def _made(self, images: Tensor) -> Tensor:
        keeps = self.frozen and images.dtype == torch.uint8 and self.mean.device.type == "cpu" and is_on()
        return self._kept(images) if keeps and len(images) else self._computed(images)

    def _computed(self, images: Tensor) -> Tensor:
        """Return the trunk's features of images, a few at a time."""
        was_training, device = self.training, self.mean.device
        parts = torch.split(images, PIECE.get(device.type, 8)) if len(images) else ()
        self.eval()
        self.runtime.expect(len(images))

        def encoded(part: Tensor) -> Tensor:
            return self.trunk(as_float(part.to(device))).float()

        try:
            rows = list(shown(side_by_side(encoded, parts, device), len(parts), "Encoding images"))
        finally:
            self.train(was_training)
        return torch.cat(rows) if rows else torch.empty(0, self.backbone.width_out, device=device)

    def _kept(self, images: Tensor) -> Tensor:
        """Return the same, those that this user's cache has from there; the others are kept as they are computed."""
        if self._missing is not None:
            raise self._missing
        cache, name = Cache(), type(self.backbone).__name__
        keys = images.digests if isinstance(images, LazyImages) else pixel_digests(images.numpy())
        owner = self.owner()
        known = cache.read(owner, keys)
        places = {key: row for row, key in reversed(list(enumerate(keys))) if key not in known}
        for part in torch.split(torch.tensor(sorted(places.values()), dtype=torch.int64), KEPT):
            some = images[part]
            some = some.pixels() if isinstance(some, LazyImages) else some  # read together, not a few at a time
            fresh = self._computed(some).numpy() if len(part) else ()
            more = {keys[row]: each.tobytes() for row, each in zip(part.tolist(), fresh, strict=True)}
            cache.write(owner, more, name)
            known |= more
        self.runtime.used = self.runtime.used or CACHE
        rows = b"".join(known[key] for key in keys)
        return torch.frombuffer(bytearray(rows), dtype=torch.float32).view(len(keys), -1)

    def owner(self) -> bytes:
        """Return what is the same for encoders that make the same features: their weights, and how they see images."""
        seen = (type(self.backbone).__name__, self.shape, self.view.size, self.view.crop, self.view.mirror, FORM)
        state = [*self.backbone.state_dict().items(), ("mean", self.mean), ("std", self.std)]
        parts = [part for name, each in state for part in (name.encode(), each.contiguous().cpu().numpy().tobytes())]
        return digest(repr(seen).encode(), *parts)

    def fit_normalisation(self, images: Tensor) -> None:
        """Set mean and std to those of each channel of images (bytes count as [0, 1]), or of each feature.

        Nothing happens for waveforms, and where the backbone's weights were made with a fixed mean and std.
        """
        self.check_weights()
        if self.fixed:
            return
        if tuple(images.shape[1:]) != self.shape or not len(images):
            raise UsageError(
                f"Normalisation needs at least one image of shape {list(self.shape)}; given {list(images.shape)}."
            )
        unit = 255 if images.dtype == torch.uint8 else 1
        for buffer, value in zip((self.mean, self.std), spread(images, unit), strict=True):
            buffer.copy_(value / unit)

    def fit_features(self, features: Tensor) -> None:
        """Set what a frozen trunk's features are standardised with to the mean and std of these ``[n, d_backbone]``."""
        for buffer, value in zip((self.feature_mean, self.feature_std), spread(features, 1), strict=True):
            buffer.copy_(value)


def spread(images: Tensor, unit: float) -> tuple[Tensor, Tensor]:
    """Return mean and std of each channel ``[c]``, in double precision, a chunk at a time.

    No std is less than a thousandth of the largest, so that what hardly varies is not blown up; where nothing varies, it is ``unit``.
    """
    if images.dtype == torch.uint8:
        mean, std = _spread_of_bytes(images)
    else:
        mean, std = _spread_of_floats(images)
    if not std.isfinite().all():
        raise UsageError("The images hold a value that is not a finite number (NaN or infinity).")
    return mean, std.clamp(min=FLOOR * float(std.max())) if std.any() else torch.full_like(std, unit)


def _spread_of_bytes(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and std of each channel, by whole numbers, which no sum rounds; several processes read a share each."""
    stream, size = stream_of(images), math.prod(images.shape[2:])
    if stream is not None:
        sums = stream.sums(images.rows)  # type: ignore[attr-defined]
    else:
        sums = torch.zeros(2, images.shape[1], dtype=torch.int64, device=images.device)
        for part in torch.split(images[own_rows(images)], max(1, CHUNK // (size * images.shape[1]))):
            sums += byte_sums(part).sum(0)
        sums = total(sums)
    count, pairs = len(images) * size, list(zip(*sums.tolist(), strict=True))
    means = [value / count for value, _ in pairs]
    stds = [math.sqrt((squares * count - value**2) / count**2) for value, squares in pairs]
    mean, std = torch.tensor([means, stds], dtype=torch.float64, device=images.device)
    return mean, std


def _spread_of_floats(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and std of each channel or feature, in double precision."""

    def mean_of(centre: Tensor, power: int) -> Tensor:
        others = [0, *range(2, images.ndim)]
        centre = centre.view(-1, *[1] * (images.ndim - 2))
        chunks = torch.split(images, max(1, CHUNK // images[0].numel()))
        sums = [(chunk.double() - centre).pow_(power).sum(others) for chunk in chunks]
        return torch.stack(sums).sum(0) / images[:, 0].numel()

    mean = mean_of(torch.zeros(images.shape[1], device=images.device, dtype=torch.float64), 1)
    return mean, mean_of(mean, 2).sqrt()


def shown(parts: Iterable[Tensor], count: int, words: str) -> Iterable[Tensor]:
    """Return so many parts, with a bar on standard error while they are gone through, where a person looks at it."""
    if count < 2 or not sys.stderr.isatty():
        return parts
    from rich.console import Console
    from rich.progress import track

    return track(parts, words, count, console=Console(stderr=True), transient=True)
