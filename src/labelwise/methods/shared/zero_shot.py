"""Base of the zero-shot methods: label vectors predict the scores of labels without images."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from labelwise.core.balance import balance_curve
from labelwise.core.head import Array, Head
from labelwise.images.describe.labels import Labels
from labelwise.methods.shared.centring import Centring
from labelwise.methods.shared.head import BilinearHead, Centre, TrainedHead, ZeroShotHead, label_vectors
from labelwise.methods.shared.image_method import ImageMethod
from labelwise.methods.shared.label_source import LabelSource, Source
from labelwise.methods.shared.linear import Encoder, LinearModel, array
from labelwise.support.settings import check_range, setting
from labelwise.train.batches import Batch
from labelwise.train.model import Spec
from labelwise.train.stages import Stage
from labelwise.train.train_data import TrainData

FOLD_IMAGES = 5  # one image in this many validates
FEWEST_FOLDS, MOST_FOLDS = 3, 5  # folds of labels; each label is held out in one
Settings = TypeVar("Settings", float, tuple[float, ...])


class ZeroShotModel(LinearModel):
    """A model with a linear score whose labels are vectors, or the mean vectors of their sentences.

    ``head`` exists only to train the image encoder, if it is trained.
    """

    def __init__(self, spec: Spec, encoder: Encoder, source: LabelSource, power: float) -> None:
        super().__init__(spec, encoder)
        self.source = source
        d = self.encoder.code_size
        self.vector_size = source.of(spec.labels).shape[1]
        self.head = nn.Linear(d, len(spec.labels)) if not self.encoder.untrained else None
        self.centre_codes = Centring(d, power)
        self.centre_vectors, self.vector_power = Centre(mean=np.zeros(self.vector_size, np.float32)), 1.0

    def finish(self, embeddings: Tensor) -> Tensor:
        """Return image embeddings ``[n, d]``, centred and of unit length."""
        return self.centre_codes(embeddings)  # type: ignore[no-any-return]

    def vectors(self, labels: Labels) -> Tensor:
        """Return the label vectors ``[k, a]``, centred and of unit length."""
        return self.tensor(label_vectors(self.source, self.centre_vectors, labels))

    def restore(self, head: Head) -> None:
        """Load from a head what the state does not hold."""
        super().restore(head)
        assert isinstance(head, ZeroShotHead)
        self.centre_vectors = head.centre_vectors

    def head_parts(self) -> dict[str, Any]:
        """Return the fields shared by the heads of these models."""
        centres = {"centre_features": self.centre_codes.centre(), "centre_vectors": self.centre_vectors}
        return {**super().head_parts(), **centres, "source": self.source}


class BilinearModel(ZeroShotModel):
    """A score z.V.s of an image embedding z and a label vector s; the embedding of a label is V.s."""

    penalties: tuple[float, ...] = ()  # of the closed-form solution; empty if V was trained

    def __init__(self, spec: Spec, encoder: Encoder, source: LabelSource, power: float) -> None:
        super().__init__(spec, encoder, source, power)
        self.weights = nn.Parameter(torch.zeros(self.encoder.code_size, self.vector_size))  # V [d, a]

    def encode_labels(self, labels: Labels) -> Tensor:
        """Return label embeddings ``[k, d + 1]``."""
        embeddings = self.vectors(labels) @ self.weights.T
        return torch.cat([embeddings, embeddings.new_zeros(len(embeddings), 1)], 1)

    def export_head(self) -> TrainedHead:
        """Return the equivalent NumPy head."""
        return BilinearHead(**self.head_parts(), weights=array(self.weights))

    @torch.no_grad()
    def solve(self, weights: Tensor, penalties: tuple[float, ...]) -> None:
        """Set V ``[d, a]`` to a closed-form solution, and record its penalties."""
        self.weights.copy_(weights)
        self.penalties = penalties


@dataclass(frozen=True, kw_only=True)
class ZeroShotMethod(ImageMethod):
    """Settings of methods that read a vector of each label.

    Images are first encoded by a network: a frozen one, or one trained on the seen labels with these settings.
    """

    needs: ClassVar[tuple[str, ...]] = ("targets", "descriptions")
    zero_shot: ClassVar[bool] = True

    source: Source = setting("auto", "Read label vectors or texts; auto prefers vectors.")
    sentences: str = setting("words", "What embeds a sentence: words, glove or minilm.")
    power: float = setting(0.5, "Power of image embeddings, with their sign, before normalising.")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "above 0 and at most 1", "power")

    def build(self, spec: Spec) -> BilinearModel:
        """Return the untrained model."""
        return BilinearModel(spec, self.encoder, self.label_source, self.power)

    @property
    def label_source(self) -> LabelSource:
        """The source of label vectors."""
        return LabelSource(source=self.source, sentences=self.sentences)

    def describe(self, labels: Labels) -> Labels:
        """Return the labels with their vectors, so that sentences are encoded only once."""
        return replace(labels, vectors=torch.from_numpy(self.label_source.of(labels)))

    def train_encoder(self, model: ZeroShotModel, data: TrainData) -> Iterator[Stage]:
        """Yield the stage that trains the image encoder on the seen labels, if there is one; then fit the centring."""
        if model.head is not None:
            model.encoder.fit_normalisation(data.train.images)
            yield encoder_stage(self, model.encoder, model.head, data)
        model.centre_codes.fit(model.encode_all(data.train.images, by=model.encoder))
        model.centre_vectors = Centre.of(model.source.of(data.labels), model.vector_power)


def encoder_stage(method: ImageMethod, encoder: nn.Module, head: nn.Linear, data: TrainData) -> Stage:
    """Return the stage that trains an image encoder on the seen labels, through a temporary head."""

    def loss(batch: Batch) -> dict[str, Tensor]:
        return {"choice": cross_entropy(head(encoder(batch.images)).float(), batch.targets)}

    return method.stage(f"{method.name} encoder", nn.ModuleList([encoder, head]), data, loss)


def has_unseen(data: TrainData) -> bool:
    """Return whether validation has both seen and held-out labels, as in a trial run, so that settings can be chosen."""
    of_seen = data.val.targets < len(data.labels)
    return bool(of_seen.any()) and bool((~of_seen).any())


def label_folds(data: TrainData) -> Iterator[TrainData]:
    """Yield trials in which each label is held out once; ``has_unseen`` must hold.

    The best gap grows with the ratio of trained labels to labels without images. So the folds reproduce this ratio, between a
    third and a fifth of the labels. With a third, the trial itself is the first fold. The other folds divide the images again:
    every fifth image of each remaining label validates.
    """
    labels, images = data.known, data.train.join(data.val)
    size = round(1 + len(labels) / data.without_images) if data.without_images else 0
    parts = min(max(size, FEWEST_FOLDS), MOST_FOLDS, len(labels))
    if thirds := parts == FEWEST_FOLDS:
        yield data
    label_count = len(data.labels) if thirds else len(labels)
    order = torch.randperm(label_count, generator=torch.Generator().manual_seed(0)).to(images.targets.device)
    counts, by_label = torch.bincount(images.targets), images.targets.argsort(stable=True)
    place = torch.empty_like(by_label)  # rank of each image within its label
    place[by_label] = (
        torch.arange(len(images), device=place.device) - (counts.cumsum(0) - counts)[images.targets[by_label]]
    )
    for held_out in order.tensor_split(parts - thirds):
        kept_rows = torch.arange(len(labels), device=held_out.device)
        kept_rows = kept_rows[~torch.isin(kept_rows, held_out)]
        position = torch.cat([kept_rows, held_out]).argsort()
        renumbered = replace(images, targets=position[images.targets])
        validated = torch.isin(images.targets, held_out) | (place % FOLD_IMAGES == 0)
        names = [[labels.names[i] for i in rows.tolist()] for rows in (kept_rows, held_out)]
        yield replace(
            data,
            train=renumbered.select((~validated).nonzero()[:, 0]),
            val=renumbered.select(validated.nonzero()[:, 0]),
            labels=labels.select(names[0]),
            unseen=labels.select(names[1]),
        )


def harmonic(scores: Tensor | Array, data: TrainData) -> float:
    """Return the best harmonic mean over all seen penalties, from validation scores ``[n, k]`` of the known labels."""
    is_seen = np.arange(len(data.known)) < len(data.labels)
    table = array(scores) if isinstance(scores, Tensor) else scores
    return float(balance_curve(table, array(data.val.targets), is_seen).harmonic.max())


def best_on_validation(
    candidates: Iterable[tuple[Settings, Tensor | Array]], data: TrainData, plain: Settings
) -> Settings:
    """Return the settings with the best ``harmonic`` mean, or ``plain`` if validation has no unseen label."""
    return max((harmonic(scores, data), settings) for settings, scores in candidates)[1] if has_unseen(data) else plain
