"""The closed form on a torch encoder: one that is tuned, or that has no ONNX file."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.core.arrays import Array, softmax
from labelwise.core.balance import seen_spread
from labelwise.core.head import Head
from labelwise.core.platt import fit_temperature
from labelwise.methods.discriminant.fit import fit_discriminant
from labelwise.methods.discriminant.head import DiscriminantHead
from labelwise.methods.discriminant.tune import Trial
from labelwise.methods.shared.label_source import LabelSource
from labelwise.methods.shared.linear import Encoder, EncoderModel, array
from labelwise.support.errors import UsageError
from labelwise.train.model import Spec
from labelwise.train.tensors import linear_scores, root_features
from labelwise.train.train_data import TensorSplit, TrainData


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """What a trial made of the images: its head, and training data with features instead of images."""

    head: DiscriminantHead
    data: TrainData
    spread: float  # of the scores of training images

    @classmethod
    def of(cls, model: "DiscriminantModel", data: TrainData) -> "Rehearsal":
        """Return that of the encoder and head that a model has now."""
        train, val = (
            replace(
                split,
                images=model.head_features(split.images).cpu(),
                targets=split.targets.cpu(),
                image_shape=split.shape,
            )
            for split in (data.train, data.val)
        )
        return cls(model.export_head(), replace(data, train=train, val=val), model.spread(data.train.images))


class DiscriminantModel(EncoderModel):
    """An encoder of features, and the head that was solved on them."""

    solved: DiscriminantHead | None = None  # None: not solved yet
    trials: tuple[Trial, ...] = ()  # of encoders, where this one was to be tuned
    rehearsal: Rehearsal | None = None  # the trial that calibrates it, where it was tuned

    def __init__(self, spec: Spec, encoder: Encoder, source: LabelSource) -> None:
        super().__init__(spec, encoder)
        self.source = source
        if not self.encoder.untrained:
            raise UsageError(
                "Method discriminant does not change features of the data or a frozen encoder: set encoder.frozen=true with "
                "weights. To train an encoder choose another method, such as indicator."
            )

    def export_head(self) -> DiscriminantHead:
        """Return the head."""
        if self.solved is None:
            raise UsageError("This model was not solved yet, so it has no scores.")
        return self.solved

    def restore(self, head: Head) -> None:
        """Load a head."""
        assert isinstance(head, DiscriminantHead)
        self.solved = head

    @torch.no_grad()
    def solve(self, split: TensorSplit) -> None:
        """Solve the closed form on training images."""
        features, targets = array(self.head_features(split.images)), array(split.targets)
        self.solved = fit_discriminant(features, targets, self.spec.labels, split.groups, self.source).head

    def solve_on(self, data: TrainData) -> tuple[float, float]:
        """Solve on training images; return the mean log-likelihood and accuracy on validation images."""
        self.solve(data.train)
        scores, targets = self.head_scores(data.val.images), array(data.val.targets)
        factor = 1 / fit_temperature(scores, targets)
        self.sharpen(factor)
        shares = softmax(factor * scores)[np.arange(len(targets)), targets]
        return float(np.log(np.maximum(shares, 1e-30)).mean()), float((scores.argmax(1) == targets).mean())

    def sharpen(self, factor: float) -> None:
        """Multiply the scores of the head by a factor."""
        head = self.export_head()
        whitening = replace(head.whitening, sharpness=head.whitening.sharpness * factor)
        self.solved = replace(head, rows=head.rows * np.float32(factor), whitening=whitening)

    def head_scores(self, images: Tensor) -> Array:
        """Return the scores of the head ``[n, k]``."""
        head = self.export_head()
        return head.score(head.embed(array(self.head_features(images))), head.rows)

    def spread(self, images: Tensor) -> float:
        """Return the standard deviation of an image's scores, the mean over images."""
        scores = self.head_scores(images)
        return seen_spread(scores, np.ones(scores.shape[1], bool))

    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        """Return the score of every pair ``[n, k]``, as the head does."""
        head = self.export_head()
        scores = linear_scores(image_embeddings, label_embeddings[:, : head.width + 1])
        if head.kernel is None:
            return scores
        centres = torch.from_numpy(head.kernel.centres).to(scores)
        likeness = ((image_embeddings @ centres.T - 1) / head.kernel.width).exp()
        return scores + likeness @ label_embeddings[:, head.width + 1 :].T

    def finish(self, embeddings: Tensor) -> Tensor:
        """Return embeddings ``[n, d]`` of unit length."""
        return root_features(embeddings) if self.export_head().rooted else normalize(embeddings, dim=1)
