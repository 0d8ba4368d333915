"""The closed form on a torch encoder: one that is tuned, or that has no ONNX file."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.core.arrays import softmax
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
from labelwise.train.train_data import TrainData


class DiscriminantModel(EncoderModel):
    """An encoder of features, and the head that was solved on them."""

    solved: DiscriminantHead | None = None  # None: not solved yet
    trials: tuple[Trial, ...] = ()  # of encoders, where this one was to be tuned

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
    def solve(self, images: Tensor, targets: Tensor, groups: Sequence[str] = ()) -> None:
        """Solve the closed form on training images and their targets ``[n]``."""
        features = array(self.head_features(images))
        self.solved = fit_discriminant(features, array(targets), self.spec.labels, groups, self.source).head

    def solve_on(self, data: TrainData) -> tuple[float, float]:
        """Solve on training images; return the mean log-likelihood and accuracy on validation images."""
        self.solve(data.train.images, data.train.targets, data.train.groups)
        head, targets = self.export_head(), array(data.val.targets)
        scores = head.score(head.embed(array(self.head_features(data.val.images))), head.rows)
        factor = 1 / fit_temperature(scores, targets)
        whitening = replace(head.whitening, sharpness=head.whitening.sharpness * factor)
        self.solved = replace(head, rows=head.rows * np.float32(factor), whitening=whitening)
        shares = softmax(factor * scores)[np.arange(len(targets)), targets]
        return float(np.log(shares).mean()), float((scores.argmax(1) == targets).mean())

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
