"""Prototypes with a learned similarity: classification, verification, retrieval, and new labels from a few images.

A label is a prototype: the moving mean of its training embeddings. Its score is S(prototype, embedding), see ``similarity``.
The same S compares two images.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, linear, normalize, one_hot, pad

from labelwise.core.arrays import softmax
from labelwise.core.platt import fit_temperature
from labelwise.methods.prototype.head import PairScore, PrototypeHead
from labelwise.methods.prototype.learned_similarity import Similarity, SimilaritySettings
from labelwise.methods.shared.image_method import ImageMethod, StartedMethod
from labelwise.methods.shared.linear import Encoder, StartedModel, array
from labelwise.support.errors import UsageError
from labelwise.support.settings import check_range, setting
from labelwise.train.batches import Batch, GroupedBatches
from labelwise.train.distribution import whole_batch
from labelwise.train.model import LabelModel, Spec
from labelwise.train.stages import Loss, Stage
from labelwise.train.tensors import linear_scores, segment_mean
from labelwise.train.train_data import TensorSplit, TrainData

Head = Literal["sim", "dol", "mean"]
SHARES = (
    0.0,
    0.25,
    0.5,
    0.75,
    1.0,
)  # candidate weights of the learned score against the closed form, smallest first: ties go to the closed form


class PrototypeModel(StartedModel):
    """Image encoder, prototypes, similarity, and a dense output layer.

    A label embedding holds the prototype's part of S and a level, or a row of the dense layer ``[d + 1]``, or both in this
    order. With a closed form, its row ``[d + 1]`` follows.
    """

    exclusive = True
    prototypes: Tensor  # C [k, d]
    share: Tensor  # weight of the learned score; the closed form has the rest

    def __init__(self, spec: Spec, encoder: Encoder, settings: "Prototype") -> None:
        super().__init__(spec, encoder)
        k, d = len(spec.labels), self.encoder.code_size
        # what scores a label: `sim` S of its prototype, `dol` the dense output layer, `mean` the mean of both
        self.head: Head = settings.head
        # of the dense layer: None is a linear score, else this times the cosine with its row (AM-softmax)
        self.cosine = None if settings.margin is None else settings.margin_scale
        self.lifted = settings.lifted  # whether to match the level of labels learnt from examples to trained ones
        if self.can_start:
            self.register_buffer("share", torch.ones(()))
        self.compare = Similarity(d, settings.similarity_settings)
        self.dense = nn.Linear(d, k, bias=self.cosine is None)
        start = torch.randn(k, d) if settings.start == "normal" else torch.rand(k, d)
        if settings.prototypes == "sgd":
            self.prototypes = nn.Parameter(start)
        else:
            self.register_buffer("prototypes", start)

    def export_head(self) -> PrototypeHead:
        """Return the equivalent NumPy head."""
        with torch.no_grad():
            dense = array(self._dense_rows())
        return PrototypeHead(
            **self.head_parts(),
            pair_score=self._pair_score(),
            scorer=self.head,
            prototypes=array(self.prototypes),
            dense=dense,
            cosine=self.cosine,
            lifted=self.lifted,
            base=array(self.base) if self.started else None,
            share=float(self.share) if self.can_start else 1.0,
        )

    def _pair_score(self) -> PairScore:
        """Return S in NumPy."""
        compare, parts = self.compare, dict[str, Tensor]()
        if compare.cosine:
            parts |= {"scale": compare.scale, "offset": compare.offset}
        if compare.learned:
            first, second = compare.input.weight.split(compare.size, 1)  # type: ignore[no-untyped-call]
            parts |= {"first_weight": first, "second_weight": second, "bias": compare.input.bias}
            parts |= {"output_weight": compare.output.weight[0], "output_bias": compare.output.bias[0]}
            if compare.middle is not None:
                parts |= {"middle_weight": compare.middle.weight, "middle_bias": compare.middle.bias}
        arrays = {name: array(tensor) for name, tensor in parts.items()}
        return PairScore(**arrays, symmetric=compare.settings.symmetric)

    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        """Return the score of every pair ``[n, k]``; labels are independent."""
        size = (self.head != "dol") * (self.compare.first_size + 1) + (self.head != "sim") * (
            self.encoder.code_size + 1
        )
        learned_scores = self._learned_scores(image_embeddings, label_embeddings[:, :size])
        if label_embeddings.shape[1] == size:
            return learned_scores
        return torch.lerp(linear_scores(image_embeddings, label_embeddings[:, size:]), learned_scores, self.share)

    def weigh(self, split: TensorSplit) -> None:
        """Set the weight of the learned score by maximum likelihood on a split."""
        embeddings, targets, losses = array(self.encode_all(split.images)), array(split.targets), {}
        head = self.export_head()
        rows = head.embed_labels(head.labels)
        for share in SHARES:
            scores = replace(head, share=share).score(embeddings, rows)
            chances = softmax(scores / fit_temperature(scores, targets))
            losses[share] = -float(np.log(chances[np.arange(len(targets)), targets]).mean())
        self.share.fill_(min(losses, key=losses.__getitem__))

    def _learned_scores(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        """Return the learned score of every pair ``[n, k]``."""
        if self.head == "dol":
            return self._dense_scores(image_embeddings, label_embeddings)
        e = self.compare.first_size
        pair_scores = self.compare.pairs(label_embeddings[:, :e], self.compare.second(image_embeddings)).T
        pair_scores = pair_scores + label_embeddings[:, e]
        if self.head == "sim":
            return pair_scores
        return (pair_scores + self._dense_scores(image_embeddings, label_embeddings[:, e + 1 :])) / 2

    @torch.no_grad()
    def follow(self, embeddings: Tensor, targets: Tensor, momentum: float) -> None:
        """Update prototypes as moving averages: by 1 - momentum towards the label's mean embedding in the batch ``[n, d]``."""
        means = segment_mean(embeddings, targets, len(self.prototypes))
        weights = means.new_zeros(len(means), 1).index_fill_(0, targets, 1 - momentum)
        self.prototypes.lerp_(means, weights)

    def _dense_rows(self) -> Tensor:
        """Return the dense layer as weights and then a bias ``[k, d + 1]``."""
        if self.cosine is not None:
            return pad(normalize(self.dense.weight, dim=1) * self.cosine, (0, 1))
        return torch.cat([self.dense.weight, self.dense.bias[:, None]], 1)

    def _dense_scores(self, image_embeddings: Tensor, rows: Tensor) -> Tensor:
        return linear_scores(image_embeddings if self.cosine is None else normalize(image_embeddings, dim=1), rows)


@dataclass(frozen=True, kw_only=True)
class Prototype(StartedMethod):
    """Prototypical classifier with a learned similarity: L_class + L_pair + L_aux.

    Ablations of the paper: ``similarity="cosine"``, ``aux_weight=0``, ``prototypes="sgd"``.
    """

    name: ClassVar[str] = "prototype"

    head: Head = setting("sim", "What scores a label: mean is better for trained labels, sim for taught ones.")
    similarity: Literal["learned", "cosine", "both"] = setting(
        "learned", "learned, cosine or both; both is better for labels that training never saw."
    )
    symmetric: Literal["none", "max", "mean"] = setting(
        "none", "How S(a, b) and S(b, a) are combined; none: S(a, b), prototype first."
    )
    hidden: int = setting(512, "Units of a hidden layer of S.")
    layers: int = setting(1, "Hidden layers of S, 1 or 2.")
    dropout: float = setting(0.25, "Dropout in S before its output.")
    prototypes: Literal["mean", "sgd"] = setting("mean", "mean: moving means of embeddings; sgd: trained as weights.")
    start: Literal["normal", "uniform"] = setting(
        "normal", "Start of prototypes: normal (the paper) or uniform in [0, 1)."
    )
    momentum: float = setting(0.9, "Decay of a moving mean per step with images of its label (lambda).")
    group: int = setting(
        2, "Most images of a label together in a batch; 5 in the paper. Fewer allow more labels in a batch."
    )
    class_weight: float = setting(1.0, "Weight of L_class, the cross-entropy of S over prototypes.")
    pair_weight: float = setting(1.0, "Weight of L_pair, whether two images have the same label.")
    aux_weight: float = setting(1.0, "Weight of L_aux, the cross-entropy of the dense layer.")
    smoothing: float = setting(0.2, "Label smoothing of L_class and L_aux.")
    pair_smoothing: float = setting(0.0, "s: targets of L_pair are drawn from [1 - s, 1] and [0, s].")
    margin: float | None = setting(None, "Margin of AM-softmax, 0.4 in the paper; none: a plain dense layer.")
    margin_scale: float = setting(30.0, "Scale of AM-softmax.")
    lifted: bool = setting(True, "Bring S of taught labels to the level of trained ones; not in the paper.")

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.similarity_settings
        check_range(self, "from 0 to 1", "momentum", "smoothing", "pair_smoothing")
        weights = {name: getattr(self, name) for name in ("class_weight", "pair_weight", "aux_weight")}
        if min(weights.values()) < 0 or not any(weights.values()):
            raise UsageError(f"Weights of the loss must not be negative, and one must be above 0; given {weights}.")
        check_range(self, "0 or more", "margin")
        check_range(self, "above 0", "margin_scale")
        if self.head != "sim" and not self.aux_weight:
            raise UsageError(
                f'The head "{self.head}" uses the dense layer, which aux_weight=0 leaves untrained. Use head=sim.'
            )

    @property
    def similarity_settings(self) -> SimilaritySettings:
        """The settings of S."""
        own = {name: getattr(self, name) for name in ("symmetric", "hidden", "layers", "dropout")}
        return SimilaritySettings(kind=self.similarity, **own)

    def build(self, spec: Spec) -> PrototypeModel:
        """Return the untrained model."""
        return PrototypeModel(spec, self.encoder, self)

    def batches(self, data: TrainData) -> GroupedBatches:
        """Return the training images in batches of groups, augmented."""
        plain = super().batches(data)
        return GroupedBatches(split=plain.split, size=plain.size, augment=plain.augment, group=self.group)

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Yield the one stage, then weigh the learned score against the closed form, if there is one.

        Training never stops early: the similarity also compares images, which the closed form cannot.
        """
        assert isinstance(model, PrototypeModel)
        self.begin(model, data)
        yield ImageMethod.stage(self, self.name, model, data, self.loss(model))
        model.fit_statistics(data.train)
        if model.started:
            model.weigh(data.val)

    def loss(self, model: PrototypeModel) -> Loss:
        """Return the loss of a batch; update prototypes first.

        Every process compares the whole batch, so dropout in S draws the same numbers in each.
        """

        def of_batch(batch: Batch) -> dict[str, Tensor]:
            embeddings = model.encode_images(batch.images).float()
            every, targets = whole_batch(embeddings, batch)
            if self.prototypes == "mean" and model.training:  # not while a batch is being attacked
                model.follow(every, targets, self.momentum)
            terms = {}
            if self.class_weight:
                scores = model.compare(model.prototypes, every).T
                terms["class"] = self.class_weight * self._choice(scores, targets)
            if self.pair_weight:
                noise = None
                if self.pair_smoothing:  # the same in every process
                    shape, rng = (len(every), len(every)), batch.rng
                    noise = self.pair_smoothing * torch.rand(shape, generator=rng.generator, device=rng.device)
                terms["pair"] = self.pair_weight * pair_loss(model.compare(every, every), targets, noise)
            if self.aux_weight:
                scores = self._dense(model, embeddings, batch.targets)
                terms["aux"] = self.aux_weight * self._choice(scores, batch.targets)
            return terms

        return of_batch

    def _choice(self, scores: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(scores.float(), targets, label_smoothing=self.smoothing)

    def _dense(self, model: PrototypeModel, embeddings: Tensor, targets: Tensor) -> Tensor:
        """Return the scores of the dense layer ``[n, k]``, with the margin subtracted from the true ones."""
        if self.margin is None:
            return model.dense(embeddings)  # type: ignore[no-any-return]
        cosines = linear(normalize(embeddings, dim=1), normalize(model.dense.weight, dim=1))
        margins = one_hot(targets, cosines.shape[1]) * self.margin
        return (cosines - margins) * self.margin_scale


def pair_loss(scores: Tensor, targets: Tensor, noise: Tensor | None = None) -> Tensor:
    """Return L_pair: the mean binary cross-entropy of same-label pairs plus that of other pairs.

    S of every ordered pair is ``[n, n]``, targets are ``[n]``; the diagonal does not count. ``noise [n, n]`` moves the target
    of each pair inwards from 1 or 0.
    """
    same = targets[:, None] == targets
    distinct = ~torch.eye(len(targets), dtype=torch.bool, device=targets.device)
    truth = same.float() if noise is None else torch.where(same, 1 - noise, noise)
    losses = binary_cross_entropy_with_logits(scores.float(), truth, reduction="none")
    same, different = ((losses * kind).sum() / kind.sum().clamp_min(1) for kind in (same & distinct, ~same))
    return same + different
