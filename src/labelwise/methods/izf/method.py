"""IZF: an invertible network between image features and labels (Shen et al., 2020), which starts from a closed form.

A flow takes a feature v to a semantic part c_hat and a free part z. Under a label with the semantic part c(y),
p(v | y) = N(c_hat; c(y), I) N(z; 0, I) |det|. So a label is chosen by density, and since the flow can be inverted, features
of labels without images can be made: c(y), noise, and back.

The paper starts near zero, with label vectors as c(y). Their length decides: at unit length the distances between fine labels are
small against the unit variance, and little can be learnt. The start here is the linear flow that ``gaussian`` solves in closed form;
the blocks of the network begin as the identity behind it and are trained from there. The trial keeps the epoch that is best
on held-out labels, and the closed form, before the first epoch, is one of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from labelwise.core.balance import BalanceCurve, balance_curve, seen_spread
from labelwise.methods.izf.flow import FlowSettings, Mixing
from labelwise.methods.izf.gaussian import GRID, PLAIN, Gaussians, GaussianSettings
from labelwise.methods.izf.generated import GeneratedSoftmax, GeneratingMethod
from labelwise.methods.izf.model import LENGTHS, FlowModel, IzfModel, IzfSoftmaxModel, Kernel, mmd
from labelwise.methods.shared.zero_shot import harmonic, has_unseen, label_folds
from labelwise.support.errors import UsageError, listing
from labelwise.support.settings import check_range, setting
from labelwise.train.batches import Batch
from labelwise.train.checkpoint import state_copy
from labelwise.train.distribution import whole_batch
from labelwise.train.method import Method
from labelwise.train.model import LabelModel, Spec
from labelwise.train.stages import Stage
from labelwise.train.tensors import segment_mean
from labelwise.train.train_data import TrainData

Start = Literal["closed", "labels", "random"]
Head = Literal["nbc", "softmax"]
CHOICES = {"start": get_args(Start), "head": get_args(Head), "mmd_kernel": get_args(Kernel)}


@dataclass(frozen=True, kw_only=True)
class Izf(GeneratingMethod):
    """Zero-shot by an invertible flow that classifies by density and generates features."""

    name: ClassVar[str] = "izf"

    epochs: int = setting(
        0, "Epochs of the flow; 0: the closed form alone. Training gains little; 30 is a good number to try."
    )
    clip: float | None = 10.0
    start: Start = setting(
        "closed", "closed: start at the linear flow; labels: label positions from it; random: the paper's start."
    )
    head: Head = setting("nbc", "nbc: the label of largest density; softmax: a layer trained on generated features.")
    shrink: float | None = setting(None, "Shrinkage of the covariance in closed form; none: chosen on held-out labels.")
    width: float | None = setting(
        None, "Width of the kernel between label vectors, 0 is linear; none: chosen on held-out labels."
    )
    penalty: float | None = setting(
        None, "Penalty of regressing means on label vectors; none: chosen on held-out labels."
    )
    own: float | None = setting(
        None, "How far trained labels follow their own images; none: chosen on held-out labels."
    )
    vector_power: float | None = setting(
        None, "Power of label vectors, with their sign; none: chosen on held-out labels."
    )
    flat: float | None = setting(
        None, "How far shared directions of label vectors are reduced; none: chosen on held-out labels."
    )
    label_length: float | None = setting(
        None, "Length of label vectors with start=random, in standard deviations; none: chosen on held-out labels."
    )
    blocks: int = setting(5, "Blocks of the flow.")
    hidden: int = setting(1024, "Width of the hidden layers of the flow.")
    mixing: Mixing = setting("permutation", "How blocks mix coordinates.")
    act_norm: bool = setting(False, "Whether blocks first shift and scale each coordinate.")
    flow_weight: float = setting(2.0, "Weight of the negative log-density per coordinate.")
    centre_weight: float = setting(
        1.0, "Weight of the distance from the feature at a label's centre to the mean feature of its images."
    )
    mmd_weight: float = setting(0.1, "Weight of the discrepancy of generated unseen features to real seen ones.")
    mmd_kernel: Kernel = setting("mixture", "Kernel of the discrepancy.")
    noise: float = setting(0.008, "Width of the uniform noise on features with start=random.")
    semantic_spread: float = setting(
        0.0, "Spread of the semantic part of generated features with start=random; fixed in the paper."
    )

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise UsageError(f'Setting "{name}" is one of {listing(allowed)}; given "{getattr(self, name)}".')
        if self.epochs == 0 and self.start == "closed":
            replace(self, epochs=1)  # checks the rest
            return
        if self.epochs == 0:
            raise UsageError(f'With start="{self.start}" the flow has to be trained: set epochs, for example to 30.')
        super().__post_init__()
        check_range(self, "above 0", "shrink", "penalty", "label_length")
        check_range(self, "from 0 to 1", "own")
        check_range(self, "above 0 and at most 1", "vector_power")
        check_range(
            self, "0 or more", "width", "flat", "flow_weight", "centre_weight", "mmd_weight", "noise", "semantic_spread"
        )
        self.flow_settings.__post_init__()

    @property
    def flow_settings(self) -> FlowSettings:
        """How the flow is built."""
        return FlowSettings(
            blocks=self.blocks,
            hidden=self.hidden,
            mixing=self.mixing,
            act_norm=self.act_norm,
            identity=self.start == "closed",
        )

    def build(self, spec: Spec) -> FlowModel:  # type: ignore[override]
        """Return the untrained model."""
        return IzfModel(spec, self) if self.head == "nbc" else IzfSoftmaxModel(spec, self)

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Yield the stage of the image encoder, if there is one to train; solve the closed form; yield that of the flow."""
        assert isinstance(model, FlowModel)
        yield from self.train_encoder(model, data)
        features = model.encode_features(data.train.images)
        if self.start != "random":
            self._solve(model, data, features)
        if self.start != "closed":
            model.scale_features(features)
        if model.flow is not None:
            yield from self._train_flow(model, data, features)
        model.fit_spread(features, data.train.targets)
        if isinstance(model, IzfModel):
            model.fit_density(features)
        if isinstance(model, GeneratedSoftmax):
            self.choose_head(model, data, features)
        model.fit_statistics(data.train)

    def _solve(self, model: FlowModel, data: TrainData, features: Tensor) -> None:
        """Give the model the closed form of the settings, those left open chosen on held-out labels."""
        grid, choice = (
            tuple(dict.fromkeys(self._fill(choice_of_grid) for choice_of_grid in GRID)),
            self._fill(PLAIN),
        )
        if len(grid) > 1 and has_unseen(data):
            val = model.encode_features(data.val.images)
            prepared = replace(
                data, train=replace(data.train, images=features), val=replace(data.val, images=val)
            )  # the encoder has seen its training images, under any label
            folds = [*label_folds(prepared)] if model.encoder.untrained else [prepared]
            choice = max(merits := _merits(model, folds, grid), key=merits.__getitem__)
            if model.flow is None and self.head == "nbc":
                model.held_out = tuple(curve for fold in folds for _, curve in _curves(model, fold, (choice,)))
        relevance = model.caption_relevance(replace(data, train=replace(data.train, images=features)))
        model.fit_vectors(data.labels, choice, relevance)
        front, model.label_map = Gaussians.of(features, data.train.targets, model.vectors(data.labels)).solve(choice)
        model.front.take(front)
        model.solution = choice
        if self.start == "closed":
            model.fit_spread(features, data.train.targets)

    def _fill(self, choice: GaussianSettings) -> GaussianSettings:
        """Return a choice, overridden by the settings that are set."""
        own = {name: getattr(self, name) for name in GaussianSettings._fields}
        return choice._replace(**{name: value for name, value in own.items() if value is not None})

    def _train_flow(self, model: FlowModel, data: TrainData, features: Tensor) -> Iterator[Stage]:
        """Yield the stages of the flow, one for each length of label vectors to try, and keep the best on held-out labels.

        From the closed form there is one stage, and the start stays where no epoch is better.
        """
        assert model.flow is not None
        if self.start != "closed":
            model.flow.initialise(model.front(features))
        frozen_data = replace(data, train=replace(data.train, images=features))
        if not has_unseen(data):
            yield self.feature_stage(model, model.flow, frozen_data, self._loss(model, data, features), None)
            model.eval()
            return
        val = model.encode_features(data.val.images)

        @torch.no_grad()
        def merit() -> float:
            own = torch.cat([model.latents(part)[0][:, : model.semantic] for part in torch.split(val, 1024)])
            centres, taken = model.semantic_part(data.known), model.taken_off(data.known)
            return harmonic(own @ centres.T + 0.5 * (taken - centres.square().sum(1)), data)

        start = best_state = state_copy(model)
        best, length = merit() if self.start == "closed" else -1.0, model.label_map.length
        for candidate in LENGTHS if length is not None and self.label_length is None else (length,):
            model.label_map = replace(model.label_map, length=candidate)
            model.load_state_dict(start)
            yield self.feature_stage(model, model.flow, frozen_data, self._loss(model, data, features), merit)
            model.eval()
            if (figure := merit()) > best:
                best, best_state, length = figure, state_copy(model), candidate
        model.load_state_dict(best_state)
        model.label_map = replace(model.label_map, length=length)

    def _loss(self, model: FlowModel, data: TrainData, features: Tensor) -> Callable[[Batch], dict[str, Tensor]]:
        """Return the three terms of the loss of a batch of features.

        Shrinkage of the covariance is the same as noise on the features. Training adds that noise, so that latents have the
        unit variance of the density from the start; without it the flow would first undo the shrinkage.
        """
        d, is_closed = features.shape[1], self.start == "closed"
        assert model.flow is not None
        # the paper compares features scaled to [0, 1], which its flow begins with; the closed form whitens, and compares features
        inverse = model.features_from if is_closed else model.flow.inverse

        def scaled(v: Tensor) -> Tensor:
            return v if is_closed else model.front(v)

        with torch.no_grad():
            deviation = model.tensor(model.spread)
            blur = (1 - deviation.square()).clamp_min(0).sqrt()
            centres = model.pad(model.semantic_part(data.labels))
            means = scaled(segment_mean(features, data.train.targets, len(data.labels)))
            unseen = model.pad(model.semantic_part(data.unseen)) if data.unseen is not None else None

        def loss(batch: Batch) -> dict[str, Tensor]:
            right = centres[batch.targets]
            jitter = batch.rng.normal(d) * blur if is_closed else (batch.rng.uniform(d) - 0.5) * self.noise
            z, log_det = model.latents(batch.images, jitter)
            density = (0.5 * (z - right).square().sum(1) - log_det) / d
            terms = {"flow": self.flow_weight * density.mean()}
            if self.centre_weight:
                off = inverse(right) - means[batch.targets]
                terms["centre"] = self.centre_weight * off.square().sum(1).mean()
            if self.mmd_weight and unseen is not None:
                drawn = (batch.rng.uniform() * len(unseen)).long()
                made = inverse(unseen[drawn] + deviation * batch.rng.normal(d))
                both, _ = whole_batch(torch.stack([scaled(batch.images), made], 1), batch)
                terms["mmd"] = -self.mmd_weight * mmd(both[:, 0], both[:, 1], self.mmd_kernel)
            return terms

        return loss

    def settle(self, model: LabelModel) -> Method:
        """Return the settings with those that the trial chose."""
        assert isinstance(model, FlowModel)
        result = self
        if self.start == "random":
            result = replace(result, label_length=model.label_map.length)
        else:
            assert model.solution is not None
            result = replace(result, **model.solution._asdict())
        if isinstance(model, GeneratedSoftmax):
            result = replace(result, head_penalty=model.head_penalty)
        return replace(result, epochs=int(model.trained_epochs))


def _merits(
    model: FlowModel, folds: list[TrainData], grid: tuple[GaussianSettings, ...]
) -> dict[GaussianSettings, float]:
    """Return the best harmonic mean of each choice, the sum over trials whose images are features."""
    merits = dict.fromkeys(grid, 0.0)
    for fold in folds:
        for choice, curve in _curves(model, fold, grid):
            merits[choice] += float(curve.harmonic.max())
    return merits


def _curves(
    model: FlowModel, fold: TrainData, grid: tuple[GaussianSettings, ...]
) -> Iterator[tuple[GaussianSettings, BalanceCurve]]:
    """Yield each choice and its accuracies in a trial whose images are features, for every gap in units of ``seen_spread``."""
    gaussians = Gaussians.of(fold.train.images, fold.train.targets, model.vectors(fold.labels))
    is_seen, relevance = torch.arange(len(fold.known)) < len(fold.labels), model.caption_relevance(fold)
    for prepared in dict.fromkeys(choice[-2:] for choice in grid):
        some = tuple(choice for choice in grid if choice[-2:] == prepared)
        model.fit_vectors(fold.labels, some[0], relevance)
        vectors = model.vectors(fold.known).double()
        own = gaussians._replace(vectors=vectors[: len(fold.labels)])
        for choice, scores in own.scores(fold.val.images, vectors, some):
            yield choice, balance_curve(scores / seen_spread(scores, is_seen), fold.val.targets, is_seen)
