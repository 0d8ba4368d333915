"""Discriminant: a label is a belief about the mean of its pictures; a shared covariance says how far pictures lie from it.

A Gaussian for each label with one covariance (linear discriminant analysis) on root features of a frozen encoder. Every choice is
made by exact leave-one-out, in closed form: no validation images, no learning rate, seconds. See ``docs/discriminant.md``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.data.dataset import TrainData
from labelwise.errors import UsageError
from labelwise.labels import Labels
from labelwise.methods.shared.linear import Encoder, RowModel
from labelwise.model import LabelModel, LeftOut, Spec
from labelwise.ops.beliefs import Spread, label_spread
from labelwise.ops.discriminant import Whitening, fit_whitening, left_out_scores, root_features
from labelwise.ops.left_out import Sample, left_out_cosines, left_out_distances
from labelwise.ops.linear import linear_scores
from labelwise.ops.lookalikes import together
from labelwise.ops.segments import segment_mean
from labelwise.training.stages import Method, Stage

TAKEN_OFF = 0.3  # share of a taught mean's squared error that is taken off every distance to it


class DiscriminantModel(RowModel):
    """Scores are log-likelihood ratios: how much nearer a picture lies to the mean of a label than to that of all labels.

    Embeddings are root features at unit length; or, where training features have negative numbers, features at unit length.
    """

    rooted: Tensor  # whether embeddings are root features
    root: Tensor  # P^(1/2) [d, d], see `Whitening`
    centre: Tensor  # mean of the means of labels [d]
    noise: Tensor  # tau; 0 where no label has two pictures: scores are cosines, then
    sharpness: Tensor  # b
    degrees: Tensor  # training pictures less labels
    rows: Tensor  # label embeddings [k, d + 1]
    spread_axes: Tensor  # of the means of labels, see `Spread`
    spread_values: Tensor
    spread_other: Tensor

    def __init__(self, spec: Spec, encoder: Encoder) -> None:
        super().__init__(spec, encoder)
        if not self.encoder.untrained or encoder.code_size is not None:
            raise UsageError(
                "Method discriminant takes features as they are, from the data or a frozen encoder: leave out encoder.code_size, and "
                "set encoder.frozen=true with weights. To train an encoder choose another method, such as indicator."
            )
        k, d = len(spec.labels), self.encoder.code_size
        q = min(k, d)
        shapes: dict[str, tuple[int, ...]] = {"root": (d, d), "centre": (d,), "rows": (k, d + 1)}
        shapes |= {"spread_axes": (q, d), "spread_values": (q,)}
        scalars = ("rooted", "noise", "sharpness", "degrees", "spread_other")
        for name, shape in {**shapes, **dict.fromkeys(scalars, ())}.items():
            self.register_buffer(name, torch.zeros(shape))

    def finish(self, embeddings: Tensor) -> Tensor:
        """Return embeddings ``[n, d]`` of unit length."""
        return torch.where(self.rooted > 0, root_features(embeddings), normalize(embeddings, dim=1))

    def encode_labels(self, labels: Labels) -> Tensor:
        """Return the rows of these labels ``[k, d + 1]``."""
        return self.rows[self.trained_rows(labels)]

    @property
    def whitening(self) -> Whitening:
        """What brings embeddings to coordinates in which pictures of a label spread alike, in double precision."""
        noise, sharpness = float(self.noise), float(self.sharpness)
        return Whitening(self.root.double(), self.centre.double(), noise=noise, sharpness=sharpness)

    @property
    def spread(self) -> Spread:
        """How the means of labels spread."""
        parts = (self.spread_axes, self.spread_values, self.spread_other, self.noise / len(self.centre))
        return Spread(*(part.double() for part in parts))

    @torch.no_grad()
    def solve(self, images: Tensor, targets: Tensor, groups: Sequence[str] = ()) -> None:
        """Take over the closed-form solution for training images and their targets ``[n]``."""
        self.rooted.fill_(float(self.encode_all(images, by=self.encoder).min()) >= 0)
        embeddings, k = self.encode_all(images), len(self.spec.labels)
        sets = together(embeddings, targets, groups)
        whitening = fit_whitening(embeddings, targets, k, sets)
        sample = Sample.of(whitening(embeddings.double()), targets, k, sets)
        values = {"root": whitening.root, "centre": whitening.centre, "noise": whitening.noise}
        values |= {"sharpness": whitening.sharpness, "degrees": sample.degrees}
        spread = label_spread(sample.means, sample.weights, whitening.noise)
        values |= {"spread_axes": spread.axes, "spread_values": spread.values, "spread_other": spread.other}
        for name, value in values.items():
            getattr(self, name).copy_(torch.as_tensor(value))
        self.rows.copy_(self._rows(sample.means, whitening.noise / sample.weights.clamp_min(1)))

    def _rows(self, means: Tensor, excess: Tensor) -> Tensor:
        """Return label embeddings ``[g, d + 1]`` of whitened means ``[g, d]``; ``excess [g]`` is taken off distances to them."""
        return self.whitening.label_rows(means, excess)

    def labels_from_examples(self, embeddings: Tensor, groups: Tensor) -> Tensor:
        """Return label embeddings ``[g, d + 1]``: means of examples, drawn towards the mean of labels direction by direction."""
        if not self.sharpness:
            raise UsageError("This model was not trained yet, so it cannot learn a label from examples.")
        means = segment_mean(self.whitening(embeddings.double()), groups, int(groups.max()) + 1)
        if not self.noise:
            return self._rows(means, means[:, 0])
        means, errors = self.spread.drawn(means, torch.bincount(groups).double())
        return self._rows(means, TAKEN_OFF * errors)

    @torch.no_grad()
    def left_out(self, images: Tensor, targets: Tensor, groups: Sequence[str] = ()) -> LeftOut:
        """Return what it says of its training images as if each, and those that look like it, had not been there."""
        sample, whitening = self._sample(images, targets, groups), self.whitening
        k = len(self.spec.labels)
        points = torch.cat([sample.means, sample.means.new_zeros(1, sample.means.shape[1])])
        table = left_out_distances(sample, points, sample.rest)
        likelihoods = left_out_scores(table[:, :k], sample, whitening.noise)
        scores = whitening.sharpness * (likelihoods + 0.5 * table[:, k:])
        tells = (sample.rest_weights > 0) & bool(whitening.noise)
        return LeftOut(
            scores=scores.float(),
            unfamiliarity=-2 * likelihoods.amax(1).float(),
            tells=tells.cpu(),
            groups=sample.groups.cpu(),
        )

    @torch.no_grad()
    def left_out_pairs(self, images: Tensor, targets: Tensor, pairs: Tensor) -> Tensor:
        """Return how alike pairs ``[p, 2]`` of its training images are by whitened embeddings, as if it had not seen the two."""
        return left_out_cosines(self._sample(images, targets), pairs.to(self.device)).float()

    def _sample(self, images: Tensor, targets: Tensor, groups: Sequence[str] = ()) -> Sample:
        """Return training images as whitened rows."""
        embeddings = self.encode_all(images)
        sets = together(embeddings, targets, groups)
        return Sample.of(self.whitening(embeddings.double()), targets, len(self.spec.labels), sets)

    def unfamiliarity(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        """Return the squared distance ``[n]`` of images to the nearest mean of a label, in standard deviations."""
        away = ((image_embeddings - self.centre) @ self.root).square().sum(1)
        return away - 2 / self.sharpness * linear_scores(image_embeddings, label_embeddings).amax(1)

    @property
    def whitens(self) -> bool:
        """Whether some label had two pictures that differ."""
        return bool(self.noise)

    def whitened(self, embeddings: Tensor) -> Tensor:
        """Return embeddings ``[n, d]`` in which pictures of one label differ alike in every direction."""
        return (embeddings - self.centre) @ self.root


@dataclass(frozen=True, kw_only=True)
class Discriminant(Method):
    """The nearest mean of a label, measured by how pictures of a label spread: the default on features that are not trained."""

    name: ClassVar[str] = "discriminant"
    leaves_out: ClassVar[bool] = True

    encoder: Encoder = field(default_factory=lambda: Encoder(frozen=True))  # which network makes features of pictures

    def build(self, spec: Spec) -> DiscriminantModel:
        """Return the model before it is solved."""
        return DiscriminantModel(spec, self.encoder)

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Yield nothing: solve in closed form."""
        assert isinstance(model, DiscriminantModel)
        model.solve(data.train.images, data.train.targets, data.train.groups)
        yield from ()
