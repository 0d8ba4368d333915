"""The models of izf: a linear map and a flow from features to latents, then densities or a softmax over labels."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from labelwise.core.arrays import Array
from labelwise.core.balance import BalanceCurve
from labelwise.core.head import Head
from labelwise.images.describe.labels import Labels
from labelwise.methods.izf.flattening import CaptionRelevance, flatten
from labelwise.methods.izf.flow import Flow
from labelwise.methods.izf.gaussian import GaussianSettings
from labelwise.methods.izf.generated import GeneratedSoftmax, GeneratingModel
from labelwise.methods.izf.head import FlowSteps, IzfHead, IzfSoftmaxHead, LabelMap, Latents, trained_places
from labelwise.methods.shared.linear import array
from labelwise.support.errors import UsageError
from labelwise.train.model import Spec
from labelwise.train.tensors import segment_mean
from labelwise.train.train_data import TrainData

if TYPE_CHECKING:
    from labelwise.methods.izf.method import Izf

LENGTHS = (40.0, 20.0, 60.0, 90.0)  # of label vectors as latents; the first where there is nothing to choose by


class Front(nn.Module):
    """A fixed invertible linear map; it computes in single precision, also where autocast is on."""

    weight: Tensor
    inverse_weight: Tensor
    mean: Tensor
    log_det: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        for name in ("weight", "inverse_weight"):
            self.register_buffer(name, torch.eye(size))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("log_det", torch.zeros(()))

    @torch.no_grad()
    def take(self, buffers: Mapping[str, Tensor]) -> None:
        """Take over another map."""
        for name, value in buffers.items():
            self.get_buffer(name).copy_(value)

    def forward(self, v: Tensor) -> Tensor:
        """Return where vectors ``[n, size]`` go."""
        with torch.autocast(v.device.type, enabled=False):
            return (v.float() - self.mean) @ self.weight

    def inverse(self, z: Tensor) -> Tensor:
        """Return the vectors that ``forward`` takes to these."""
        with torch.autocast(z.device.type, enabled=False):
            return torch.addmm(self.mean, z.float(), self.inverse_weight)


class FlowModel(GeneratingModel):
    """A fixed linear map, then a flow where one is trained: features ``[n, d]`` to latents ``[n, d]`` and back."""

    label_map: LabelMap  # the means of labels
    # the standard deviation of each latent inside a label, with which features are generated: shrinkage of the
    # covariance leaves the latents of real features less than the unit variance that the density gives them
    spread: Array
    trained_epochs: Tensor  # how many epochs were trained

    def __init__(self, spec: Spec, settings: "Izf") -> None:
        super().__init__(spec, settings.encoder, settings.label_source, settings.power)
        d, k = self.encoder.code_size, len(spec.labels)
        is_solved = settings.start != "random"
        # how many latents, the first ones, are the semantic part
        self.semantic = min(k, d) if is_solved else self.vector_size
        if self.semantic > d:
            raise UsageError(
                f'With start="random" a label vector is a part of the latents: it has at most as many numbers as a feature '
                f"({d}); given {self.semantic}."
            )
        self.vector_power = settings.vector_power or 1.0
        self.solution: GaussianSettings | None = None
        # a curve for each time that labels were held out, penalties in units of ``seen_spread``; see ``fitting.zero_shot``
        self.held_out: tuple[BalanceCurve, ...] = ()
        self.front = Front(d)
        self.flow = Flow(d, settings.flow_settings) if settings.epochs else None
        length = None if is_solved else settings.label_length or LENGTHS[0]
        self.label_map = LabelMap.unsolved(k, self.vector_size, self.semantic, min(k, d), length)
        self.semantic_spread = 1.0 if settings.start == "closed" else settings.semantic_spread
        self.spread = np.ones(d, np.float32)
        self.spread[: self.semantic] *= self.semantic_spread
        self.register_buffer("trained_epochs", torch.zeros((), dtype=torch.int64))

    def fit_vectors(self, labels: Labels, choice: GaussianSettings, relevance: CaptionRelevance | None) -> None:
        """Fit how label vectors are prepared: to these labels, with the settings of a choice and the relevance of captions."""
        self.centre_vectors = flatten(self.source.of(labels), choice.vector_power, choice.flat, relevance)

    def caption_relevance(self, data: TrainData) -> CaptionRelevance | None:
        """Return how well images (features) predict their captions; None without captions, or where labels have other vectors."""
        texts, labels = data.train.texts, data.labels
        if not texts or labels.texts is None:
            return None
        first = self.source.sentence_vectors(labels.texts[:1])
        if first.shape[1] != self.vector_size or not np.allclose(first, self.source.of(labels)[:1], atol=1e-4):
            return None
        return CaptionRelevance.of(array(data.train.images), self.source.sentence_vectors(texts))

    def latents(self, features: Tensor, jitter: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
        """Return latents ``[n, d]`` and log|det| ``[n]``; ``jitter`` is added between the linear map and the flow."""
        z = self.front(features) + jitter
        log_det = self.front.log_det.expand(z.shape[0])
        if self.flow is None:
            return z, log_det
        z, more = self.flow(z)
        return z, log_det + more

    def features_from(self, latents: Tensor) -> Tensor:
        """Return the features ``[n, d]`` that have these latents."""
        return self.front.inverse(latents if self.flow is None else self.flow.inverse(latents))

    def semantic_part(self, labels: Labels) -> Tensor:
        """Return c(y) ``[k, semantic]`` of labels: by their descriptions, and by images of those that have been trained."""
        return self.tensor(self.label_map.semantic(*self._describe(labels)))

    def taken_off(self, labels: Labels) -> Tensor:
        """Return the correction of squared distances to labels ``[k]`` for means predicted from descriptions."""
        return self.tensor(self.label_map.taken_off(*self._describe(labels)))

    def _describe(self, labels: Labels) -> tuple[Array, dict[int, int]]:
        """Return the vectors of labels ``[k, a]``, the rows of those that have been trained, and their places among these."""
        return array(self.vectors(labels)), trained_places(self.spec.labels, labels)

    def pad(self, semantic: Tensor) -> Tensor:
        """Return latents ``[n, d]`` with this semantic part and a free part of zeros."""
        return nn.functional.pad(semantic, (0, self.encoder.code_size - self.semantic))

    def head_parts(self) -> dict[str, Any]:
        """Return the fields shared by both heads."""
        return {**super().head_parts(), "flow": self._latents(), "label_map": self.label_map}

    def restore(self, head: Head) -> None:
        """Load from a head what the state does not hold."""
        super().restore(head)
        assert isinstance(head, IzfHead | IzfSoftmaxHead)
        self.label_map, self.spread = head.label_map, head.flow.spread

    def _latents(self) -> Latents:
        """Return the map to latents without torch."""
        flow = None
        if self.flow is not None:
            state = {name: array(tensor) for name, tensor in self.flow.state_dict().items()}
            flow = FlowSteps(state=state, activation=self.flow.settings.activation)
        return Latents(
            weight=array(self.front.weight),
            inverse_weight=array(self.front.inverse_weight),
            mean=array(self.front.mean),
            log_det=float(self.front.log_det),
            spread=self.spread,
            flow=flow,
        )

    def scale_features(self, features: Tensor) -> None:
        """Take over the map of each coordinate of these features ``[n, d]`` to [0, 1]."""
        low, high = features.amin(0), features.amax(0)
        reach = torch.where(high > low, high - low, 1)
        arrays = {"weight": reach.reciprocal().diag(), "inverse_weight": reach.diag(), "log_det": -reach.log().sum()}
        self.front.take({**arrays, "mean": low})

    @torch.no_grad()
    def fit_spread(self, features: Tensor, targets: Tensor) -> None:
        """Measure the distances of latents of features ``[n, d]`` from the mean of their label ``[n]``."""
        self.eval()
        z = torch.cat([self.latents(part)[0] for part in torch.split(features, 1024)])
        inside = z - segment_mean(z, targets, len(self.spec.labels))[targets]
        self.spread = array(inside.square().mean(0).sqrt().float())
        self.spread[: self.semantic] *= self.semantic_spread


class IzfModel(FlowModel):
    """Labels by density: the score is log p(v | y) up to a number that no label changes, linear in the image embedding.

    An image embedding is the semantic part and then the log-density of the free part, the determinant included, on the scale of
    the training images. The latter has no weight in scores; it tells how familiar an image is.
    """

    density: tuple[float, float] = (0.0, 1.0)  # mean and standard deviation of that log-density over training images

    def __init__(self, spec: Spec, settings: "Izf") -> None:
        super().__init__(spec, settings)
        self.forget(self.semantic + 1)

    def embed(self, features: Tensor) -> Tensor:
        """Return image embeddings ``[n, semantic + 1]`` from features ``[n, d]``."""
        z, log_det = self.latents(features)
        own, free = z[:, : self.semantic], z[:, self.semantic :]
        free_density = log_det - 0.5 * (free.square().sum(1) + free.shape[1] * math.log(2 * math.pi))
        return torch.cat([own, ((free_density - self.density[0]) / self.density[1])[:, None]], 1)

    @torch.no_grad()
    def fit_density(self, features: Tensor) -> None:
        """Bring the log-densities of the free part of these features ``[n, d]`` to mean 0 and deviation 1."""
        self.density = (0.0, 1.0)
        free_density = torch.cat([self.embed(part)[:, -1] for part in torch.split(features, 1024)]).double()
        self.density = float(free_density.mean()), max(float(free_density.std(correction=0)), 1e-6)

    def restore(self, head: Head) -> None:
        """Load from a head what the state does not hold."""
        super().restore(head)
        assert isinstance(head, IzfHead)
        self.density = head.density_mean, head.density_std

    def export_head(self) -> IzfHead:
        """Return the equivalent NumPy head."""
        mean, std = self.density
        return IzfHead(**self.head_parts(), semantic=self.semantic, density_mean=mean, density_std=std)


class IzfSoftmaxModel(GeneratedSoftmax, FlowModel):
    """Labels by a softmax layer on real and generated features, as latents: there no direction is steeper than another."""

    def __init__(self, spec: Spec, settings: "Izf") -> None:
        super().__init__(spec, settings)
        self.keep_for_head(settings.generated)

    def embed(self, features: Tensor) -> Tensor:
        """Return image embeddings ``[n, d]``, the latents of features ``[n, d]``."""
        return self.latents(features)[0]

    def export_head(self) -> IzfSoftmaxHead:
        """Return the equivalent NumPy head."""
        return IzfSoftmaxHead(**self.head_parts())


Kernel = Literal["single", "mixture"]
WIDTHS = (0.1, 0.2, 1.5, 3.0, 5.0, 10.0)


def mmd(a: Tensor, b: Tensor, kernel: Kernel = "single") -> Tensor:
    """Return the squared maximum mean discrepancy between samples ``[n, d]`` and ``[m, d]``, a number that is 0 or more.

    It is the biased estimate (a vector counts as a pair with itself): the squared distance between the kernel means of the
    two samples, so it is never negative, 0 where the samples are the same, and bounded, which matters where it is
    maximised. Computed in float32 at least, whatever autocast says. The kernel ``single`` is ``2 d / (2 d + distance²)``,
    ``mixture`` the sum of ``c / (c + distance²)`` over ``WIDTHS``.
    """
    widths = (2.0 * a.shape[1],) if kernel == "single" else WIDTHS
    with torch.autocast(a.device.type, enabled=False):
        a, b = (x if x.dtype == torch.float64 else x.float() for x in (a, b))
        middle = b.detach().mean(0)  # distances stay the same, and what is far from 0 loses no digits
        a, b = a - middle, b - middle
        return _likeness(a, a, widths) + _likeness(b, b, widths) - 2 * _likeness(a, b, widths)


def _likeness(a: Tensor, b: Tensor, widths: Sequence[float]) -> Tensor:
    """Return the mean kernel of all pairs, a number."""
    squares = torch.addmm((a * a).sum(1)[:, None] + (b * b).sum(1), a, b.T, alpha=-2).clamp_min(0)
    return sum((width * (squares + width).reciprocal().mean() for width in widths), a.new_zeros(()))
