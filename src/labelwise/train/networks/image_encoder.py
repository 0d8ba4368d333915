"""The image encoder: normalisation, a backbone, and an optional projection to another embedding size.

Normalisation and backbone form the trunk: ``embeddings = finish(trunk(images))``. A frozen trunk is never trained, so its
features are computed once and reused.
"""

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torch.utils.weak import WeakTensorKeyDictionary

from labelwise.core.arrays import LENGTH
from labelwise.images.images import ArrayImages, Images, check_read
from labelwise.images.view import WHOLE, View
from labelwise.support.errors import LabelwiseError, UsageError
from labelwise.train.batches import map_own_rows
from labelwise.train.networks.backbone import BATCH_NORMS, Backbone, Network
from labelwise.train.networks.channel_statistics import channel_statistics
from labelwise.train.networks.torch_encoder import encode_images
from labelwise.train.networks.weights import Normalisation, load_weights

QUIET = 1e-5  # quieter waveforms (root mean square) are not amplified: silence stays silence
PIECE = 64  # float images per batch of encoding


class WeakTensorCache(WeakTensorKeyDictionary):
    """A cache of values computed from tensors, for the lifetime of the tensors; excluded from pickles."""

    def __reduce__(self) -> tuple[type["WeakTensorCache"], tuple[()]]:
        return WeakTensorCache, ()


class ImageEncoder(nn.Module):
    """Turns images in [0, 1] ``[n, c, h, w]``, features ``[n, a]`` or waveforms ``[n, samples]`` into embeddings ``[n, d]``.

    ``fit_normalisation`` sets the shift and scale of channels and features. Waveforms are scaled to a root mean square of 1
    instead: positions in a recording have no common meaning.

    Args:
        backbone: what follows normalisation.
        shape: of one image, ``(c, h, w)``, or ``(a,)`` for precomputed features.
        code_size: d; a linear layer follows the backbone where its own size differs. None: the backbone's size.
        fixed: mean and std that do not change, because the backbone's weights were made with them; one-channel images
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
        # nothing before `finish` is trained, as with a frozen trunk or precomputed features
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
        self.tuning = False  # whether a frozen backbone is being tuned
        self.published: str | None = None  # registered encoder with the backbone's weights
        self._missing: LabelwiseError | None = None
        self._encoded = WeakTensorCache()
        self.compiled: Network | None = None  # replacement for the backbone in a training step
        self.register_load_state_dict_post_hook(ImageEncoder._after_load)  # type: ignore[no-untyped-call]

    def load_weights(self, path: str | None) -> None:
        """Load the backbone's weights from a file, or the public ones; defer errors to the first use."""
        try:
            if path is None:
                self.backbone.load_published()
                self.published = self.backbone.registered
            else:
                load_weights(self.backbone, path)
        except LabelwiseError as error:
            self._missing = error

    def check_weights(self) -> None:
        """Raise the error of weights that could not be loaded."""
        if self._missing is not None:
            raise self._missing

    def _after_load(self, _: object) -> None:
        self._missing = None
        same = self.frozen and not self.tuning and self.backbone.has_published()
        self.published = self.backbone.registered if same else None

    def train(self, mode: bool = True) -> Self:
        """Set training mode, except for a frozen backbone and for batch norms with public weights."""
        super().train(mode)
        for module in self.backbone.modules() if self.frozen or self.backbone.comes_trained else ():
            if self.frozen or isinstance(module, BATCH_NORMS):
                module.training = False
        return self

    def tune(self, on: bool) -> None:
        """Unfreeze or refreeze a frozen backbone, except its batch norms; clear cached features."""
        self.backbone.requires_grad_(on)
        self.tuning, self._encoded, self.published = on, WeakTensorCache(), None

    def normalise(self, x: Tensor) -> Tensor:
        """Normalise images per channel (or feature), keeping the memory layout; waveforms get equal loudness."""
        if self.backbone.waveforms:
            return x / x.square().mean(1, keepdim=True).sqrt().clamp_min(QUIET)
        channels = (-1, *[1] * (len(self.shape) - 1))
        return (x - self.mean.view(channels)).div_(self.std.view(channels))

    def prepare(self, x: Tensor) -> Tensor:
        """Return the backbone's input: cropped and resized by the view, normalised."""
        self.check_weights()
        size = self.view.size
        if self.view.crop is not None and x.shape[1:] == self.shape:
            x = self.view.centre(x)
        if size is not None and x.shape[2:] != (size, size):
            x = interpolate(x, (size, size), mode="bicubic", antialias=True).clamp(0, 1)
        return self.normalise(x)

    @property
    def mirrors(self) -> bool:
        """Whether to average over the mirror image; never in training."""
        return self.view.mirror and not self.tuning and (self.frozen or not self.training)

    def maps(self, x: Tensor) -> Tensor:
        """Return the backbone's feature maps ``[n, d_backbone, h, w]`` of images in [0, 1], without their mirror images."""
        return self.backbone.maps(self.prepare(x))

    def pool(self, maps: Tensor) -> Tensor:
        """Return embeddings ``[n, d]`` from feature maps."""
        return self.finish(self.backbone.pool(maps))

    def trunk(self, x: Tensor) -> Tensor:
        """Return the backbone's features ``[n, d_backbone]`` of images in [0, 1]."""
        return self._average_over_mirror(self.prepare(x), self.compiled or self.backbone)

    def as_they_come(self, x: Tensor) -> Tensor:
        """Return embeddings ``[n, d]`` of images in [0, 1] of any side, neither cropped nor resized."""
        self.check_weights()
        return self.finish((self.compiled or self.backbone)(self.normalise(x)))

    def _average_over_mirror(self, x: Tensor, network: Network) -> Tensor:
        """Return the features of a network, averaged over the mirror image if the view asks for it."""
        features = network(x)
        return (features + network(x.flip(3))) / 2 if self.mirrors else features

    @property
    def width(self) -> int:
        """The feature size of the head: of embeddings if the backbone was trained, otherwise of the backbone's features."""
        return self.backbone.width_out if self.untrained else self.code_size

    def embed(self, x: Tensor, network: Network | None = None) -> Tensor:
        """Return the head's features of images in [0, 1] ``[n, width]``; ``network`` replaces the backbone."""
        features = self._average_over_mirror(self.prepare(x), network or self.backbone)
        return features if self.untrained else self.finish(features)

    def finish(self, features: Tensor) -> Tensor:
        """Return embeddings ``[n, d]`` of the backbone's features ``[n, d_backbone]``, at unit length if untrained."""
        if self.frozen:
            features = (features - self.feature_mean) / self.feature_std
        if self.untrained:
            features = features * (LENGTH * self.backbone.width_out**-0.5)
        return self.project(features)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        """Return embeddings ``[n, d]`` of images in [0, 1], or of features from ``trunk``."""
        return self.finish(x if self.made_by_trunk(x) else self.trunk(x))

    def made_by_trunk(self, x: Tensor) -> bool:
        """Return whether these are features rather than images (or inputs of an identity backbone)."""
        return x.ndim == 2 and len(self.shape) == 3

    @torch.no_grad()
    def features(self, images: Tensor | Images) -> Tensor:
        """Return the trunk's features ``[n, d_backbone]`` of images (bytes as [0, 1]), in eval mode, float32.

        For a frozen trunk they are cached for the lifetime of the images.
        """
        if not isinstance(images, Tensor):
            was_training = self.training
            features = encode_images(self, images)
            self.train(was_training)
            check_read(features.skipped, len(images), strict=True)
            return torch.from_numpy(features.values).to(self.mean.device)
        if self.made_by_trunk(images):
            return images
        if self.frozen and images in self._encoded:
            return self._encoded[images]  # type: ignore[no-any-return]
        if images.dtype == torch.uint8:
            values = torch.from_numpy(encode_images(self, ArrayImages(images.cpu().numpy())).values)
        else:
            values = map_own_rows(images, self._compute_features)
        values = values.to(self.mean.device)
        if self.frozen:
            self._encoded[images] = values
        return values

    def _compute_features(self, images: Tensor) -> Tensor:
        """Return the trunk's features of floats."""
        training = self.training
        self.eval()
        try:
            parts = [self.trunk(part.to(self.mean.device)).float() for part in torch.split(images, PIECE) if len(part)]
        finally:
            self.train(training)
        return torch.cat(parts) if parts else torch.empty(0, self.backbone.width_out)

    def fit_normalisation(self, images: Tensor) -> None:
        """Set mean and std from the channels of images (bytes as [0, 1]), or from features.

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
        for buffer, value in zip((self.mean, self.std), channel_statistics(images, unit), strict=True):
            buffer.copy_(value / unit)

    def fit_features(self, features: Tensor) -> None:
        """Fit the standardisation of a frozen trunk's features ``[n, d_backbone]``."""
        for buffer, value in zip((self.feature_mean, self.feature_std), channel_statistics(features, 1), strict=True):
            buffer.copy_(value)
