"""Discriminant: a label is a belief about the mean of its pictures; a shared covariance says how far pictures lie from it.

A Gaussian for each label with one covariance (linear discriminant analysis) on root features of a frozen encoder. Every choice is
made by exact leave-one-out, in closed form: no validation images, no learning rate, seconds. See ``docs/discriminant.md``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from labelwise.core.model import LabelModel, LeftOut, Spec
from labelwise.core.platt import fit_temperature, most_rows
from labelwise.images.dataset import TrainData
from labelwise.images.describe.labels import Labels
from labelwise.methods.discriminant.beliefs import Beliefs, Spread, as_of_all, expected_means, label_beliefs, narrowing
from labelwise.methods.discriminant.copies import together
from labelwise.methods.discriminant.leave_one_out import Sample, left_out_cosines, left_out_distances, left_out_products
from labelwise.methods.discriminant.whitening import Whitening, fit_whitening, left_out_scores, some_groups
from labelwise.methods.shared.label_source import LabelSource, Source
from labelwise.methods.shared.linear import BATCH, Encoder, RowModel
from labelwise.methods.shared.tuning import Trial, Tune, tuning_stages
from labelwise.support.errors import DataError, UsageError
from labelwise.train.networks.kept import Kept
from labelwise.train.stages import Method, Stage
from labelwise.train.tensors import linear_scores, mean_distances, root_features, segment_mean

MOST_KEPT = 2**23  # numbers of a sample that is kept


class DiscriminantModel(RowModel):
    """Scores are log-likelihood ratios: how much nearer a picture lies to the mean of a label than to that of all labels.

    Embeddings are root features at unit length; or, where training features have negative numbers, features at unit length.
    """

    rooted: Tensor  # whether embeddings are root features
    root: Tensor  # P^(1/2) [d, d], see `Whitening`
    centre: Tensor  # mean of the means of labels [d]
    noise: Tensor  # tau; 0 where no label has two pictures: scores are cosines, then
    sharpness: Tensor  # b
    rows: Tensor  # label embeddings [k, d + 1]
    spread_axes: Tensor  # of the means of labels, see `Spread`
    spread_values: Tensor
    spread_other: Tensor
    # where labels are described: the mean of their vectors [a], from vectors to expected means [a, d], what each label was
    # expected to be without its pictures [k, d], and how means spread around that
    vector_mean: Tensor
    vector_weights: Tensor
    expected: Tensor
    told_axes: Tensor
    told_values: Tensor
    told_other: Tensor
    trials: tuple[Trial, ...] = ()  # of encoders, where this one was to be tuned

    def __init__(self, spec: Spec, encoder: Encoder, source: LabelSource) -> None:
        super().__init__(spec, encoder)
        self.source = source
        if not self.encoder.untrained or encoder.code_size is not None:
            raise UsageError(
                "Method discriminant takes features as they are, from the data or a frozen encoder: leave out encoder.code_size, and "
                "set encoder.frozen=true with weights. To train an encoder choose another method, such as indicator."
            )
        k, d = len(spec.labels), self.encoder.code_size
        q = min(k, d)
        shapes: dict[str, tuple[int, ...]] = {"root": (d, d), "centre": (d,), "rows": (k, d + 1)}
        shapes |= {"spread_axes": (q, d), "spread_values": (q,)}
        scalars = ("rooted", "noise", "sharpness", "spread_other", "told_other")
        a = 0 if spec.labels.vectors is None else spec.labels.vectors.shape[1]
        self.reads_descriptions = a > 0  # whether labels of training were described
        if a:
            shapes |= {"vector_mean": (a,), "vector_weights": (a, d), "expected": (k, d)}
            shapes |= {"told_axes": (q, d), "told_values": (q,)}
        for name, shape in {**shapes, **dict.fromkeys(scalars, ())}.items():
            self.register_buffer(name, torch.zeros(shape))
        self._samples = Kept()

    def finish(self, embeddings: Tensor) -> Tensor:
        """Return embeddings ``[n, d]`` of unit length."""
        return torch.where(self.rooted > 0, root_features(embeddings), normalize(embeddings, dim=1))

    def encode_labels(self, labels: Labels) -> Tensor:
        """Return the rows of these labels ``[k, d + 1]``; one that is not known is made of its description."""
        trained = set(self.spec.labels.names)
        known = [i for i, name in enumerate(labels.names) if name in trained]
        if len(known) == len(labels) or not self.reads_descriptions:
            return self.rows[self.trained_rows(labels)]
        expected = self.expect(labels)
        rows = self._rows(expected, expected.new_zeros(len(labels)), expected)
        rows[known] = self.rows[self.trained_rows(labels.select([labels.names[i] for i in known]))] if known else 0
        return rows

    def expect(self, labels: Labels) -> Tensor:
        """Return the whitened means ``[k, d]`` that are expected of labels by their descriptions."""
        return self._vectors(labels) @ self.vector_weights.double()

    def _vectors(self, labels: Labels) -> Tensor:
        vectors = torch.as_tensor(self.source.of(labels) if labels.vectors is None else labels.vectors).to(self.device)
        if vectors.shape[1] != len(self.vector_mean):
            raise UsageError(
                f"Labels of this model are described by vectors of {len(self.vector_mean)} numbers; given {vectors.shape[1]}."
            )
        return normalize(vectors.double() - self.vector_mean.double(), dim=1)

    @property
    def whitening(self) -> Whitening:
        """What brings embeddings to coordinates in which pictures of a label spread alike, in double precision."""
        noise, sharpness = float(self.noise), float(self.sharpness)
        return Whitening(self.root.double(), self.centre.double(), noise=noise, sharpness=sharpness)

    def _take(self, **values: Tensor | float) -> None:
        for name, value in values.items():
            getattr(self, name).copy_(torch.as_tensor(value))

    @torch.no_grad()
    def solve(self, images: Tensor, targets: Tensor, groups: Sequence[str] = ()) -> None:
        """Take over the closed-form solution for training images and their targets ``[n]``."""
        images, k = self.prepare(images), len(self.spec.labels)
        features = self.encode_all(images, by=self.encoder)
        self.rooted.fill_(float(features.min()) >= 0)
        embeddings = torch.cat([self.finish(part) for part in torch.split(features, BATCH)])
        sets = together(embeddings, targets, groups)
        whitening = fit_whitening(embeddings, targets, k, sets)
        self._take(root=whitening.root, centre=whitening.centre, noise=whitening.noise, sharpness=whitening.sharpness)
        sample = self._keep(images, groups, Sample.of(self.whitened(embeddings), targets, k, sets))
        beliefs = label_beliefs(sample, whitening.noise)
        spread = beliefs.spread
        self._take(spread_axes=spread.axes, spread_values=spread.values, spread_other=spread.other)
        if self.reads_descriptions:
            assert self.spec.labels.vectors is not None
            self.vector_mean.copy_(self.spec.labels.vectors.double().mean(0))
            weights, expected = expected_means(self._vectors(self.spec.labels), sample.means.double())
            self._take(vector_weights=weights, expected=expected)
            beliefs = label_beliefs(sample, whitening.noise, expected)
            told = beliefs.spread
            self._take(told_axes=told.axes, told_values=told.values, told_other=told.other)
        means, excess = self._plain_beliefs(sample).or_of_few(beliefs, sample.weights)
        self.rows.copy_(self.whitening.label_rows(means.double(), excess.double()))

    @torch.no_grad()
    def solve_on(self, data: TrainData) -> tuple[float, float]:
        """Solve for training images, and how sure scores are for validation images: their mean log-likelihood and accuracy come back."""
        self.solve(data.train.images, data.train.targets, data.train.groups)
        scores, targets = self.score(self.encode_all(data.val.images), self.rows), data.val.targets.to(self.device)
        factor = 1 / fit_temperature(scores.cpu(), targets.cpu())
        self._take(sharpness=self.sharpness * factor, rows=self.rows * factor)
        return -float(cross_entropy(scores * factor, targets)), float((scores.argmax(1) == targets).double().mean())

    def _rows(self, examples: Tensor, counts: Tensor, expected: Tensor | None = None) -> Tensor:
        """Return label embeddings ``[g, d + 1]`` of means of so many whitened examples ``[g, d]``, drawn towards what is expected."""
        kind = "spread" if expected is None else "told"
        parts = (getattr(self, f"{kind}_{part}") for part in ("axes", "values", "other"))
        spread = Spread(*(part.double() for part in (*parts, self.noise / len(self.centre))))
        start = torch.zeros_like(examples) if expected is None else expected
        means, excess = spread.believed(examples - start, counts)
        return self.whitening.label_rows(start + means, excess)

    def labels_from_examples(self, embeddings: Tensor, groups: Tensor) -> Tensor:
        """Return label embeddings ``[g, d + 1]``: means of examples, drawn towards the mean of labels direction by direction."""
        return self._rows(*self._examples(embeddings, groups))

    def example_distances(self, embeddings: Tensor) -> Tensor:
        """Return the squared distances ``[n]`` of examples of a label ``[n, d]`` to its mean by the others, in standard deviations."""
        one, other = (~torch.eye(len(embeddings), dtype=torch.bool, device=embeddings.device)).nonzero().T
        rows = self.labels_from_examples(embeddings[other], one)
        scores = linear_scores(embeddings, rows).diagonal()[:, None]
        return mean_distances(embeddings, scores, self.centre, self.root, self.sharpness)

    def label_from_both(self, embeddings: Tensor, description: Labels) -> Tensor:
        """Return the label embedding ``[d + 1]`` of examples ``[n, d]``, drawn towards what the description of one label says."""
        groups = torch.zeros(len(embeddings), dtype=torch.int64, device=embeddings.device)
        return self._rows(*self._examples(embeddings, groups), self.expect(description))[0]

    def _examples(self, embeddings: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
        """Return means ``[g, d]`` of groups of whitened examples, and how many each has ``[g]``."""
        if not self.sharpness:
            raise UsageError("This model was not trained yet, so it cannot learn a label from examples.")
        means = segment_mean(self.whitening(embeddings.double()), groups, int(groups.max()) + 1)
        return means, torch.bincount(groups).double()

    @torch.no_grad()
    def left_out(self, images: Tensor, targets: Tensor, groups: Sequence[str] = ()) -> LeftOut:
        """Return what it says of its training images as if each, and those that look like it, had not been there."""
        sample = self._sample(images, targets, groups)
        beliefs, expected = self._plain_beliefs(sample), self.expected if self.reads_descriptions else None
        rows = some_groups(sample.groups, most_rows(len(self.spec.labels)))
        sample, beliefs = sample.select(rows), beliefs.select(rows)
        whole, excess = as_of_all(sample, beliefs, expected)
        points = torch.cat([beliefs.means, torch.zeros_like(beliefs.means[:1])])  # and the mean of all labels
        table = left_out_distances(sample, points, beliefs.rest)
        likelihoods = left_out_scores(table[:, :-1], sample, beliefs.excess, beliefs.rest_excess)
        scores = self.sharpness * (likelihoods + 0.5 * table[:, -1:])
        away = sample.rows - whole
        own = self.sharpness * 0.5 * (excess - left_out_products(sample, away, away) + table[:, -1])
        tells = (sample.rest_weights > 0) & self.whitens
        return LeftOut(
            scores=scores.float(),
            unfamiliarity=-2 * likelihoods.amax(1).float(),
            tells=tells.cpu(),
            groups=sample.groups.cpu(),
            rows=rows.cpu(),
            own=own.float(),
            narrowing=narrowing(sample, beliefs).float(),
        )

    @torch.no_grad()
    def left_out_pairs(self, images: Tensor, targets: Tensor, pairs: Tensor) -> Tensor:
        """Return how alike pairs ``[p, 2]`` of its training images are by whitened embeddings, as if it had not seen the two."""
        return left_out_cosines(self._sample(images, targets), pairs.to(self.device)).float()

    def _plain_beliefs(self, sample: Sample) -> Beliefs:
        """Return what is believed of labels if they spread alike in all directions: so rows can be left out of it."""
        return label_beliefs(sample, float(self.noise), self.expected if self.reads_descriptions else None, prior=inf)

    def _sample(self, images: Tensor, targets: Tensor, groups: Sequence[str] | None = None) -> Sample:
        """Return training images as whitened rows, each in a set of those that are left out with it; None: whatever these are."""
        if images in self._samples:
            known: tuple[tuple[str, ...], Sample] = self._samples[images]
            if groups in (None, known[0]) and torch.equal(known[1].targets, targets):
                return known[1]
        embeddings = self.encode_all(images)
        sets = None if groups is None else together(embeddings, targets, groups)
        return self._keep(images, groups, Sample.of(self.whitened(embeddings), targets, len(self.spec.labels), sets))

    def _keep(self, images: Tensor, groups: Sequence[str] | None, sample: Sample) -> Sample:
        """Return a sample, and keep one that is small as long as its images live: they are asked about several times."""
        if groups is not None and sample.rows.numel() <= MOST_KEPT:
            self._samples[images] = tuple(groups), sample
        return sample

    def unfamiliarity(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        """Return the squared distance ``[n]`` of images to the nearest mean of a label, in standard deviations."""
        scores = linear_scores(image_embeddings, label_embeddings)
        return mean_distances(image_embeddings, scores, self.centre, self.root, self.sharpness)

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
    # whether to read the vectors of labels or their texts, where they have any; auto takes vectors first
    source: Source = "auto"
    sentences: str = "words"  # what makes a vector of a sentence: words, glove or minilm
    tune: Tune | None = None

    @property
    def holds_out(self) -> bool:
        """Whether images are held out: an encoder that was trained on images cannot leave them out."""
        return self.tune is not None

    def build(self, spec: Spec) -> DiscriminantModel:
        """Return the model before it is solved."""
        return DiscriminantModel(spec, self.encoder, self.label_source)

    @property
    def label_source(self) -> LabelSource:
        """Where the vectors of labels come from."""
        return LabelSource(source=self.source, sentences=self.sentences)

    def describe(self, labels: Labels) -> Labels:
        """Return the labels with the vectors that models read, where something describes them that can be read."""
        source = self.label_source
        if not source.describes(labels):
            return labels
        try:
            return replace(labels, vectors=torch.from_numpy(source.of(labels)))
        except DataError:
            if self.source != "auto":
                raise
            return labels  # pictures are enough

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Solve in closed form; yield nothing, or the stages that tune the encoder before."""
        assert isinstance(model, DiscriminantModel)
        if self.tune is None:
            model.solve(data.train.images, data.train.targets, data.train.groups)
        else:
            model.trials = yield from tuning_stages(model, data, self.tune, partial(model.solve_on, data))
